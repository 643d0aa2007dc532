// Layer normalization (Ba, Kiros and Hinton 2016), one row at a time.
//   x̂ = (x - μ)/√(σ² + ε),  y = γ·x̂ + β
//   dx = (g - mean(g) - x̂·mean(g·x̂))/√(σ² + ε)  with g = γ·dy;  dγ = Σ_rows dy·x̂,  dβ = Σ_rows dy
#include <cmath>

#include "ops/cpu/checks.hpp"
#include "ops/cpu/columns.hpp"
#include "ops/cpu/cpu_ops.hpp"
#include "ops/cpu/lanes.hpp"

namespace trireme::cpu {
namespace {

/// Elements added in float before the sum goes on in double.
constexpr std::int64_t run_length = 512;

struct TwoSums {
    double first = 0, second = 0;
};

/// Sums of two terms over a row; term(i, a, b) adds eight elements to a and b, rest(i, sums) a single one.
template <class Term, class Rest>
TwoSums row_sums(std::int64_t n, const Term& term, const Rest& rest) {
    TwoSums sums;
    std::int64_t i = 0;
    while (i + 16 <= n) {
        Float8 first[2] = {}, second[2] = {};
        for (const std::int64_t end = std::min(n, i + run_length); i + 16 <= end; i += 16) {
            term(i, first[0], second[0]);
            term(i + 8, first[1], second[1]);
        }
        sums.first += total(first[0] + first[1]);
        sums.second += total(second[0] + second[1]);
    }
    for (; i < n; ++i) rest(i, sums);
    return sums;
}

/// Mean and variance: a first pass for a shift near the mean, a second around it.
void row_moments(const float* x, std::int64_t n, double& mean, double& variance) {
    const auto count = static_cast<double>(n);
    const TwoSums plain = row_sums(
        n, [x](std::int64_t i, Float8& a, Float8&) { a += load8(x + i); },
        [x](std::int64_t i, TwoSums& sums) { sums.first += static_cast<double>(x[i]); });
    const auto shift = static_cast<float>(plain.first / count);
    const TwoSums shifted = row_sums(
        n,
        [x, shift](std::int64_t i, Float8& a, Float8& b) {
            const Float8 d = load8(x + i) - shift;
            a += d;
            b += d * d;
        },
        [x, shift](std::int64_t i, TwoSums& sums) {
            const auto d = static_cast<double>(x[i] - shift);
            sums.first += d;
            sums.second += d * d;
        });
    const double offset = shifted.first / count;
    mean = static_cast<double>(shift) + offset;
    variance = std::max(0.0, shifted.second / count - offset * offset);
    if (std::isnan(shifted.second)) variance = shifted.second;
}

void normalize_row(const float* __restrict x, float mean, float inv_std, const float* __restrict gamma,
                   const float* __restrict beta, float* __restrict y, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * inv_std * gamma[i] + beta[i];
}

/// dγ += dy·x̂, dβ += dy for one row.
void add_parameter_gradients(const float* __restrict x, const float* __restrict dy, float mean, float inv_std,
                             float* __restrict d_gamma, float* __restrict d_beta, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
        d_gamma[i] += dy[i] * ((x[i] - mean) * inv_std);
        d_beta[i] += dy[i];
    }
}

void gradient_row(const float* x, const float* dy, const float* gamma, float mean, float inv_std, float* dx,
                  std::int64_t n) {
    const TwoSums sums = row_sums(
        n,
        [=](std::int64_t i, Float8& a, Float8& b) {
            const Float8 g = load8(dy + i) * load8(gamma + i);
            a += g;
            b += g * ((load8(x + i) - mean) * inv_std);
        },
        [=](std::int64_t i, TwoSums& s) {
            const float g = dy[i] * gamma[i];
            s.first += static_cast<double>(g);
            s.second += static_cast<double>(g * ((x[i] - mean) * inv_std));
        });
    const auto base = static_cast<float>(sums.first / static_cast<double>(n));
    const auto slope = static_cast<float>(sums.second / static_cast<double>(n));
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i)
        dx[i] = inv_std * (dy[i] * gamma[i] - base - (x[i] - mean) * inv_std * slope);
}

