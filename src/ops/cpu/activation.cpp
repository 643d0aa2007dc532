// Activations: relu and derivatives that need the output alone in loops of our own, the others through the
// library, which gets float32.
#include <algorithm>

#include "ops/cpu/checks.hpp"
#include "ops/cpu/cpu_ops.hpp"
#include "ops/cpu/parallel.hpp"
#include "ops/cpu/reals.hpp"

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

constexpr std::int64_t library_piece = std::int64_t{1} << 16;

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

// x and y 16-bit or not: pieces of library_piece elements, which stay in cache between conversion and
// library.
void CpuOps::eltwise(Activation kind, std::int64_t n, const Reals& x, const Reals& y) {
    if (x.is_float() && y.is_float())
        return eltwise(kind, n, static_cast<float*>(x.at(0)), static_cast<float*>(y.at(0)));
    for (std::int64_t first = 0; first < n; first += library_piece) {
        const std::int64_t count = std::min(library_piece, n - first);
        Wide from(x, first, count), to(y, first, count);
        Wide::place(wide_scratch_, {&from, &to});
        from.load(threads_);
        eltwise(kind, count, from.floats(), to.floats());
        to.store(threads_);
    }
}

void CpuOps::eltwise_backward(Activation kind, std::int64_t n, const Reals& x, const Reals& dy,
                              const Reals& dx) {
    if (x.is_float() && dy.is_float() && dx.is_float())
        return eltwise_backward(kind, n, static_cast<float*>(x.at(0)), static_cast<float*>(dy.at(0)),
                                static_cast<float*>(dx.at(0)));
    for (std::int64_t first = 0; first < n; first += library_piece) {
        const std::int64_t count = std::min(library_piece, n - first);
        Wide source(x, first, count), from(dy, first, count), to(dx, first, count);
        Wide::place(wide_scratch_, {&source, &from, &to});
        source.load(threads_);
        from.load(threads_);
        eltwise_backward(kind, count, source.floats(), from.floats(), to.floats());
        to.store(threads_);
    }
}

void CpuOps::activation_forward(Activation kind, View x, View y) {
    const std::int64_t n = y.count();
    const Reals from(x, n, "activation"), to(y, n, "activation");
    if (n == 0) return;
    if (kind == Activation::none) return copy(x, y);
    if (kind != Activation::relu) return eltwise(kind, n, from, to);
    const std::int64_t piece = from.is_float() && to.is_float() ? element_block : stretch;
    for_blocks(threads_, n, n, piece, [=](std::int64_t, std::int64_t begin, std::int64_t end) {
        Stretch in, out;
        relu(from.load(begin, end - begin, in), to.place(begin, out), end - begin);
        to.store(begin, end - begin, out);
    });
}

void CpuOps::activation_backward(Activation kind, View x, View y, View dy, View dx) {
    const std::int64_t n = dx.count();
    const Reals from(dy, n, "activation backward"), to(dx, n, "activation backward");
    if (n == 0) return;
    if (kind == Activation::none) return copy(dy, dx);
    if (!derivative_from_output(kind))
        return eltwise_backward(kind, n, Reals(x, n, "activation backward"), from, to);
    const Reals output(y, n, "activation backward");
    const bool float_only = output.is_float() && from.is_float() && to.is_float();
    for_blocks(threads_, n, n, float_only ? element_block : stretch,
               [=](std::int64_t, std::int64_t begin, std::int64_t end) {
                   Stretch out, gradient, result;
                   backward_from_output(kind, output.load(begin, end - begin, out),
                                        from.load(begin, end - begin, gradient), to.place(begin, result),
                                        end - begin);
                   to.store(begin, end - begin, result);
               });
}

}  // namespace trireme::cpu
