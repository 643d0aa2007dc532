// Batch normalization (Ioffe and Szegedy 2015) over channels-last rows.
//   x̂ = (x - μ)/√(σ² + ε),  y = act(γ·x̂ + β)
//   dx = γ/√(σ² + ε) · (dy - Σdy/N - x̂·Σ(dy·x̂)/N)
#include <cmath>

#include "ops/cpu/checks.hpp"
#include "ops/cpu/columns.hpp"
#include "ops/cpu/cpu_ops.hpp"

namespace trireme::cpu {
namespace {

/// Mean and sum of squared deviations per channel over `rows` rows. [C] each
struct Moments {
    double* mean;
    double* deviations;
    double rows;
};

/// Adds the moments of further rows (Chan, Golub and LeVeque 1979).
void merge(Moments& a, const Moments& b, std::int64_t channels) {
    const double rows = a.rows + b.rows, share = b.rows / rows, weight = a.rows * share;
    for (std::int64_t c = 0; c < channels; ++c) {
        const double difference = b.mean[c] - a.mean[c];
        a.mean[c] += difference * share;
        a.deviations[c] += b.deviations[c] + difference * difference * weight;
    }
    a.rows = rows;
}

void add_line(const float* __restrict x, float* __restrict sum, std::int64_t n) {
    for (std::int64_t l = 0; l < n; ++l) sum[l] += x[l];
}

void add_shifted_line(const float* __restrict x, const float* __restrict shift, float* __restrict sum,
                      float* __restrict squares, std::int64_t n) {
    for (std::int64_t l = 0; l < n; ++l) {
        const float d = x[l] - shift[l];
        sum[l] += d;
        squares[l] += d * d;
    }
}

/// Working memory of one chunk.
struct Work {
    Moments total, block;                        // [C] each
    float *sum, *shift, *shifted_sum, *squares;  // [lanes]

    static std::int64_t doubles(const ColumnPlan& plan) { return 4 * plan.columns + 2 * plan.lanes; }
    Work(const ColumnPlan& plan, double* memory)
        : total{memory, memory + plan.columns, 0},
          block{memory + 2 * plan.columns, memory + 3 * plan.columns, 0},
          sum(reinterpret_cast<float*>(memory + 4 * plan.columns)),
          shift(sum + plan.lanes),
          shifted_sum(shift + plan.lanes),
          squares(shifted_sum + plan.lanes) {}
};

/// Moments of one block that is in first-level cache: a first pass for a shift near the mean, a second around
/// it.
void block_moments(const ColumnPlan& plan, const Reals& x, std::int64_t begin, std::int64_t end, Work& work) {
    const auto rows = static_cast<double>((end - begin) / plan.columns);
    std::fill_n(work.sum, plan.lanes, 0.0F);
    std::fill_n(work.shifted_sum, 2 * plan.lanes, 0.0F);
    for_pieces(any_converted(x), plan, begin, end, [&](std::int64_t at, std::int64_t n) {
        Stretch buffer;
        const float* values = x.load(at, n, buffer);
        for_lines(plan, at, n, [&](std::int64_t i, std::int64_t lane, std::int64_t lanes) {
            add_line(values + i, work.sum + lane, lanes);
        });
    });
    for (std::int64_t first = plan.columns; first < plan.lanes; first += plan.columns)
        add_line(work.sum + first, work.sum, plan.columns);
    const auto share = static_cast<float>(1 / rows);
    for (std::int64_t first = 0; first < plan.lanes; first += plan.columns)
        for (std::int64_t c = 0; c < plan.columns; ++c) work.shift[first + c] = work.sum[c] * share;
    for_pieces(any_converted(x), plan, begin, end, [&](std::int64_t at, std::int64_t n) {
        Stretch buffer;
        const float* values = x.load(at, n, buffer);
        for_lines(plan, at, n, [&](std::int64_t i, std::int64_t lane, std::int64_t lanes) {
            add_shifted_line(values + i, work.shift + lane, work.shifted_sum + lane, work.squares + lane,
                             lanes);
        });
    });
    std::fill_n(work.block.mean, 2 * plan.columns, 0.0);
    for (std::int64_t first = 0; first < plan.lanes; first += plan.columns)
        for (std::int64_t c = 0; c < plan.columns; ++c) {
            work.block.mean[c] += static_cast<double>(work.shifted_sum[first + c]);
            work.block.deviations[c] += static_cast<double>(work.squares[first + c]);
        }
    for (std::int64_t c = 0; c < plan.columns; ++c) {
        const double offset = work.block.mean[c] / rows;
        work.block.deviations[c] -= offset * work.block.mean[c];
        work.block.mean[c] = static_cast<double>(work.shift[c]) + offset;
    }
    work.block.rows = rows;
}

/// Moments of all rows, in scratch. There is at least one row.
Moments moments(int threads, const ColumnPlan& plan, Scratch& scratch, const Reals& x) {
    const std::int64_t stride = Work::doubles(plan);
    double* memory = scratch.reserve_of<double>(static_cast<std::size_t>(plan.chunks * stride));
    for_blocks(threads, plan.elements, plan.elements, plan.chunk,
               [&](std::int64_t number, std::int64_t begin, std::int64_t end) {
                   Work work(plan, memory + number * stride);
                   std::fill_n(work.total.mean, 2 * plan.columns, 0.0);
                   for (std::int64_t at = begin; at < end; at += plan.block) {
                       block_moments(plan, x, at, std::min(end, at + plan.block), work);
                       merge(work.total, work.block, plan.columns);
                   }
               });
    Moments all{memory, memory + plan.columns,
                static_cast<double>(std::min(plan.chunk, plan.elements) / plan.columns)};
    for (std::int64_t number = 1; number < plan.chunks; ++number) {
        Work work(plan, memory + number * stride);
        const std::int64_t begin = number * plan.chunk, end = std::min(plan.elements, begin + plan.chunk);
        work.total.rows = static_cast<double>((end - begin) / plan.columns);
        merge(all, work.total, plan.columns);
    }
    return all;
}

/// Per-lane factors of y = (x - center)·scale + offset. [lanes] each
struct Affine {
    float *center, *scale, *offset;

