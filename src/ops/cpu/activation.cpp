// Activations: relu and derivatives that need the output alone in loops of our own, the others through the
// library.
#include "ops/cpu/checks.hpp"
#include "ops/cpu/cpu_ops.hpp"
#include "ops/cpu/parallel.hpp"

namespace trireme::cpu {
namespace {

void relu(const float* x, float* y, std::int64_t n) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] < 0 ? 0 : x[i];  // keeps NaN
}

/// dx = dy · act'(x), told from y. [n]
void backward_from_output(Activation kind, const float* y, const float* dy, float* dx, std::int64_t n) {
    switch (kind) {
        case Activation::relu:
#pragma omp simd
            for (std::int64_t i = 0; i < n; ++i) dx[i] = y[i] > 0 ? dy[i] : 0;
            return;
        case Activation::tanh:  // 1 - y²
#pragma omp simd
            for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] * ((1 - y[i]) * (1 + y[i]));
            return;
        case Activation::sigmoid:  // y(1 - y)
#pragma omp simd
            for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] * (y[i] * (1 - y[i]));
            return;
        default:
#pragma omp simd
            for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i];
    }
}

dnnl::memory::desc flat(std::int64_t n) {
    return {{n}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::a};
}

}  // namespace

void CpuOps::eltwise(Activation kind, std::int64_t n, float* x, float* y) {
    PlanKey key{.verb = Verb::eltwise, .window = {}, .activation = kind};
    key.window.n = n;
    Plan& cached = plan(key, "activation", [&] {
        Plan built;
        const dnnl::memory::desc desc = flat(n);
        const auto primitive = forward_eltwise(library_, kind, desc);
        const int from = built.operand(library_, desc, 0), to = built.operand(library_, desc, 1);
        built.step(library_, dnnl::eltwise_forward(primitive), primitive.scratchpad_desc(),
                   {{DNNL_ARG_SRC, from}, {DNNL_ARG_DST, to}});
        return built;
    });
    run(cached, {x, y});
}

void CpuOps::eltwise_backward(Activation kind, std::int64_t n, float* x, float* dy, float* dx) {
    PlanKey key{.verb = Verb::eltwise_backward, .window = {}, .activation = kind};
    key.window.n = n;
    Plan& cached = plan(key, "derivative of the activation", [&] {
        Plan built;
        const dnnl::memory::desc desc = flat(n);
        const auto primitive = backward_eltwise(library_, kind, desc);
        const int source = built.operand(library_, desc, 0), from = built.operand(library_, desc, 1),
                  to = built.operand(library_, desc, 2);
        built.step(library_, dnnl::eltwise_backward(primitive), primitive.scratchpad_desc(),
                   {{DNNL_ARG_SRC, source}, {DNNL_ARG_DIFF_DST, from}, {DNNL_ARG_DIFF_SRC, to}});
        return built;
    });
    run(cached, {x, dy, dx});
}

void CpuOps::activation_forward(Activation kind, View x, View y) {
    const std::int64_t n = y.count();
    float* from = floats(x, n, "activation");
    float* to = floats(y, n, "activation");
    if (n == 0) return;
    if (kind == Activation::none) return copy(x, y);
    if (kind != Activation::relu) return eltwise(kind, n, from, to);
    for_blocks(threads_, n, n, element_block, [=](std::int64_t, std::int64_t begin, std::int64_t end) {
        relu(from + begin, to + begin, end - begin);
    });
}

void CpuOps::activation_backward(Activation kind, View x, View y, View dy, View dx) {
    const std::int64_t n = dx.count();
    float* from = floats(dy, n, "activation backward");
    float* to = floats(dx, n, "activation backward");
    if (n == 0) return;
    if (kind == Activation::none) return copy(dy, dx);
    if (!derivative_from_output(kind))
        return eltwise_backward(kind, n, floats(x, n, "activation backward"), from, to);
    const float* output = floats(y, n, "activation backward");
    for_blocks(threads_, n, n, element_block, [=](std::int64_t, std::int64_t begin, std::int64_t end) {
        backward_from_output(kind, output + begin, from + begin, to + begin, end - begin);
    });
}

}  // namespace trireme::cpu
