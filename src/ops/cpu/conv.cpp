// Convolution through the library, on channels-last activations as they are. Kernels are kept as [O,
// C/groups, KH, KW] and reordered to what the primitive prefers, which costs little beside the convolution
// itself. 16-bit convolutions for which the processor or the library has no fast code go by way of float32.
#include <algorithm>

#include "ops/cpu/checks.hpp"
#include "ops/cpu/cpu_ops.hpp"
#include "ops/cpu/wide.hpp"

namespace trireme::cpu {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

/// Element types of a convolution's tensors; biases are float32.
struct Types {
    DType x, kernel, y;
};

/// Memory as callers have it.
struct Layouts {
    memory::desc x, kernel, bias, y;
};

memory::dims kernel_extents(const Window& w) {
    if (w.groups == 1) return {w.out, w.c, w.kernel_h, w.kernel_w};
    return {w.groups, w.out / w.groups, w.c / w.groups, w.kernel_h, w.kernel_w};
}

Layouts plain_layouts(const Window& w, const Types& types) {
    return {{{w.n, w.c, w.h, w.w}, data_type_of(types.x), Tag::nhwc},
            {kernel_extents(w), data_type_of(types.kernel), w.groups == 1 ? Tag::oihw : Tag::goihw},
            {{w.out}, memory::data_type::f32, Tag::a},
            {{w.n, w.out, w.out_h(), w.out_w()}, data_type_of(types.y), Tag::nhwc}};
}

/// The shape for the library: the kernel's layout is its own choice, the activations' only where
/// `any_layout`.
ConvShape conv_shape(const Window& w, const Types& types, bool bias, bool any_layout) {
    const Layouts plain = plain_layouts(w, types);
    const auto open = [](const memory::dims& dims, DType type) {
        return memory::desc(dims, data_type_of(type), Tag::any);
    };
    return {any_layout ? open({w.n, w.c, w.h, w.w}, types.x) : plain.x,
            open(kernel_extents(w), types.kernel),
            bias ? plain.bias : memory::desc(),
            any_layout ? open({w.n, w.out, w.out_h(), w.out_w()}, types.y) : plain.y,
            {w.stride_h, w.stride_w},
            {w.dilation_h - 1, w.dilation_w - 1},
            {w.padding_h, w.padding_w}};
}

/// The primitive over channels-last memory, or over the library's own layout where it has only reference code
/// for the former. make(any_layout) makes one.
template <class Make>
auto best(const Make& make) {
    auto plain = make(false);
    if (!is_reference(plain)) return plain;
    return make(true);
}

/// As best(), for the two backward primitives: make(shape, forward) makes one.
template <class Make>
auto best_backward(const OneDnn& library, const PlanKey& key, const Types& types, const Make& make) {
    const Types one{key.operands, key.operands, key.operands};
    return best([&](bool any_layout) {
        return make(conv_shape(key.window, types, false, any_layout),
                    forward_conv(library, conv_shape(key.window, one, false, any_layout), Activation::none,
                                 ForwardKernel::library_choice));
    });
}

/// True where converting to float32 is better than this primitive.
template <class Desc>
bool better_in_float32(const PlanKey& key, const Desc& desc) {
    return key.operands != DType::f32 && is_reference(desc);
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
    const Types types{key.operands, key.operands, key.result};
    const ForwardConv desc = best([&](bool any_layout) {
        return forward_conv(library, conv_shape(w, types, key.bias, any_layout), key.activation,
                            forward_kernel(w));
    });
    const Layouts plain = plain_layouts(w, types);
    Plan plan;
    if (better_in_float32(key, desc)) return plan;
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
    const Types types{key.result, key.operands, key.operands};
    const auto desc =
        best_backward(library, key, types, [&](const ConvShape& shape, const ForwardConv& forward) {
            return backward_data_conv(library, shape, forward);
        });
    const Layouts plain = plain_layouts(key.window, types);
    Plan plan;
    if (better_in_float32(key, desc)) return plan;
    const int dy = input(plan, library, plain.y, desc.diff_dst_desc(), 0);
    const int kernel = input(plan, library, plain.kernel, desc.weights_desc(), 1);
    const Output dx(plan, library, plain.x, desc.diff_src_desc(), 2);
    plan.step(library, dnnl::convolution_backward_data(desc), desc.scratchpad_desc(),
              {{DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_WEIGHTS, kernel}, {DNNL_ARG_DIFF_SRC, dx.inner}});
    dx.finish(plan, library);
    return plan;
}

Plan backward_weights_plan(const OneDnn& library, const PlanKey& key) {
    const Types types{key.operands, key.result, key.operands};
    const auto desc =
        best_backward(library, key, types, [&](const ConvShape& shape, const ForwardConv& forward) {
            return backward_weights_conv(library, shape, forward);
        });
    const Layouts plain = plain_layouts(key.window, types);
    Plan plan;
    if (better_in_float32(key, desc)) return plan;
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

void CpuOps::convolve(PlanKey key, Plan (*build)(const OneDnn&, const PlanKey&), Wide left, Wide right,
                      Wide result, float* bias) {
    const auto make = [&] { return build(library_, key); };
    if (Plan* direct = bf16_plan(key, make))
        return run(*direct, {left.own(), right.own(), result.own(), bias});
    key.operands = key.result = DType::f32;
    Wide::place(wide_scratch_, {&left, &right, &result});
    left.load(threads_);
    right.load(threads_);
    run(plan(key, "convolution of this shape", make), {left.floats(), right.floats(), result.floats(), bias});
    result.store(threads_);
}

// y[n, o, i, j] = act(Σ_{c, u, v} x[n, c, i·s - p + u·d, j·s - p + v·d] · k[o, c, u, v] + b[o])
void CpuOps::conv_forward(const Window& window, View x, View kernel, View bias, Activation activation,
                          View y) {
    const Counts count = counts(window);
    const Wide from(x, count.x, "convolution"), weights(kernel, count.kernel, "convolution kernel");
    const Wide to(y, count.y, "convolution");
    float* offset = optional_floats(bias, window.out, "convolution bias");
    require_product_types("convolution", x.dtype, kernel.dtype, y.dtype);
    if (!derivative_from_output(activation))
        throw failure("cpu convolution: " + std::string(name_of(activation)) + " is not an epilogue");
    if (count.y == 0) return;
    const PlanKey key{.verb = Verb::conv_forward,
                      .window = window,
                      .activation = activation,
                      .bias = offset != nullptr,
                      .operands = x.dtype,
                      .result = y.dtype};
    convolve(key, forward_plan, from, weights, to, offset);
}

// dx[n, c, ·] = Σ_{o, u, v} dy[n, o, ·] · k[o, c, u, v]
void CpuOps::conv_backward_data(const Window& window, View dy, View kernel, View dx) {
    const Counts count = counts(window);
    const Wide from(dy, count.y, "convolution backward");
    const Wide weights(kernel, count.kernel, "convolution kernel");
    const Wide to(dx, count.x, "convolution backward");
    require_product_types("convolution backward", dy.dtype, kernel.dtype, dx.dtype);
    if (count.x == 0) return;
    const PlanKey key{
        .verb = Verb::conv_backward_data, .window = window, .operands = dy.dtype, .result = dx.dtype};
    convolve(key, backward_data_plan, from, weights, to, nullptr);
}

// dk[o, c, u, v] (+)= Σ_{n, i, j} dy[n, o, i, j] · x[n, c, i·s - p + u·d, j·s - p + v·d]
void CpuOps::conv_backward_weights(const Window& window, View x, View dy, View d_kernel, bool accumulate) {
    const Counts count = counts(window);
    const Wide from(x, count.x, "convolution backward"), gradient(dy, count.y, "convolution backward");
    float* sums = floats(d_kernel, count.kernel, "convolution kernel");
    require_product_types("convolution backward", x.dtype, dy.dtype, DType::f32);
    if (count.y == 0) {
        if (!accumulate) std::fill_n(sums, count.kernel, 0.0F);
        return;
    }
    const PlanKey key{.verb = Verb::conv_backward_weights,
                      .window = window,
                      .accumulate = accumulate,
                      .operands = x.dtype,
                      .result = DType::f32};
    convolve(key, backward_weights_plan, from, gradient, Wide(d_kernel, count.kernel, "convolution kernel"),
             nullptr);
}

}  // namespace trireme::cpu
