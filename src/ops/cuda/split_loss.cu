// Cross-entropy over classes that are split over ranks (the vocabulary-parallel loss of Shoeybi et al. 2019).
// With m the maximum of a whole row, S = Σ exp(x - m) over all ranks and t = (1-ε)·onehot + ε/C:
//   L = -Σ_j t_j·(x_j - m - log S),  dL/dx_j = exp(x_j - m)/S - t_j
#include "ops/cuda/cuda_ops.hpp"
#include "ops/cuda/labels.hpp"
#include "ops/cuda/logits.cuh"

namespace trireme::cuda {
namespace {

/// Blocks that leave parts of a loss: by the number of rows alone, so that every rank gets the same bits,
/// whatever its share of the classes.
constexpr std::int64_t most_blocks = 1024;

__global__ void __launch_bounds__(threads) maximum_kernel(const void* x, DType type, std::int64_t rows,
                                                          std::int64_t columns, bool wide, float* maximum) {
    const Logits logits{x, type, rows, columns, wide};
    for_rows(rows, [&](std::int64_t r) {
        const float top = row_maximum(logits, r);
        if (lane_of() == 0) maximum[r] = top;
    });
}

__global__ void __launch_bounds__(threads)
    sums_kernel(const void* x, DType type, std::int64_t rows, std::int64_t columns, bool wide,
                const std::int32_t* labels, std::int64_t first, const float* maximum, float* to,
                std::int32_t* winner) {
    const Logits logits{x, type, rows, columns, wide};
    for_rows(rows, [&](std::int64_t r) {
        const RowSums sums = row_sums(logits, r, maximum[r]);
        if (lane_of() != 0) return;
        const std::int64_t own = labels[r] - first;
        to[3 * r] = static_cast<float>(sums.exponentials);
        to[3 * r + 1] = own >= 0 && own < columns ? logits.at(r, own) : 0.0f;
        to[3 * r + 2] = static_cast<float>(sums.logits);
        winner[r] = sums.winner == no_class ? no_class : static_cast<std::int32_t>(first + sums.winner);
    });
}

__global__ void __launch_bounds__(threads)
    losses_kernel(std::int64_t rows, const std::int32_t* labels, std::int32_t ignored, double epsilon,
                  double classes, const float* maximum, const float* row_sums, const std::int32_t* winner,
                  double* parts) {
    double loss = 0, count = 0, correct = 0;
    for (std::int64_t r = global_thread(); r < rows; r += all_threads()) {
        if (labels[r] == ignored) continue;
        if (labels[r] < 0 || labels[r] >= classes) loss += not_a_label();
        const auto sum = static_cast<double>(row_sums[3 * r]),
                   labelled = static_cast<double>(row_sums[3 * r + 1]);
        const double log_sum = static_cast<double>(maximum[r]) + log(sum);
        loss += (1 - epsilon) * (log_sum - labelled);
        if (epsilon > 0) loss += epsilon * (log_sum - static_cast<double>(row_sums[3 * r + 2]) / classes);
        count += 1;
        correct += winner[r] == labels[r] && !isnan(sum) ? 1 : 0;
    }
    loss = block_sum(loss);
    count = block_sum(count);
    correct = block_sum(correct);
    if (threadIdx.x != 0) return;
    parts[blockIdx.x * 3] = loss;
    parts[blockIdx.x * 3 + 1] = count;
    parts[blockIdx.x * 3 + 2] = correct;
}

__global__ void __launch_bounds__(threads)
    gradient_kernel(const void* x, DType x_type, std::int64_t rows, std::int64_t columns, bool wide,
                    const std::int32_t* labels, std::int32_t ignored, std::int64_t first,
                    const float* maximum, const float* row_sums, double scale, double epsilon, double classes,
                    void* d, DType d_type) {
    const Logits logits{x, x_type, rows, columns, wide};
    for_rows(rows, [&](std::int64_t r) {
        row_gradient(logits, r, maximum[r], labels[r] == ignored,
                     static_cast<float>(scale / static_cast<double>(row_sums[3 * r])),
                     static_cast<float>(scale * epsilon / classes), labels[r] - first,
                     static_cast<float>(scale * (1 - epsilon)), d, d_type);
    });
}

/// What the three steps read, checked. This rank may have no class at all.
struct Part {
    Part(CudaDevice& device, Scalars& scalars, const SplitCrossEntropy& args, const char* verb)
        : rows(args.labels.count()),
          columns(rows == 0 ? 0 : args.logits.count() / rows),
          logits(real(args.logits, rows * columns, verb)),
          labels(integers(args.labels, rows, verb)),
          maximum(floats(args.maximum, rows, verb)) {
        if (rows > 0 && scalars.in_host_memory({args.sums.loss, args.sums.count, args.sums.correct}))
            require_labels(device, scalars, labels, rows, args.classes, args.ignore_index);
    }
    bool wide(const void* other = nullptr) const {
        return columns % pack_size == 0 && aligned(static_cast<const void*>(logits.data), other);
    }
    Grid grid(const CudaDevice& device) const { return covering(rows, warps, 16 * device.multiprocessors()); }
    std::int64_t rows, columns;
    Real logits;
    const std::int32_t* labels;
    float* maximum;
};

}  // namespace

void CudaOps::split_cross_entropy_maximum(const SplitCrossEntropy& args) {
    const Part part(device_, scalars_, args, "split_cross_entropy_maximum");
    if (part.rows > 0)
        launch(device_.stream(), part.grid(device_), maximum_kernel, part.logits.data, part.logits.type,
               part.rows, part.columns, part.wide(), part.maximum);
}

void CudaOps::split_cross_entropy_sums(const SplitCrossEntropy& args) {
    const Part part(device_, scalars_, args, "split_cross_entropy_sums");
    float* to = floats(args.row_sums, 3 * part.rows, "split_cross_entropy row_sums");
    std::int32_t* winner = integers(args.winner, part.rows, "split_cross_entropy winner");
    if (part.rows > 0)
        launch(device_.stream(), part.grid(device_), sums_kernel, part.logits.data, part.logits.type,
               part.rows, part.columns, part.wide(), part.labels, args.first, part.maximum, to, winner);
}

void CudaOps::split_cross_entropy_finish(const SplitCrossEntropy& args) {
    const Part part(device_, scalars_, args, "split_cross_entropy_finish");
    const float* sums = floats(args.row_sums, 3 * part.rows, "split_cross_entropy row_sums");
    const std::int32_t* winner = integers(args.winner, part.rows, "split_cross_entropy winner");
    const Real gradient =
        optional_real(args.d_logits, part.rows * part.columns, "split_cross_entropy d_logits");
    if (part.rows == 0) return;
    const auto epsilon = static_cast<double>(args.label_smoothing),
               classes = static_cast<double>(args.classes);
    const Grid grid = covering(part.rows, threads, most_blocks);
    double* parts = scalars_.parts(grid.blocks, 3);
    const cudaStream_t stream = device_.stream();
    launch(stream, grid, losses_kernel, part.rows, part.labels, args.ignore_index, epsilon, classes,
           part.maximum, sums, winner, parts);
    scalars_.add(parts, grid.blocks, 3, {args.sums.loss, args.sums.count, args.sums.correct});
    if (gradient && part.columns > 0)
        launch(stream, part.grid(device_), gradient_kernel, part.logits.data, part.logits.type, part.rows,
               part.columns, part.wide(gradient.data), part.labels, args.ignore_index, args.first,
               part.maximum, sums, static_cast<double>(args.gradient_scale), epsilon, classes, gradient.data,
               gradient.type);
}

}  // namespace trireme::cuda
