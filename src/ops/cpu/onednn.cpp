// Run with oneDNN 2.6.3 and 3.2; also compiled against the headers of 3.13.
#include "ops/cpu/onednn.hpp"

#include <string_view>

#include "trireme/base/error.hpp"

namespace trireme::cpu {
namespace {

using dnnl::algorithm;

algorithm eltwise_algorithm(Activation kind) {
    switch (kind) {
        case Activation::relu:
            return algorithm::eltwise_relu;
        case Activation::gelu:
            return algorithm::eltwise_gelu_erf;
        case Activation::gelu_tanh:
            return algorithm::eltwise_gelu_tanh;
        case Activation::silu:
            return algorithm::eltwise_swish;
        case Activation::tanh:
            return algorithm::eltwise_tanh;
        case Activation::sigmoid:
            return algorithm::eltwise_logistic;
        case Activation::none:
            break;
    }
    throw failure("the activation \"none\" has no primitive");
}

/// swish is x·σ(alpha·x); relu's alpha is the slope below zero.
float eltwise_alpha(Activation kind) {
    return kind == Activation::silu ? 1.0F : 0.0F;
}

// Scratch is handed in by the caller: the library's own would be shared by all Ops objects of a thread.
dnnl::primitive_attr attributes() {
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return attr;
}

/// What follows a product: an activation, or the addition of what was there before.
dnnl::primitive_attr product_attributes(Activation activation, bool accumulate) {
    dnnl::primitive_attr attr = attributes();
    if (activation == Activation::none && !accumulate) return attr;
    dnnl::post_ops after;
    if (accumulate) after.append_sum(1.0F);
    if (activation != Activation::none) {
#if DNNL_VERSION_MAJOR >= 3
        after.append_eltwise(eltwise_algorithm(activation), eltwise_alpha(activation), 0.0F);
#else
        after.append_eltwise(1.0F, eltwise_algorithm(activation), eltwise_alpha(activation), 0.0F);
#endif
    }
    attr.set_post_ops(after);
    return attr;
}

// The names of instruction sets are sets of bits, those of a later one among them; their order says nothing.
bool has(dnnl::cpu_isa wanted) {
    const auto bits = static_cast<unsigned>(wanted);
    return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & bits) == bits;
}

bool is_intel() {
#if defined(__x86_64__) || defined(__i386__)
    return __builtin_cpu_is("intel") != 0;
#else
    return false;
#endif
}

constexpr auto direct = algorithm::convolution_direct;
constexpr auto training = dnnl::prop_kind::forward_training;

bool starts_with(const ForwardConv& primitive, std::string_view name) {
    return std::string_view(primitive.impl_info_str()).substr(0, name.size()) == name;
}

/// Moves to the next implementation where `kernel` asks for it; back again when that is no better kind.
template <class Make>
ForwardConv chosen(const Make& make, ForwardKernel kernel) {
    ForwardConv first = make();
    if (kernel == ForwardKernel::library_choice || !starts_with(first, "br")) return first;
    ForwardConv next = make();
    return next.next_impl() && starts_with(next, "jit") ? next : first;
}

}  // namespace

#if DNNL_VERSION_MAJOR >= 3

ForwardConv forward_conv(const OneDnn& library, const ConvShape& s, Activation activation,
                         ForwardKernel kernel) {
    const auto make = [&]() -> ForwardConv {
        if (s.bias.get_size() == 0)
            return {library.engine,
                    training,
                    direct,
                    s.src,
                    s.weights,
                    s.dst,
                    s.strides,
                    s.dilations,
                    s.padding,
                    s.padding,
                    product_attributes(activation, false)};
        return {library.engine, training,  direct,    s.src,
                s.weights,      s.bias,    s.dst,     s.strides,
                s.dilations,    s.padding, s.padding, product_attributes(activation, false)};
    };
    return chosen(make, kernel);
}

BackwardDataConv backward_data_conv(const OneDnn& library, const ConvShape& s, const ForwardConv& forward) {
    return {library.engine, direct,    s.src,     s.weights, s.dst,       s.strides,
            s.dilations,    s.padding, s.padding, forward,   attributes()};
}

BackwardWeightsConv backward_weights_conv(const OneDnn& library, const ConvShape& s,
                                          const ForwardConv& forward) {
    return {library.engine, direct,    s.src,     s.weights, s.dst,       s.strides,
            s.dilations,    s.padding, s.padding, forward,   attributes()};
}

dnnl::eltwise_forward::primitive_desc forward_eltwise(const OneDnn& library, Activation kind,
                                                      const dnnl::memory::desc& data) {
    return {library.engine, training,    eltwise_algorithm(kind), data, data, eltwise_alpha(kind),
            0.0F,           attributes()};
}

