// Convolution through the library, on channels-last activations as they are. Kernels are kept as [O,
// C/groups, KH, KW] and reordered to what the primitive prefers, which costs little beside the convolution
// itself.
#include <algorithm>
#include <string_view>

#include "ops/cpu/checks.hpp"
#include "ops/cpu/cpu_ops.hpp"

namespace trireme::cpu {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

constexpr auto f32 = memory::data_type::f32;

/// Memory as callers have it.
struct Layouts {
    memory::desc x, kernel, bias, y;
};

memory::dims kernel_extents(const Window& w) {
    if (w.groups == 1) return {w.out, w.c, w.kernel_h, w.kernel_w};
    return {w.groups, w.out / w.groups, w.c / w.groups, w.kernel_h, w.kernel_w};
}

Layouts plain_layouts(const Window& w) {
    return {{{w.n, w.c, w.h, w.w}, f32, Tag::nhwc},
            {kernel_extents(w), f32, w.groups == 1 ? Tag::oihw : Tag::goihw},
            {{w.out}, f32, Tag::a},
            {{w.n, w.out, w.out_h(), w.out_w()}, f32, Tag::nhwc}};
}

/// The shape for the library: the kernel's layout is its own choice, the activations' only where
/// `any_layout`.
ConvShape conv_shape(const Window& w, bool bias, bool any_layout) {
    const Layouts plain = plain_layouts(w);
    const auto open = [](const memory::dims& dims) { return memory::desc(dims, f32, Tag::any); };
    return {any_layout ? open({w.n, w.c, w.h, w.w}) : plain.x,
            open(kernel_extents(w)),
            bias ? plain.bias : memory::desc(),
            any_layout ? open({w.n, w.out, w.out_h(), w.out_w()}) : plain.y,
            {w.stride_h, w.stride_w},
            {w.dilation_h - 1, w.dilation_w - 1},
            {w.padding_h, w.padding_w}};
}

template <class Desc>
bool is_reference(const Desc& desc) {
    return std::string_view(desc.impl_info_str()).find("ref") != std::string_view::npos;
}

/// The primitive over channels-last memory, or over the library's own layout where it has only reference code
/// for the former.
template <class Make>
auto best(const Window& window, bool bias, const Make& make) {
    auto plain = make(conv_shape(window, bias, false));
    if (!is_reference(plain)) return plain;
    return make(conv_shape(window, bias, true));
}

// The library's first choice is its batch-reduce kernel; measured on AVX-512, the older direct kernels are up
// to twice as fast for depthwise, dilated and few-channel convolutions.
ForwardKernel forward_kernel(const Window& w) {
    const bool depthwise = w.groups > 1 && w.groups == w.c;
    const bool dilated = w.dilation_h > 1 || w.dilation_w > 1;
    return depthwise || dilated || w.c <= 4 ? ForwardKernel::direct : ForwardKernel::library_choice;
}

/// An operand that a primitive reads in layout `wanted` while the caller has it in `given`.
int input(Plan& plan, const OneDnn& library, const memory::desc& given, const memory::desc& wanted,
          int slot) {
    const int plain = plan.operand(library, given, slot);
    if (given == wanted) return plain;
    const int inner = plan.temporary(library, wanted);
    const auto desc = reorder_desc(library, given, wanted, false);
    plan.step(library, dnnl::reorder(desc), desc.scratchpad_desc(),
              {{DNNL_ARG_FROM, plain}, {DNNL_ARG_TO, inner}});
    return inner;
}

/// An operand that a primitive writes; finish() brings it to the caller.
struct Output {
    int plain, inner;
    memory::desc given, wanted;
    bool add;

    Output(Plan& plan, const OneDnn& library, const memory::desc& given_, const memory::desc& wanted_,
           int slot, bool add_ = false)
        : plain(plan.operand(library, given_, slot)),
          inner(plain),
          given(given_),
          wanted(wanted_),
          add(add_) {
        if (add || given != wanted) inner = plan.temporary(library, wanted);
    }
    void finish(Plan& plan, const OneDnn& library) const {
        if (inner == plain) return;
        const auto desc = reorder_desc(library, wanted, given, add);
        plan.step(library, dnnl::reorder(desc), desc.scratchpad_desc(),
                  {{DNNL_ARG_FROM, inner}, {DNNL_ARG_TO, plain}});
    }
};

Plan forward_plan(const OneDnn& library, const PlanKey& key) {
    const Window& w = key.window;
    const ForwardConv desc = best(w, key.bias, [&](const ConvShape& shape) {
        return forward_conv(library, shape, key.activation, forward_kernel(w));
    });
    const Layouts plain = plain_layouts(w);
    Plan plan;
    const int x = input(plan, library, plain.x, desc.src_desc(), 0);
    const int kernel = input(plan, library, plain.kernel, desc.weights_desc(), 1);
    const Output y(plan, library, plain.y, desc.dst_desc(), 2);
    if (key.bias) {
        const int bias = plan.operand(library, plain.bias, 3);
        plan.step(
            library, dnnl::convolution_forward(desc), desc.scratchpad_desc(),
            {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, kernel}, {DNNL_ARG_BIAS, bias}, {DNNL_ARG_DST, y.inner}});
    } else {
        plan.step(library, dnnl::convolution_forward(desc), desc.scratchpad_desc(),
                  {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, kernel}, {DNNL_ARG_DST, y.inner}});
    }
    y.finish(plan, library);
    return plan;
}