    Affine(const ColumnPlan& plan, Scratch& scratch)
        : center(scratch.reserve_of<float>(static_cast<std::size_t>(3 * plan.lanes))),
          scale(center + plan.lanes),
          offset(scale + plan.lanes) {}
};

void repeat(const ColumnPlan& plan, float* lanes) {
    for (std::int64_t first = plan.columns; first < plan.lanes; first += plan.columns)
        std::copy_n(lanes, plan.columns, lanes + first);
}

void normalize_line(const Affine& f, std::int64_t lane, const float* x, float* y, std::int64_t n, bool relu) {
    const float *center = f.center + lane, *scale = f.scale + lane, *offset = f.offset + lane;
    if (relu) {
#pragma omp simd
        for (std::int64_t l = 0; l < n; ++l) {
            const float z = (x[l] - center[l]) * scale[l] + offset[l];
            y[l] = z < 0 ? 0 : z;
        }
    } else {
#pragma omp simd
        for (std::int64_t l = 0; l < n; ++l) y[l] = (x[l] - center[l]) * scale[l] + offset[l];
    }
}

void normalize(int threads, const ColumnPlan& plan, const Affine& factors, const Reals& x, const Reals& y,
               bool relu) {
    repeat(plan, factors.center);
    repeat(plan, factors.scale);
    repeat(plan, factors.offset);
    for_blocks(threads, plan.elements, plan.elements, plan.block,
               [&](std::int64_t, std::int64_t begin, std::int64_t end) {
                   for_pieces(any_converted(x, y), plan, begin, end, [&](std::int64_t at, std::int64_t n) {
                       Stretch buffer;
                       float* to = y.place(at, buffer);
                       const float* from = x.load(at, n, buffer);
                       for_lines(plan, at, n, [&](std::int64_t i, std::int64_t lane, std::int64_t lanes) {
                           normalize_line(factors, lane, from + i, to + i, lanes, relu);
                       });
                       y.store(at, n, to);
                   });
               });
}

/// Σ dy and Σ dy·(x - center), dy taken through the relu where y is given.
void add_gradient_line(const float* __restrict x, const float* __restrict y, const float* __restrict dy,
                       const float* __restrict center, float* __restrict sum, float* __restrict product,
                       std::int64_t n) {
    if (y != nullptr) {
        for (std::int64_t l = 0; l < n; ++l) {
            const float g = y[l] > 0 ? dy[l] : 0;
            sum[l] += g;
            product[l] += g * (x[l] - center[l]);
        }
    } else {
        for (std::int64_t l = 0; l < n; ++l) {
            sum[l] += dy[l];
            product[l] += dy[l] * (x[l] - center[l]);
        }
    }
}

/// Per-lane factors of dx = scale·(dy - base - (x - center)·slope). [lanes] each
struct Gradient {
    float *center, *scale, *base, *slope;

