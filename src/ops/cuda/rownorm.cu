// Normalization of each row: LayerNorm (Ba, Kiros and Hinton 2016) and RMSNorm (Zhang and Sennrich 2019).
//   LayerNorm: x̂ = (x - μ)/√(σ² + ε),  y = γ·x̂ + β,  dx = (g - mean(g) - x̂·mean(g·x̂))/√(σ² + ε)
//   RMSNorm:   x̂ = x/√(mean(x²) + ε),  y = γ·x̂,      dx = (g - x̂·mean(g·x̂))/√(mean(x²) + ε)
// with g = γ·dy; dγ = Σ_rows dy·x̂ and dβ = Σ_rows dy. A warp takes a row.
#include "ops/cuda/columns.cuh"
#include "ops/cuda/cuda_ops.hpp"
#include "ops/cuda/warp.cuh"

namespace trireme::cuda {
namespace {

/// A matrix whose rows warps go through.
struct Rows {
    std::int64_t rows, columns;
    bool wide;  // packs of eight may be taken at once

    __device__ std::int64_t first() const {
        return static_cast<std::int64_t>(blockIdx.x) * warps + warp_of();
    }
    __device__ std::int64_t step() const { return static_cast<std::int64_t>(gridDim.x) * warps; }
};

/// body(column, count) for the lane's packs of a row.
template <class Body>
__device__ inline void for_packs(const Rows& rows, const Body& body) {
    for (std::int64_t c = lane_of() * pack_size; c < rows.columns; c += 32 * pack_size)
        body(c, some_of(c, rows.columns));
}

/// With rms the mean is 0, and beta absent.
__global__ void __launch_bounds__(threads)
    forward_kernel(Rows rows, bool rms, const void* x, DType x_type, void* y, DType y_type,
                   const float* gamma, const float* beta, float eps, float* means, float* inverses) {
    const auto n = static_cast<double>(rows.columns);
    for (std::int64_t r = rows.first(); r < rows.rows; r += rows.step()) {
        const std::int64_t at = r * rows.columns;
        double sum = 0;
        if (!rms) {
            for_packs(rows, [&](std::int64_t c, int count) {
                const Pack p = load_some(x, x_type, at + c, count, rows.wide);
                for (int j = 0; j < pack_size; ++j) sum += static_cast<double>(p.v[j]);
            });
            sum = warp_sum(sum) / n;
        }
        const auto mean = static_cast<float>(sum);
        double squares = 0;
        for_packs(rows, [&](std::int64_t c, int count) {
            const Pack p = load_some(x, x_type, at + c, count, rows.wide);
            for (int j = 0; j < pack_size; ++j) {
                const double d = static_cast<double>(p.v[j]) - sum;
                squares += j < count ? d * d : 0;
            }
        });
        const auto inverse = static_cast<float>(1 / sqrt(warp_sum(squares) / n + static_cast<double>(eps)));
        for_packs(rows, [&](std::int64_t c, int count) {
            Pack p = load_some(x, x_type, at + c, count, rows.wide);
            for (int j = 0; j < pack_size; ++j)
                if (j < count) p.v[j] = (p.v[j] - mean) * inverse * gamma[c + j] + (rms ? 0.0f : beta[c + j]);
            store_some(y, y_type, at + c, count, rows.wide, p);
        });
        if (lane_of() == 0) {
            if (!rms) means[r] = mean;
            inverses[r] = inverse;
        }
    }
}

/// dx may be dy: each lane writes what it alone has read.
__global__ void __launch_bounds__(threads)
    backward_kernel(Rows rows, bool rms, const void* x, DType x_type, const void* dy, DType dy_type, void* dx,
                    DType dx_type, const float* gamma, const float* means, const float* inverses) {
    const auto n = static_cast<double>(rows.columns);
    for (std::int64_t r = rows.first(); r < rows.rows; r += rows.step()) {
        const std::int64_t at = r * rows.columns;
        const float mean = rms ? 0.0f : means[r], inverse = inverses[r];
        double sum = 0, product = 0;
        for_packs(rows, [&](std::int64_t c, int count) {
            const Pack p = load_some(x, x_type, at + c, count, rows.wide),
                       d = load_some(dy, dy_type, at + c, count, rows.wide);
            for (int j = 0; j < pack_size; ++j) {
                const float g = j < count ? d.v[j] * gamma[c + j] : 0.0f;
                sum += static_cast<double>(g);
                product += static_cast<double>(g * ((p.v[j] - mean) * inverse));
            }
        });
        const float base = rms ? 0.0f : static_cast<float>(warp_sum(sum) / n);
        const auto slope = static_cast<float>(warp_sum(product) / n);
        for_packs(rows, [&](std::int64_t c, int count) {
            const Pack p = load_some(x, x_type, at + c, count, rows.wide);
            Pack d = load_some(dy, dy_type, at + c, count, rows.wide);
            for (int j = 0; j < pack_size; ++j)
                if (j < count)
                    d.v[j] = inverse * (d.v[j] * gamma[c + j] - base - (p.v[j] - mean) * inverse * slope);
            store_some(dx, dx_type, at + c, count, rows.wide, d);
        });
    }
}

/// dγ and, but for RMSNorm, dβ.
template <bool rms>
struct ParameterGradients {
    static constexpr int inputs = 2, terms = rms ? 1 : 2;
    const float *means, *inverses;
    __device__ void operator()(std::int64_t row, std::int64_t, float dy, float x, float, double* sum) const {
        const float mean = rms ? 0.0f : means[row];
        sum[0] += static_cast<double>(dy * ((x - mean) * inverses[row]));
        if constexpr (!rms) sum[1] += static_cast<double>(dy);
    }
};

template <class... Operands>
Rows rows_of(std::int64_t rows, std::int64_t columns, const Operands&... operands) {
    return {rows, columns, columns % pack_size == 0 && aligned(static_cast<const void*>(operands.data)...)};
}

Grid grid_of(const CudaDevice& device, const Rows& rows) {
    return covering(rows.rows, warps, 16 * device.multiprocessors());
}

std::int64_t rows_in(const View& x, std::int64_t columns) {
    return columns == 0 ? 0 : x.count() / columns;
}

}  // namespace

void CudaOps::layernorm_forward(const LayerNorm& args) {
    const std::int64_t columns = args.gamma.count(), rows = rows_in(args.x, columns);
    const float* gamma = floats(args.gamma, columns, "layernorm gamma");
    const float* beta = floats(args.beta, columns, "layernorm beta");
    const Real x = real(args.x, rows * columns, "layernorm"), y = real(args.y, rows * columns, "layernorm");
    float* means = floats(args.mean, rows, "layernorm mean");
    float* inverses = floats(args.inv_std, rows, "layernorm inv_std");
    if (rows == 0) return;
    const Rows all = rows_of(rows, columns, x, y);
    launch(device_.stream(), grid_of(device_, all), forward_kernel, all, false, x.data, x.type, y.data,
           y.type, gamma, beta, args.eps, means, inverses);
}

void CudaOps::layernorm_backward(const LayerNorm& args, View dy, View dx, View d_gamma, View d_beta,
                                 bool accumulate) {
    const std::int64_t columns = args.gamma.count(), rows = rows_in(args.x, columns),
                       elements = rows * columns;
    const float* gamma = floats(args.gamma, columns, "layernorm gamma");
    const Real x = real(args.x, elements, "layernorm"), from = real(dy, elements, "layernorm backward"),
               to = real(dx, elements, "layernorm backward");
    const float* means = floats(args.mean, rows, "layernorm mean");
    const float* inverses = floats(args.inv_std, rows, "layernorm inv_std");
    float* gamma_to = floats(d_gamma, columns, "layernorm d_gamma");
    float* beta_to = floats(d_beta, columns, "layernorm d_beta");
    if (columns == 0) return;
    const ColumnPlan plan(rows, columns);
    const double* parts =
        column_sums(device_, scratch_, plan, ParameterGradients<false>{means, inverses}, {from, x});
    store_columns(device_, plan, parts, 2, gamma_to, beta_to, accumulate);
    if (rows == 0) return;
    const Rows all = rows_of(rows, columns, x, from, to);
    launch(device_.stream(), grid_of(device_, all), backward_kernel, all, false, x.data, x.type, from.data,
           from.type, to.data, to.type, gamma, means, inverses);
}

void CudaOps::rmsnorm_forward(const RmsNorm& args) {
    const std::int64_t columns = args.gamma.count(), rows = rows_in(args.x, columns);
    const float* gamma = floats(args.gamma, columns, "rmsnorm gamma");
    const Real x = real(args.x, rows * columns, "rmsnorm"), y = real(args.y, rows * columns, "rmsnorm");
    float* inverses = floats(args.inv_rms, rows, "rmsnorm inv_rms");
    if (rows == 0) return;
    const Rows all = rows_of(rows, columns, x, y);
    launch(device_.stream(), grid_of(device_, all), forward_kernel, all, true, x.data, x.type, y.data, y.type,
           gamma, static_cast<const float*>(nullptr), args.eps, static_cast<float*>(nullptr), inverses);
}

void CudaOps::rmsnorm_backward(const RmsNorm& args, View dy, View dx, View d_gamma, bool accumulate) {
    const std::int64_t columns = args.gamma.count(), rows = rows_in(args.x, columns),
                       elements = rows * columns;
    const float* gamma = floats(args.gamma, columns, "rmsnorm gamma");
    const Real x = real(args.x, elements, "rmsnorm"), from = real(dy, elements, "rmsnorm backward"),
               to = real(dx, elements, "rmsnorm backward");
    const float* inverses = floats(args.inv_rms, rows, "rmsnorm inv_rms");
    float* gamma_to = floats(d_gamma, columns, "rmsnorm d_gamma");
    if (columns == 0) return;
    const ColumnPlan plan(rows, columns);
    const double* parts =
        column_sums(device_, scratch_, plan, ParameterGradients<true>{nullptr, inverses}, {from, x});
    store_columns(device_, plan, parts, 1, gamma_to, nullptr, accumulate);
    if (rows == 0) return;
    const Rows all = rows_of(rows, columns, x, from, to);
    launch(device_.stream(), grid_of(device_, all), backward_kernel, all, true, x.data, x.type, from.data,
           from.type, to.data, to.type, gamma, static_cast<const float*>(nullptr), inverses);
}

}  // namespace trireme::cuda
