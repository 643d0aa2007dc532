// SwiGLU's gate (Shazeer 2020) and rotary positions (Su et al. 2021).
//   y = silu(a)·b with silu(a) = a·σ(a);  silu'(a) = σ(a)·(1 + a·(1 - σ(a)))
#include "ops/cpu/math.hpp"
#include "ops/cuda/cuda_ops.hpp"
#include "ops/cuda/map.cuh"

namespace trireme::cuda {
namespace {

struct Gate {
    static constexpr int inputs = 2;
    __device__ float operator()(std::int64_t, std::int64_t, float a, float b, float) const {
        const float e = expf(-fabsf(a));
        return a * ((a < 0 ? e : 1.0f) / (1.0f + e)) * b;
    }
};

/// da and db may be any of a, b and dy. The two sides of the sigmoid are computed apart: 1 - σ(a) would
/// cancel.
__global__ void __launch_bounds__(threads)
    gate_backward_kernel(std::int64_t n, bool wide, const void* a, DType a_type, const void* b, DType b_type,
                         const void* dy, DType dy_type, void* da, DType da_type, void* db, DType db_type) {
    for (std::int64_t i = global_thread() * pack_size; i < n; i += all_threads() * pack_size) {
        const int count = some_of(i, n);
        Pack at = load_some(a, a_type, i, count, wide), factor = load_some(b, b_type, i, count, wide);
        const Pack gradient = load_some(dy, dy_type, i, count, wide);
#pragma unroll
        for (int j = 0; j < pack_size; ++j) {
            const float x = at.v[j], e = expf(-fabsf(x)), share = 1.0f / (1.0f + e);
            const float s = (x < 0 ? e : 1.0f) * share, rest = (x < 0 ? 1.0f : e) * share;
            at.v[j] = gradient.v[j] * factor.v[j] * s * (1.0f + x * rest);
            factor.v[j] = gradient.v[j] * (x * s);
        }
        store_some(da, da_type, i, count, wide, at);
        store_some(db, db_type, i, count, wide, factor);
    }
}

/// A thread for each pair (i, i + d/2) of a row, in all heads. The whole turns go in double: float32 would
/// leave nothing of the fraction at large positions.
__global__ void __launch_bounds__(threads)
    rotate_kernel(const void* x, DType x_type, void* y, DType y_type, std::int64_t rows, std::int64_t t,
                  std::int64_t heads, std::int64_t d, std::int64_t first, double log_base, double sign) {
    constexpr double whole_turn = 6.283185307179586;
    const std::int64_t pairs = d / 2;
    for (std::int64_t i = global_thread(); i < rows * pairs; i += all_threads()) {
        const std::int64_t row = i / pairs, pair = i % pairs;
        const double frequency =
            sign / whole_turn * exp(-2.0 * static_cast<double>(pair) / static_cast<double>(d) * log_base);
        const double turns = static_cast<double>(first + row % t) * frequency;
        const double rest = turns - floor(turns);
        const double before = rest < 0.25 ? rest + 0.75 : rest - 0.25;  // sin a = cos(a - a quarter turn)
        const float c = cpu::cos_turn(static_cast<float>(rest)),
                    s = cpu::cos_turn(static_cast<float>(before));
        for (std::int64_t head = 0; head < heads; ++head) {
            const std::int64_t low = (row * heads + head) * d + pair, high = low + pairs;
            const float u = load(x, x_type, low), v = load(x, x_type, high);
            store(y, y_type, low, u * c - v * s);
            store(y, y_type, high, u * s + v * c);
        }
    }
}

}  // namespace

void CudaOps::gate_forward(View a, View b, View y) {
    const std::int64_t n = y.count();
    run_map(device_, Gate{}, n, real(y, n, "gate"), {real(a, n, "gate"), real(b, n, "gate")});
}

void CudaOps::gate_backward(View a, View b, View dy, View da, View db) {
    const std::int64_t n = dy.count();
    const Real at = real(a, n, "gate backward"), factor = real(b, n, "gate backward"),
               from = real(dy, n, "gate backward"), to_a = real(da, n, "gate backward"),
               to_b = real(db, n, "gate backward");
    if (n == 0) return;
    const bool wide =
        aligned(static_cast<const void*>(at.data), factor.data, from.data, to_a.data, to_b.data);
    launch(device_.stream(), covering(n, threads * pack_size, 16 * device_.multiprocessors()),
           gate_backward_kernel, n, wide, at.data, at.type, factor.data, factor.type, from.data, from.type,
           to_a.data, to_a.type, to_b.data, to_b.type);
}

void CudaOps::rotate(View x, std::int64_t first, float base, bool back, View y) {
    if (x.shape.rank() != 4) throw refusal("rotate", x.shape.text() + " where [n, t, heads, d] is expected");
    const std::int64_t t = x.shape[1], heads = x.shape[2], d = x.shape[3], rows = x.shape[0] * t;
    if (d % 2 != 0) throw refusal("rotate", "heads of " + std::to_string(d) + " elements do not make pairs");
    const Real from = real(x, x.count(), "rotate"), to = real(y, x.count(), "rotate");
    if (x.count() == 0) return;
    launch(device_.stream(), covering(rows * d / 2, threads, 64 * device_.multiprocessors()), rotate_kernel,
           from.data, from.type, to.data, to.type, rows, t, heads, d, first,
           std::log(static_cast<double>(base)), back ? -1.0 : 1.0);
}

}  // namespace trireme::cuda
