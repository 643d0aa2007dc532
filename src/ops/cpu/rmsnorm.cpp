// RMSNorm (Zhang and Sennrich 2019), one row at a time.
//   x̂ = x/√(mean(x²) + ε),  y = γ·x̂
//   dx = (g - x̂·mean(g·x̂))/√(mean(x²) + ε)  with g = γ·dy;  dγ = Σ_rows dy·x̂
// A row is read twice, in stretches: it may be longer than any buffer that we want.
#include <cmath>

#include "ops/cpu/checks.hpp"
#include "ops/cpu/columns.hpp"
#include "ops/cpu/cpu_ops.hpp"
#include "ops/cpu/lanes.hpp"
#include "ops/cpu/reals.hpp"

namespace trireme::cpu {
namespace {

/// Σ x² of the row that starts at element `at`. [columns]
double row_squares(const Reals& x, std::int64_t at, std::int64_t columns) {
    Stretch buffer;
    double sum = 0;
    for (std::int64_t c = 0; c < columns; c += stretch) {
        const std::int64_t n = std::min(stretch, columns - c);
        sum += square_sum(x.load(at + c, n, buffer), 1.0F, n);
    }
    return sum;
}

void normalize(const float* x, float inv_rms, const float* gamma, float* y, std::int64_t n) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * inv_rms * gamma[i];
}

/// dγ += dy·x̂ for n <= stretch elements of a row; returns their Σ g·x̂.
double add_parameter_gradients(const float* __restrict x, const float* __restrict dy,
                               const float* __restrict gamma, float inv_rms, float* __restrict d_gamma,
                               std::int64_t n) {
    Stretch products;
    for (std::int64_t i = 0; i < n; ++i) {
        const float product = dy[i] * (x[i] * inv_rms);
        d_gamma[i] += product;
        products[i] = gamma[i] * product;
    }
    return double_sum(products, n);
}

/// dx may be dy.
void gradient(const float* x, const float* dy, const float* gamma, float inv_rms, float slope, float* dx,
              std::int64_t n) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) dx[i] = inv_rms * (dy[i] * gamma[i] - x[i] * inv_rms * slope);
}

std::int64_t rows_of(const RmsNorm& args) {
    const std::int64_t columns = args.gamma.count();
    return columns == 0 ? 0 : args.x.count() / columns;
}

}  // namespace

void CpuOps::rmsnorm_forward(const RmsNorm& args) {
    const std::int64_t columns = args.gamma.count(), rows = rows_of(args);
    const float* gamma = floats(args.gamma, columns, "rmsnorm gamma");
    const Reals x(args.x, rows * columns, "rmsnorm"), y(args.y, rows * columns, "rmsnorm");
    float* inv_rms = floats(args.inv_rms, rows, "rmsnorm inv_rms");
    const auto eps = static_cast<double>(args.eps);
    for_blocks(threads_, rows * columns, rows, row_block(columns),
               [=](std::int64_t, std::int64_t begin, std::int64_t end) {
                   Stretch inputs, results;
                   for (std::int64_t r = begin; r < end; ++r) {
                       const std::int64_t at = r * columns;
                       const double mean = row_squares(x, at, columns) / static_cast<double>(columns);
                       inv_rms[r] = static_cast<float>(1 / std::sqrt(mean + eps));
                       for (std::int64_t c = 0; c < columns; c += stretch) {
                           const std::int64_t n = std::min(stretch, columns - c);
                           float* to = y.place(at + c, results);
                           normalize(x.load(at + c, n, inputs), inv_rms[r], gamma + c, to, n);
                           y.store(at + c, n, to);
                       }
                   }
               });
}

void CpuOps::rmsnorm_backward(const RmsNorm& args, View dy, View dx, View d_gamma, bool accumulate) {
    const std::int64_t columns = args.gamma.count(), rows = rows_of(args), elements = rows * columns;
    const float* gamma = floats(args.gamma, columns, "rmsnorm gamma");
    const Reals x(args.x, elements, "rmsnorm"), from(dy, elements, "rmsnorm backward"),
        to(dx, elements, "rmsnorm backward");
    const float* inv_rms = floats(args.inv_rms, rows, "rmsnorm inv_rms");
    float* sums_to = floats(d_gamma, columns, "rmsnorm d_gamma");
    if (columns == 0) return;
    const ColumnPlan plan(rows, columns);
    const std::int64_t rows_per_line = plan.lanes / columns;
    const double* sums =
        column_sums<1>(threads_, plan, scratch_, [&](std::int64_t begin, std::int64_t end, float* run) {
            Stretch inputs, gradients;
            for (std::int64_t r = begin / columns; r < end / columns; ++r) {
                const std::int64_t at = r * columns;
                float* lane = run + r % rows_per_line * columns;
                double product = 0;
                for (std::int64_t c = 0; c < columns; c += stretch) {
                    const std::int64_t n = std::min(stretch, columns - c);
                    product +=
                        add_parameter_gradients(x.load(at + c, n, inputs), from.load(at + c, n, gradients),
                                                gamma + c, inv_rms[r], lane + c, n);
                }
                const auto slope = static_cast<float>(product / static_cast<double>(columns));
                for (std::int64_t c = 0; c < columns; c += stretch) {
                    const std::int64_t n = std::min(stretch, columns - c);
                    const float* dy_piece = from.load(at + c, n, gradients);
                    float* dx_piece = to.place(at + c, gradients);
                    gradient(x.load(at + c, n, inputs), dy_piece, gamma + c, inv_rms[r], slope, dx_piece, n);
                    to.store(at + c, n, dx_piece);
                }
            }
        });
    store_sums(sums, sums_to, columns, accumulate);
}

}  // namespace trireme::cpu
