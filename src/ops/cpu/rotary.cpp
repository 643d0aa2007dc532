// Rotary positions (Su et al. 2021).
#include <cmath>
#include <string>

#include "ops/cpu/cpu_ops.hpp"
#include "ops/cpu/math.hpp"
#include "ops/cpu/parallel.hpp"
#include "ops/cpu/reals.hpp"

namespace trireme::cpu {
namespace {

/// cos and sin of position·frequency[i] turns. The whole turns go in double: float32 would leave nothing of
/// the fraction at large positions.
void cosines_and_sines(double position, const double* frequency, float* cosines, float* sines,
                       std::int64_t n) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) {
        const double turns = position * frequency[i];
        const double rest = turns - std::floor(turns);
        const double before = rest < 0.25 ? rest + 0.75 : rest - 0.25;  // sin a = cos(a - a quarter turn)
        cosines[i] = cos_turn(static_cast<float>(rest));
        sines[i] = cos_turn(static_cast<float>(before));
    }
}

/// (u, v) = (a·cos - b·sin, a·sin + b·cos); u may be a and v may be b.
void turn(const float* a, const float* b, const float* cosines, const float* sines, float* u, float* v,
          std::int64_t n) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) {
        const float first = a[i] * cosines[i] - b[i] * sines[i];
        v[i] = a[i] * sines[i] + b[i] * cosines[i];
        u[i] = first;
    }
}

/// The rows of one position, pairs [pair, pair + n) of each head.
void turn_heads(const Reals& x, const Reals& y, std::int64_t row, std::int64_t heads, std::int64_t d,
                std::int64_t pair, std::int64_t n, const float* cosines, const float* sines) {
    Stretch a, b, u, v;
    for (std::int64_t head = 0; head < heads; ++head) {
        const std::int64_t low = (row * heads + head) * d + pair, high = low + d / 2;
        turn(x.load(low, n, a), x.load(high, n, b), cosines, sines, y.place(low, u), y.place(high, v), n);
        y.store(low, n, u);
        y.store(high, n, v);
    }
}

}  // namespace

void CpuOps::rotate(View x, std::int64_t first, float base, bool back, View y) {
    if (x.shape.rank() != 4)
        throw failure("cpu rotate: " + x.shape.text() + " where [n, t, heads, d] is expected");
    const std::int64_t t = x.shape[1], heads = x.shape[2], d = x.shape[3], rows = x.shape[0] * t;
    if (d % 2 != 0)
        throw failure("cpu rotate: heads of " + std::to_string(d) + " elements do not make pairs");
    const Reals from(x, x.count(), "rotate"), to(y, x.count(), "rotate");
    if (x.count() == 0) return;
    constexpr double whole_turn = 6.283185307179586;
    const std::int64_t pairs = d / 2;
    double* frequency = scratch_.reserve_of<double>(static_cast<std::size_t>(pairs));
    for (std::int64_t i = 0; i < pairs; ++i)
        frequency[i] =
            (back ? -1 : 1) / whole_turn *
            std::pow(static_cast<double>(base), -2.0 * static_cast<double>(i) / static_cast<double>(d));
    for_blocks(threads_, x.count(), rows, row_block(heads * d),
               [=, &from, &to](std::int64_t, std::int64_t begin, std::int64_t end) {
                   Stretch cosines, sines;
                   for (std::int64_t row = begin; row < end; ++row)
                       for (std::int64_t pair = 0; pair < pairs; pair += stretch) {
                           const std::int64_t n = std::min(stretch, pairs - pair);
                           cosines_and_sines(static_cast<double>(first + row % t), frequency + pair, cosines,
                                             sines, n);
                           turn_heads(from, to, row, heads, d, pair, n, cosines, sines);
                       }
               });
}

}  // namespace trireme::cpu