    Gradient(const ColumnPlan& plan, Scratch& scratch)
        : center(scratch.reserve_of<float>(static_cast<std::size_t>(4 * plan.lanes))),
          scale(center + plan.lanes),
          base(scale + plan.lanes),
          slope(base + plan.lanes) {}
};

/// What backward reads, [rows, C] each; y is absent without a relu.
struct Inputs {
    Reals x, y, dy;
    bool converted() const { return any_converted(x, y, dy); }
};

/// A piece of it as floats.
struct InputPiece {
    const float *x, *y, *dy;  // [n] each, y null where it is absent
    Stretch buffer_x, buffer_y, buffer_dy;

    InputPiece(const Inputs& all, std::int64_t at, std::int64_t n)
        : x(all.x.load(at, n, buffer_x)),
          y(all.y ? all.y.load(at, n, buffer_y) : nullptr),
          dy(all.dy.load(at, n, buffer_dy)) {}
    const float* y_from(std::int64_t i) const { return y == nullptr ? nullptr : y + i; }
};

void gradient_line(const Gradient& f, std::int64_t lane, const float* x, const float* y, const float* dy,
                   float* dx, std::int64_t n) {
    const float *center = f.center + lane, *scale = f.scale + lane, *base = f.base + lane,
                *slope = f.slope + lane;
    if (y != nullptr) {
#pragma omp simd
        for (std::int64_t l = 0; l < n; ++l) {
            const float g = y[l] > 0 ? dy[l] : 0;
            dx[l] = scale[l] * (g - base[l] - (x[l] - center[l]) * slope[l]);
        }
    } else {
#pragma omp simd
        for (std::int64_t l = 0; l < n; ++l)
            dx[l] = scale[l] * (dy[l] - base[l] - (x[l] - center[l]) * slope[l]);
    }
}

bool uses_relu(const BatchNorm& args) {
    if (args.activation != Activation::none && args.activation != Activation::relu)
        throw failure("cpu batchnorm: " + std::string(name_of(args.activation)) +
                      " where none or relu is expected");
    return args.activation == Activation::relu;
}

std::int64_t rows_of(const BatchNorm& args) {
    const std::int64_t channels = args.gamma.count();
    return channels == 0 ? 0 : args.x.count() / channels;
}

}  // namespace

void CpuOps::batchnorm_forward(const BatchNorm& args, View running_mean, View running_var, float share,
                               bool accumulate) {
    const std::int64_t channels = args.gamma.count(), rows = rows_of(args);
    const float* gamma = floats(args.gamma, channels, "batchnorm gamma");
    const float* beta = floats(args.beta, channels, "batchnorm beta");
    float* mean = floats(args.mean, channels, "batchnorm mean");
    float* inv_std = floats(args.inv_std, channels, "batchnorm inv_std");
    float* average = optional_floats(running_mean, channels, "batchnorm running mean");
    float* variance = optional_floats(running_var, channels, "batchnorm running variance");
    const Reals x(args.x, rows * channels, "batchnorm"), y(args.y, rows * channels, "batchnorm");
    const bool relu = uses_relu(args);
    if (rows == 0) {
        for (float* result : {mean, inv_std}) std::fill_n(result, channels, 0.0F);
        if (!accumulate)
            for (float* result : {average, variance})
                if (result != nullptr) std::fill_n(result, channels, 0.0F);
        return;
    }
    const ColumnPlan plan(rows, channels);
    const Moments m = moments(threads_, plan, scratch_, x);
    const Affine factors(plan, lane_scratch_);
    const double unbiased = rows > 1 ? m.rows - 1 : 1;
    for (std::int64_t c = 0; c < channels; ++c) {
        const double inverse = 1 / std::sqrt(m.deviations[c] / m.rows + static_cast<double>(args.eps));
        mean[c] = static_cast<float>(m.mean[c]);
        inv_std[c] = static_cast<float>(inverse);
        factors.center[c] = mean[c];
        factors.scale[c] = static_cast<float>(inverse * static_cast<double>(gamma[c]));
        factors.offset[c] = beta[c];
        if (average != nullptr)
            average[c] =
                static_cast<float>(m.mean[c] * static_cast<double>(share)) + (accumulate ? average[c] : 0.0F);
        if (variance != nullptr)
            variance[c] = static_cast<float>(m.deviations[c] / unbiased * static_cast<double>(share)) +
                          (accumulate ? variance[c] : 0.0F);
    }
    normalize(threads_, plan, factors, x, y, relu);
}

void CpuOps::batchnorm_apply(const BatchNorm& args, View mean, View var) {
    const std::int64_t channels = args.gamma.count(), rows = rows_of(args);
    const float* gamma = floats(args.gamma, channels, "batchnorm gamma");
    const float* beta = floats(args.beta, channels, "batchnorm beta");
    const float* center = floats(mean, channels, "batchnorm mean");
    const float* variance = floats(var, channels, "batchnorm variance");
    const Reals x(args.x, rows * channels, "batchnorm"), y(args.y, rows * channels, "batchnorm");
    const bool relu = uses_relu(args);
    if (rows == 0) return;
    const ColumnPlan plan(rows, channels);
    const Affine factors(plan, lane_scratch_);
    for (std::int64_t c = 0; c < channels; ++c) {
        factors.center[c] = center[c];
        factors.scale[c] =
            static_cast<float>(static_cast<double>(gamma[c]) /
                               std::sqrt(static_cast<double>(variance[c]) + static_cast<double>(args.eps)));
        factors.offset[c] = beta[c];
    }
    normalize(threads_, plan, factors, x, y, relu);
}

void CpuOps::batchnorm_backward(const BatchNorm& args, View dy, View dx, View d_gamma, View d_beta,
                                bool accumulate) {
    const std::int64_t channels = args.gamma.count(), rows = rows_of(args), elements = rows * channels;
    const float* gamma = floats(args.gamma, channels, "batchnorm gamma");
    const float* mean = floats(args.mean, channels, "batchnorm mean");
    const float* inv_std = floats(args.inv_std, channels, "batchnorm inv_std");
    const Inputs inputs{Reals(args.x, elements, "batchnorm"),
                        uses_relu(args) ? Reals(args.y, elements, "batchnorm") : Reals(),
                        Reals(dy, elements, "batchnorm backward")};
    const Reals to(dx, elements, "batchnorm backward");
    if (channels == 0) return;
    const ColumnPlan plan(rows, channels);
    const Gradient factors(plan, lane_scratch_);
    std::copy_n(mean, channels, factors.center);
    repeat(plan, factors.center);
    double* sums =
        column_sums<2>(threads_, plan, scratch_, [&](std::int64_t begin, std::int64_t end, float* run) {
            for_pieces(inputs.converted(), plan, begin, end, [&](std::int64_t at, std::int64_t n) {
                const InputPiece from(inputs, at, n);
                for_lines(plan, at, n, [&](std::int64_t i, std::int64_t lane, std::int64_t lanes) {
                    add_gradient_line(from.x + i, from.y_from(i), from.dy + i, factors.center + lane,
                                      run + lane, run + plan.lanes + lane, lanes);
                });
            });
        });
    double* products = sums + channels;
    for (std::int64_t c = 0; c < channels; ++c) {
        const double inverse = static_cast<double>(inv_std[c]),
                     share = rows > 0 ? 1 / static_cast<double>(rows) : 0;
        products[c] *= inverse;  // Σ dy·x̂
        factors.scale[c] = static_cast<float>(static_cast<double>(gamma[c]) * inverse);
        factors.base[c] = static_cast<float>(sums[c] * share);
        factors.slope[c] = static_cast<float>(products[c] * inverse * share);
    }
    store_sums(products, floats(d_gamma, channels, "batchnorm d_gamma"), channels, accumulate);
    store_sums(sums, floats(d_beta, channels, "batchnorm d_beta"), channels, accumulate);
    for (float* lanes : {factors.scale, factors.base, factors.slope}) repeat(plan, lanes);
    for_blocks(
        threads_, elements, elements, plan.block, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
            for_pieces(inputs.converted() || any_converted(to), plan, begin, end,
                       [&](std::int64_t at, std::int64_t n) {
                           InputPiece from(inputs, at, n);
                           float* results = to.place(at, from.buffer_dy);
                           for_lines(plan, at, n, [&](std::int64_t i, std::int64_t lane, std::int64_t lanes) {
                               gradient_line(factors, lane, from.x + i, from.y_from(i), from.dy + i,
                                             results + i, lanes);
                           });
                           to.store(at, n, results);
                       });
        });
}

}  // namespace trireme::cpu