dnnl::eltwise_backward::primitive_desc backward_eltwise(const OneDnn& library, Activation kind,
                                                        const dnnl::memory::desc& data) {
    return {library.engine, eltwise_algorithm(kind), data, data,
            data,           eltwise_alpha(kind),     0.0F, forward_eltwise(library, kind, data),
            attributes()};
}

dnnl::matmul::primitive_desc matmul_desc(const OneDnn& library, const dnnl::memory::desc& src,
                                         const dnnl::memory::desc& weights, const dnnl::memory::desc& bias,
                                         const dnnl::memory::desc& dst, Activation activation,
                                         bool accumulate) {
    const dnnl::primitive_attr attr = product_attributes(activation, accumulate);
    if (bias.get_size() == 0) return {library.engine, src, weights, dst, attr};
    return {library.engine, src, weights, bias, dst, attr};
}

#else

ForwardConv forward_conv(const OneDnn& library, const ConvShape& s, Activation activation,
                         ForwardKernel kernel) {
    using Desc = dnnl::convolution_forward::desc;
    // Must outlive the search for an implementation: the library keeps a pointer to it, not a copy.
    const Desc desc = s.bias.get_size() == 0 ? Desc(training, direct, s.src, s.weights, s.dst, s.strides,
                                                    s.dilations, s.padding, s.padding)
                                             : Desc(training, direct, s.src, s.weights, s.bias, s.dst,
                                                    s.strides, s.dilations, s.padding, s.padding);
    const dnnl::primitive_attr attr = product_attributes(activation, false);
    return chosen([&] { return ForwardConv(desc, attr, library.engine); }, kernel);
}

BackwardDataConv backward_data_conv(const OneDnn& library, const ConvShape& s, const ForwardConv& forward) {
    return {{direct, s.src, s.weights, s.dst, s.strides, s.dilations, s.padding, s.padding},
            attributes(),
            library.engine,
            forward};
}

BackwardWeightsConv backward_weights_conv(const OneDnn& library, const ConvShape& s,
                                          const ForwardConv& forward) {
    return {{direct, s.src, s.weights, s.dst, s.strides, s.dilations, s.padding, s.padding},
            attributes(),
            library.engine,
            forward};
}

dnnl::eltwise_forward::primitive_desc forward_eltwise(const OneDnn& library, Activation kind,
                                                      const dnnl::memory::desc& data) {
    return {
        {training, eltwise_algorithm(kind), data, eltwise_alpha(kind), 0.0F}, attributes(), library.engine};
}

dnnl::eltwise_backward::primitive_desc backward_eltwise(const OneDnn& library, Activation kind,
                                                        const dnnl::memory::desc& data) {
    return {{eltwise_algorithm(kind), data, data, eltwise_alpha(kind), 0.0F},
            attributes(),
            library.engine,
            forward_eltwise(library, kind, data)};
}

dnnl::matmul::primitive_desc matmul_desc(const OneDnn& library, const dnnl::memory::desc& src,
                                         const dnnl::memory::desc& weights, const dnnl::memory::desc& bias,
                                         const dnnl::memory::desc& dst, Activation activation,
                                         bool accumulate) {
    using Desc = dnnl::matmul::desc;
    return {bias.get_size() == 0 ? Desc(src, weights, dst) : Desc(src, weights, bias, dst),
            product_attributes(activation, accumulate), library.engine};
}

#endif

dnnl::reorder::primitive_desc reorder_desc(const OneDnn& library, const dnnl::memory::desc& from,
                                           const dnnl::memory::desc& to, bool add) {
    dnnl::primitive_attr attr = attributes();
    if (add) {
        dnnl::post_ops after;
        after.append_sum(1.0F);
        attr.set_post_ops(after);
    }
    return {library.engine, from, library.engine, to, attr};
}

dnnl::memory::data_type data_type_of(DType type) {
    return type == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

bool has_bf16() {
    return has(dnnl::cpu_isa::avx512_core_bf16);
}

// Intel's fast unit for bfloat16 is AMX, which virtual machines may hide. Its vector instruction alone does
// half as many operations a second as those for float32 (measured on Sapphire Rapids: 83 against 168 GFLOP/s
// a core); AMD's does twice as many.
bool has_fast_bf16() {
    return has(dnnl::cpu_isa::avx512_core_amx) || (has_bf16() && !is_intel());
}

std::string onednn_version() {
    const dnnl_version_t* v = dnnl_version();
    return std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
}

void check(dnnl_status_t status, std::source_location where) {
    if (status == dnnl_success) return;
    throw failure("oneDNN: status " + std::to_string(static_cast<int>(status)) + " in " +
                  where.function_name());
}

}  // namespace trireme::cpu
