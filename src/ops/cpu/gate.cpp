// SwiGLU's gate (Shazeer 2020): y = silu(a)·b with silu(a) = a·σ(a).
//   silu'(a) = σ(a)·(1 + a·(1 - σ(a)))
#include <algorithm>
#include <cmath>

#include "ops/cpu/cpu_ops.hpp"
#include "ops/cpu/math.hpp"
#include "ops/cpu/parallel.hpp"
#include "ops/cpu/reals.hpp"

namespace trireme::cpu {
namespace {

/// y may be a or b.
void gate(const float* a, const float* b, float* y, std::int64_t n) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) {
        const float e = exp_nonpositive(-std::fabs(a[i]));
        y[i] = a[i] * ((a[i] < 0 ? e : 1.0F) / (1.0F + e)) * b[i];
    }
}

/// da and db may be any of a, b and dy. The two sides of the sigmoid are computed apart: 1 - σ(a) would
/// cancel.
void gate_gradients(const float* a, const float* b, const float* dy, float* da, float* db, std::int64_t n) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) {
        const float at = a[i], factor = b[i], gradient = dy[i];
        const float e = exp_nonpositive(-std::fabs(at)), share = 1.0F / (1.0F + e);
        const float s = (at < 0 ? e : 1.0F) * share, rest = (at < 0 ? 1.0F : e) * share;
        da[i] = gradient * factor * (s * (1.0F + at * rest));
        db[i] = gradient * (at * s);
    }
}

/// body(first, n) for pieces of [0, n) that a Stretch holds, shared by threads.
template <class Body>
void in_stretches(int threads, std::int64_t n, const Body& body) {
    for_blocks(threads, n, n, element_block, [&body](std::int64_t, std::int64_t begin, std::int64_t end) {
        for (std::int64_t at = begin; at < end; at += stretch) body(at, std::min(stretch, end - at));
    });
}

}  // namespace

void CpuOps::gate_forward(View a, View b, View y) {
    const std::int64_t n = y.count();
    const Reals gates(a, n, "gate"), values(b, n, "gate"), to(y, n, "gate");
    in_stretches(threads_, n, [=](std::int64_t at, std::int64_t count) {
        Stretch buffer_a, buffer_b;
        float* results = to.place(at, buffer_a);
        gate(gates.load(at, count, buffer_a), values.load(at, count, buffer_b), results, count);
        to.store(at, count, results);
    });
}

void CpuOps::gate_backward(View a, View b, View dy, View da, View db) {
    const std::int64_t n = dy.count();
    const Reals gates(a, n, "gate backward"), values(b, n, "gate backward"), from(dy, n, "gate backward"),
        to_a(da, n, "gate backward"), to_b(db, n, "gate backward");
    in_stretches(threads_, n, [=](std::int64_t at, std::int64_t count) {
        Stretch buffer_a, buffer_b, buffer_dy;
        float* results_a = to_a.place(at, buffer_a);
        float* results_b = to_b.place(at, buffer_b);
        gate_gradients(gates.load(at, count, buffer_a), values.load(at, count, buffer_b),
                       from.load(at, count, buffer_dy), results_a, results_b, count);
        to_a.store(at, count, results_a);
        to_b.store(at, count, results_b);
    });
}

}  // namespace trireme::cpu
