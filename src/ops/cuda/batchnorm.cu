// Batch normalization (Ioffe and Szegedy 2015) over channels-last rows.
//   x̂ = (x - μ)/√(σ² + ε),  y = act(γ·x̂ + β)
//   dx = γ/√(σ² + ε) · (dy - Σdy/N - x̂·Σ(dy·x̂)/N)
// Σx and Σx² are added in double, whose digits are enough for means far from zero.
#include "ops/cuda/columns.cuh"
#include "ops/cuda/cuda_ops.hpp"

namespace trireme::cuda {
namespace {

struct Moments {
    static constexpr int inputs = 1, terms = 2;
    __device__ void operator()(std::int64_t, std::int64_t, float x, float, float, double* sum) const {
        const auto value = static_cast<double>(x);
        sum[0] += value;
        sum[1] += value * value;
    }
};

/// Σ dy and Σ dy·(x - μ), dy taken through the relu where there is one.
struct Gradients {
    static constexpr int inputs = 3, terms = 2;
    const float* mean;
    bool relu;
    __device__ void operator()(std::int64_t, std::int64_t column, float dy, float x, float y,
                               double* sum) const {
        const float g = !relu || y > 0 ? dy : 0.0f;
        sum[0] += static_cast<double>(g);
        sum[1] += static_cast<double>(g * (x - mean[column]));
    }
};

/// y = (x - center)·scale + offset.
struct Normalize {
    static constexpr int inputs = 1;
    const float *center, *scale, *offset;
    bool relu;
    __device__ float operator()(std::int64_t, std::int64_t c, float x, float, float) const {
        const float z = (x - center[c]) * scale[c] + offset[c];
        return relu && z < 0 ? 0.0f : z;
    }
};

/// dx = scale·(dy - base - (x - center)·slope).
struct Backward {
    static constexpr int inputs = 3;
    const float *center, *scale, *base, *slope;
    bool relu;
    __device__ float operator()(std::int64_t, std::int64_t c, float dy, float x, float y) const {
        const float g = !relu || y > 0 ? dy : 0.0f;
        return scale[c] * (g - base[c] - (x - center[c]) * slope[c]);
    }
};

/// Statistics from the sums; `scale` receives γ/√(σ² + ε). No rows: zeros.
__global__ void __launch_bounds__(threads)
    statistics_kernel(const double* parts, std::int64_t chunks, std::int64_t rows, std::int64_t columns,
                      float eps, const float* gamma, float* mean, float* inv_std, float* scale,
                      float* running_mean, float* running_var, float share, bool accumulate) {
    const std::int64_t c = global_thread();
    if (c >= columns) return;
    const auto n = static_cast<double>(rows > 0 ? rows : 1);
    const double center = column_total(parts, chunks, 2, 0, columns, c) / n;
    const double squares = column_total(parts, chunks, 2, 1, columns, c) - n * center * center;
    const double deviations = squares < 0 ? 0 : squares;
    const double inverse = rows > 0 ? 1 / sqrt(deviations / n + static_cast<double>(eps)) : 0;
    const double unbiased = deviations / (rows > 1 ? n - 1 : 1);
    mean[c] = static_cast<float>(center);
    inv_std[c] = static_cast<float>(inverse);
    scale[c] = static_cast<float>(inverse * static_cast<double>(gamma[c]));
    if (running_mean != nullptr)
        running_mean[c] =
            static_cast<float>(center * static_cast<double>(share)) + (accumulate ? running_mean[c] : 0.0f);
    if (running_var != nullptr)
        running_var[c] =
            static_cast<float>(unbiased * static_cast<double>(share)) + (accumulate ? running_var[c] : 0.0f);
}

__global__ void __launch_bounds__(threads)
    scale_kernel(std::int64_t columns, float eps, const float* gamma, const float* var, float* scale) {
    const std::int64_t c = global_thread();
    if (c < columns)
        scale[c] = static_cast<float>(static_cast<double>(gamma[c]) /
                                      sqrt(static_cast<double>(var[c]) + static_cast<double>(eps)));
}

/// Gradients of γ and β (share: 1/N), and the factors of Backward: scale, base, slope. [3, columns]
__global__ void __launch_bounds__(threads)
    gradients_kernel(const double* parts, std::int64_t chunks, double share, std::int64_t columns,
                     const float* gamma, const float* inv_std, float* d_gamma, float* d_beta, bool accumulate,
                     float* factors) {
    const std::int64_t c = global_thread();
    if (c >= columns) return;
    const double sum = column_total(parts, chunks, 2, 0, columns, c),
                 product = column_total(parts, chunks, 2, 1, columns, c);
    const auto inverse = static_cast<double>(inv_std[c]);
    factors[c] = static_cast<float>(static_cast<double>(gamma[c]) * inverse);
    factors[columns + c] = static_cast<float>(sum * share);
    factors[2 * columns + c] = static_cast<float>(product * inverse * inverse * share);
    d_gamma[c] = static_cast<float>(product * inverse) + (accumulate ? d_gamma[c] : 0.0f);
    d_beta[c] = static_cast<float>(sum) + (accumulate ? d_beta[c] : 0.0f);
}

bool uses_relu(const BatchNorm& args) {
    if (args.activation != Activation::none && args.activation != Activation::relu)
        throw refusal("batchnorm", std::string(name_of(args.activation)) + " where none or relu is expected");
    return args.activation == Activation::relu;
}

std::int64_t rows_of(const BatchNorm& args) {
    const std::int64_t channels = args.gamma.count();
    return channels == 0 ? 0 : args.x.count() / channels;
}

}  // namespace

void CudaOps::batchnorm_forward(const BatchNorm& args, View running_mean, View running_var, float share,
                                bool accumulate) {
    const std::int64_t channels = args.gamma.count(), rows = rows_of(args), elements = rows * channels;
    const float* gamma = floats(args.gamma, channels, "batchnorm gamma");
    const float* beta = floats(args.beta, channels, "batchnorm beta");
    float* mean = floats(args.mean, channels, "batchnorm mean");
    float* inv_std = floats(args.inv_std, channels, "batchnorm inv_std");
    float* average = optional_floats(running_mean, channels, "batchnorm running mean");
    float* variance = optional_floats(running_var, channels, "batchnorm running variance");
    const Real x = real(args.x, elements, "batchnorm"), y = real(args.y, elements, "batchnorm");
    const bool relu = uses_relu(args);
    if (channels == 0) return;
    const ColumnPlan plan(rows, channels);
    const double* parts = column_sums(device_, scratch_, plan, Moments{}, {x});
    float* scale = wide_scratch_.reserve_of<float>(channels);
    launch(device_.stream(), {divided_up(channels, threads)}, statistics_kernel, parts, plan.chunks, rows,
           channels, args.eps, gamma, mean, inv_std, scale, average, variance, share, accumulate);
    run_map(device_, Normalize{mean, scale, beta, relu}, elements, y, {x}, channels);
}

void CudaOps::batchnorm_apply(const BatchNorm& args, View mean, View var) {
    const std::int64_t channels = args.gamma.count(), rows = rows_of(args), elements = rows * channels;
    const float* gamma = floats(args.gamma, channels, "batchnorm gamma");
    const float* beta = floats(args.beta, channels, "batchnorm beta");
    const float* center = floats(mean, channels, "batchnorm mean");
    const float* variance = floats(var, channels, "batchnorm variance");
    const Real x = real(args.x, elements, "batchnorm"), y = real(args.y, elements, "batchnorm");
    const bool relu = uses_relu(args);
    if (rows == 0) return;
    float* scale = wide_scratch_.reserve_of<float>(channels);
    launch(device_.stream(), {divided_up(channels, threads)}, scale_kernel, channels, args.eps, gamma,
           variance, scale);
    run_map(device_, Normalize{center, scale, beta, relu}, elements, y, {x}, channels);
}

void CudaOps::batchnorm_backward(const BatchNorm& args, View dy, View dx, View d_gamma, View d_beta,
                                 bool accumulate) {
    const std::int64_t channels = args.gamma.count(), rows = rows_of(args), elements = rows * channels;
    const float* gamma = floats(args.gamma, channels, "batchnorm gamma");
    const float* mean = floats(args.mean, channels, "batchnorm mean");
    const float* inv_std = floats(args.inv_std, channels, "batchnorm inv_std");
    const bool relu = uses_relu(args);
    const Real x = real(args.x, elements, "batchnorm"), from = real(dy, elements, "batchnorm backward"),
               to = real(dx, elements, "batchnorm backward");
    const Inputs in{from, x, relu ? real(args.y, elements, "batchnorm") : x};
    float* gamma_to = floats(d_gamma, channels, "batchnorm d_gamma");
    float* beta_to = floats(d_beta, channels, "batchnorm d_beta");
    if (channels == 0) return;
    const ColumnPlan plan(rows, channels);
    const double* parts = column_sums(device_, scratch_, plan, Gradients{mean, relu}, in);
    float* factors = wide_scratch_.reserve_of<float>(3 * channels);
    launch(device_.stream(), {divided_up(channels, threads)}, gradients_kernel, parts, plan.chunks,
           1.0 / static_cast<double>(std::max<std::int64_t>(1, rows)), channels, gamma, inv_std, gamma_to,
           beta_to, accumulate, factors);
    run_map(device_, Backward{mean, factors, factors + channels, factors + 2 * channels, relu}, elements, to,
            in, channels);
}

}  // namespace trireme::cuda