std::int64_t rows_of(const LayerNorm& args) {
    const std::int64_t columns = args.gamma.count();
    return columns == 0 ? 0 : args.x.count() / columns;
}

}  // namespace

void CpuOps::layernorm_forward(const LayerNorm& args) {
    const std::int64_t columns = args.gamma.count(), rows = rows_of(args);
    const float* gamma = floats(args.gamma, columns, "layernorm gamma");
    const float* beta = floats(args.beta, columns, "layernorm beta");
    const Reals x(args.x, rows * columns, "layernorm"), y(args.y, rows * columns, "layernorm");
    float* means = floats(args.mean, rows, "layernorm mean");
    float* inv_stds = floats(args.inv_std, rows, "layernorm inv_std");
    const auto eps = static_cast<double>(args.eps);
    const std::int64_t widened = x.buffer_size(columns);
    const ThreadBuffers buffers(lane_scratch_, threads_, widened + y.buffer_size(columns));
    for_blocks(threads_, rows * columns, rows, row_block(columns),
               [&](std::int64_t, std::int64_t begin, std::int64_t end) {
                   float* buffer = buffers.mine();
                   for (std::int64_t r = begin; r < end; ++r) {
                       const float* from = x.load(r * columns, columns, buffer);
                       float* to = y.place(r * columns, buffer + widened);
                       double mean = 0, variance = 0;
                       row_moments(from, columns, mean, variance);
                       means[r] = static_cast<float>(mean);
                       inv_stds[r] = static_cast<float>(1 / std::sqrt(variance + eps));
                       normalize_row(from, means[r], inv_stds[r], gamma, beta, to, columns);
                       y.store(r * columns, columns, to);
                   }
               });
}

void CpuOps::layernorm_backward(const LayerNorm& args, View dy, View dx, View d_gamma, View d_beta,
                                bool accumulate) {
    const std::int64_t columns = args.gamma.count(), rows = rows_of(args), elements = rows * columns;
    const float* gamma = floats(args.gamma, columns, "layernorm gamma");
    const Reals x(args.x, elements, "layernorm"), from(dy, elements, "layernorm backward"),
        to(dx, elements, "layernorm backward");
    const float* mean = floats(args.mean, rows, "layernorm mean");
    const float* inv_std = floats(args.inv_std, rows, "layernorm inv_std");
    if (columns == 0) return;
    const ColumnPlan plan(rows, columns);
    const std::int64_t rows_per_line = plan.lanes / columns;
    const std::int64_t widened = x.buffer_size(columns);
    const ThreadBuffers buffers(lane_scratch_, threads_,
                                widened + std::max(from.buffer_size(columns), to.buffer_size(columns)));
    const double* sums =
        column_sums<2>(threads_, plan, scratch_, [&](std::int64_t begin, std::int64_t end, float* run) {
            float* buffer = buffers.mine();
            for (std::int64_t r = begin / columns; r < end / columns; ++r) {
                const std::int64_t at = r * columns, lane = r % rows_per_line * columns;
                const float* inputs = x.load(at, columns, buffer);
                const float* gradients = from.load(at, columns, buffer + widened);
                float* results = to.place(at, buffer + widened);
                add_parameter_gradients(inputs, gradients, mean[r], inv_std[r], run + lane,
                                        run + plan.lanes + lane, columns);
                gradient_row(inputs, gradients, gamma, mean[r], inv_std[r], results, columns);
                to.store(at, columns, results);
            }
        });
    store_sums(sums, floats(d_gamma, columns, "layernorm d_gamma"), columns, accumulate);
    store_sums(sums + columns, floats(d_beta, columns, "layernorm d_beta"), columns, accumulate);
}

}  // namespace trireme::cpu
