// Losses with their gradients. Cross-entropy of one sample, with t = (1-ε)·onehot + ε/C:
//   L = -Σ_j t_j·log softmax(x)_j,  dL/dx = softmax(x) - t
#include "ops/cuda/cuda_ops.hpp"
#include "ops/cuda/labels.hpp"
#include "ops/cuda/logits.cuh"

namespace trireme::cuda {
namespace {

/// Blocks that leave parts of a loss: by the shape alone.
constexpr std::int64_t most_blocks = 1024;

__device__ inline void store_part(double loss, double count, double correct, double* parts) {
    loss = block_sum(loss);
    count = block_sum(count);
    correct = block_sum(correct);
    if (threadIdx.x != 0) return;
    parts[blockIdx.x * 3] = loss;
    parts[blockIdx.x * 3 + 1] = count;
    parts[blockIdx.x * 3 + 2] = correct;
}

__global__ void __launch_bounds__(threads)
    cross_entropy_kernel(const void* x, DType x_type, std::int64_t rows, std::int64_t classes, bool wide,
                         const std::int32_t* labels, float smoothing, std::int32_t ignored, float scale,
                         void* d, DType d_type, double* parts) {
    const Logits logits{x, x_type, rows, classes, wide};
    const auto epsilon = static_cast<double>(smoothing), factor = static_cast<double>(scale);
    double loss = 0, count = 0, correct = 0;
    for_rows(rows, [&](std::int64_t r) {
        const std::int32_t label = labels[r];
        const bool skipped = label == ignored || label < 0 || label >= classes;
        if (lane_of() == 0 && skipped && label != ignored) loss += not_a_label();
        const float top = row_maximum(logits, r);
        const RowSums sums = row_sums(logits, r, top);
        const float labelled = skipped ? 0.0f : logits.at(r, label);
        if (lane_of() == 0 && !skipped) {
            const double log_sum = static_cast<double>(top) + log(sums.exponentials);
            loss += (1 - epsilon) * (log_sum - static_cast<double>(labelled));
            if (epsilon > 0) loss += epsilon * (log_sum - sums.logits / static_cast<double>(classes));
            count += 1;
            correct += sums.winner == label && !isnan(sums.exponentials) ? 1 : 0;
        }
        __syncwarp();  // all lanes have read the label's logit, which the gradient may replace
        if (d != nullptr)
            row_gradient(logits, r, top, skipped, static_cast<float>(factor / sums.exponentials),
                         static_cast<float>(factor * epsilon / static_cast<double>(classes)), label,
                         static_cast<float>(factor * (1 - epsilon)), d, d_type);
    });
    store_part(loss, count, correct, parts);
}

/// Binary: max(x, 0) - x·t + ln(1 + e^-|x|), which neither overflows nor cancels; its derivative is σ(x) - t.
/// Else (x - t)².
__global__ void __launch_bounds__(threads)
    regression_kernel(bool binary, const void* x, DType x_type, const float* target, std::int64_t n,
                      bool wide, float scale, void* d, DType d_type, double* parts) {
    double loss = 0, correct = 0;
    for (std::int64_t i = global_thread() * pack_size; i < n; i += all_threads() * pack_size) {
        const int count = some_of(i, n);
        Pack p = load_some(x, x_type, i, count, wide);
        const Pack t = load_some(target, DType::f32, i, count, wide);
#pragma unroll
        for (int j = 0; j < pack_size; ++j) {
            if (j >= count) continue;
            const float value = p.v[j], want = t.v[j];
            if (binary) {
                const float e = expf(-fabsf(value));
                loss += static_cast<double>((value < 0 ? 0.0f : value) - value * want + log1pf(e));
                correct += (want > 0.5f ? value > 0 : value <= 0) ? 1 : 0;
                p.v[j] = scale * ((value < 0 ? e : 1.0f) / (1.0f + e) - want);
            } else {
                const float error = value - want;
                loss += static_cast<double>(error * error);
                correct += static_cast<double>(fabsf(error));
                p.v[j] = 2 * scale * error;
            }
        }
        if (d != nullptr) store_some(d, d_type, i, count, wide, p);
    }
    store_part(loss, 0, correct, parts);
}

/// A mean over the outputs of each sample, and the samples' number.
__global__ void finish_regression_kernel(double* parts, std::int64_t blocks, double share, double samples) {
    for (std::int64_t b = threadIdx.x; b < blocks; b += threads) {
        parts[b * 3] *= share;
        parts[b * 3 + 1] = b == 0 ? samples : 0;
        parts[b * 3 + 2] *= share;
    }
}

struct Workplace {
    CudaDevice& device;
    Scalars& scalars;
};

void regression(const Workplace& at, bool binary, const Regression& args, const char* verb) {
    const std::int64_t n = args.prediction.count();
    const std::int64_t samples = args.prediction.shape.rank() > 0 ? args.prediction.shape[0] : 1;
    const Real x = real(args.prediction, n, verb), d = optional_real(args.d_prediction, n, verb);
    const float* t = floats(args.target, n, verb);
    if (n == 0) return;
    const double outputs = static_cast<double>(n / samples);
    const auto scale = static_cast<float>(static_cast<double>(args.gradient_scale) / outputs);
    const Grid grid = covering(n, threads * pack_size, most_blocks);
    double* parts = at.scalars.parts(grid.blocks, 3);
    const cudaStream_t stream = at.device.stream();
    launch(stream, grid, regression_kernel, binary, x.data, x.type, t, n,
           aligned(static_cast<const void*>(x.data), t, d.data), scale, d.data, d.type, parts);
    launch(stream, {}, finish_regression_kernel, parts, grid.blocks, 1 / outputs,
           static_cast<double>(samples));
    at.scalars.add(parts, grid.blocks, 3, {args.sums.loss, args.sums.count, args.sums.correct});
}

}  // namespace

void require_labels(CudaDevice& device, Scalars& scalars, const std::int32_t* labels, std::int64_t n,
                    std::int64_t classes, std::int32_t ignored) {
    std::int64_t* first_bad = scalars.flag(n);
    launch(device.stream(), covering(n, threads, most_blocks), check_labels_kernel, labels, n, classes,
           ignored, first_bad);
    const std::int64_t found = scalars.wait_for_flag();
    if (found == n) return;
    std::int32_t label = 0;
    device.copy_to_host(&label, labels + found, sizeof label);
    throw data_error("label " + std::to_string(label) + " of sample " + std::to_string(found) +
                     " is not in [0, " + std::to_string(classes) + ")");
}

void CudaOps::cross_entropy(const CrossEntropy& args) {
    const std::int64_t rows = args.labels.count();
    if (rows == 0) return;
    const std::int64_t classes = args.logits.count() / rows;
    const Real logits = real(args.logits, rows * classes, "cross_entropy"),
               gradient = optional_real(args.d_logits, rows * classes, "cross_entropy");
    const std::int32_t* labels = integers(args.labels, rows, "cross_entropy labels");
    const Targets targets{args.sums.loss, args.sums.count, args.sums.correct};
    if (scalars_.in_host_memory(targets))
        require_labels(device_, scalars_, labels, rows, classes, args.ignore_index);
    const Grid grid = covering(rows, warps, most_blocks);
    double* parts = scalars_.parts(grid.blocks, 3);
    const bool wide =
        classes % pack_size == 0 && aligned(static_cast<const void*>(logits.data), gradient.data);
    launch(device_.stream(), grid, cross_entropy_kernel, logits.data, logits.type, rows, classes, wide,
           labels, args.label_smoothing, args.ignore_index, args.gradient_scale, gradient.data, gradient.type,
           parts);
    scalars_.add(parts, grid.blocks, 3, targets);
}

void CudaOps::mean_squared_error(const Regression& args) {
    regression({device_, scalars_}, false, args, "mean_squared_error");
}

void CudaOps::binary_cross_entropy(const Regression& args) {
    regression({device_, scalars_}, true, args, "binary_cross_entropy");
}

}  // namespace trireme::cuda