Plan backward_data_plan(const OneDnn& library, const PlanKey& key) {
    const auto desc =
        best(key.window, false, [&](const ConvShape& shape) { return backward_data_conv(library, shape); });
    const Layouts plain = plain_layouts(key.window);
    Plan plan;
    const int dy = input(plan, library, plain.y, desc.diff_dst_desc(), 0);
    const int kernel = input(plan, library, plain.kernel, desc.weights_desc(), 1);
    const Output dx(plan, library, plain.x, desc.diff_src_desc(), 2);
    plan.step(library, dnnl::convolution_backward_data(desc), desc.scratchpad_desc(),
              {{DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_WEIGHTS, kernel}, {DNNL_ARG_DIFF_SRC, dx.inner}});
    dx.finish(plan, library);
    return plan;
}

Plan backward_weights_plan(const OneDnn& library, const PlanKey& key) {
    const auto desc = best(key.window, false,
                           [&](const ConvShape& shape) { return backward_weights_conv(library, shape); });
    const Layouts plain = plain_layouts(key.window);
    Plan plan;
    const int x = input(plan, library, plain.x, desc.src_desc(), 0);
    const int dy = input(plan, library, plain.y, desc.diff_dst_desc(), 1);
    const Output kernel(plan, library, plain.kernel, desc.diff_weights_desc(), 2, key.accumulate);
    plan.step(library, dnnl::convolution_backward_weights(desc), desc.scratchpad_desc(),
              {{DNNL_ARG_SRC, x}, {DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_DIFF_WEIGHTS, kernel.inner}});
    kernel.finish(plan, library);
    return plan;
}

/// Element counts of a convolution's tensors.
struct Counts {
    std::int64_t x, kernel, y;
};

Counts counts(const Window& w) {
    if (w.groups < 1 || w.c % w.groups != 0 || w.out % w.groups != 0 ||
        (w.n > 0 && (w.out_h() < 1 || w.out_w() < 1)))
        throw failure("cpu convolution: " + std::to_string(w.c) + " to " + std::to_string(w.out) +
                      " channels in " + std::to_string(w.groups) + " groups over " + std::to_string(w.h) +
                      "x" + std::to_string(w.w) + " with a kernel of " + std::to_string(w.kernel_h) + "x" +
                      std::to_string(w.kernel_w));
    return {w.n * w.c * w.h * w.w, w.out * (w.c / w.groups) * w.kernel_h * w.kernel_w,
            w.n * w.out * w.out_h() * w.out_w()};
}

}  // namespace

// y[n, o, i, j] = act(Σ_{c, u, v} x[n, c, i·s - p + u·d, j·s - p + v·d] · k[o, c, u, v] + b[o])
void CpuOps::conv_forward(const Window& window, View x, View kernel, View bias, Activation activation,
                          View y) {
    const Counts count = counts(window);
    float* from = floats(x, count.x, "convolution");
    float* weights = floats(kernel, count.kernel, "convolution kernel");
    float* offset = optional_floats(bias, window.out, "convolution bias");
    float* to = floats(y, count.y, "convolution");
    if (!derivative_from_output(activation))
        throw failure("cpu convolution: " + std::string(name_of(activation)) + " is not an epilogue");
    if (count.y == 0) return;
    const PlanKey key{Verb::conv_forward, window, activation, offset != nullptr, false};
    run(plan(key, "convolution of this shape", [&] { return forward_plan(library_, key); }),
        {from, weights, to, offset});
}

// dx[n, c, ·] = Σ_{o, u, v} dy[n, o, ·] · k[o, c, u, v]
void CpuOps::conv_backward_data(const Window& window, View dy, View kernel, View dx) {
    const Counts count = counts(window);
    float* from = floats(dy, count.y, "convolution backward");
    float* weights = floats(kernel, count.kernel, "convolution kernel");
    float* to = floats(dx, count.x, "convolution backward");
    if (count.x == 0) return;
    const PlanKey key{Verb::conv_backward_data, window};
    run(plan(key, "convolution of this shape", [&] { return backward_data_plan(library_, key); }),
        {from, weights, to});
}

// dk[o, c, u, v] (+)= Σ_{n, i, j} dy[n, o, i, j] · x[n, c, i·s - p + u·d, j·s - p + v·d]
void CpuOps::conv_backward_weights(const Window& window, View x, View dy, View d_kernel, bool accumulate) {
    const Counts count = counts(window);
    float* from = floats(x, count.x, "convolution backward");
    float* gradient = floats(dy, count.y, "convolution backward");
    float* to = floats(d_kernel, count.kernel, "convolution kernel");
    if (count.y == 0) {
        if (!accumulate) std::fill_n(to, count.kernel, 0.0F);
        return;
    }
    const PlanKey key{Verb::conv_backward_weights, window, Activation::none, false, accumulate};
    run(plan(key, "convolution of this shape", [&] { return backward_weights_plan(library_, key); }),
        {from, gradient, to});
}

}  // namespace trireme::cpu
