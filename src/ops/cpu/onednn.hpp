// The only file, with its source, that knows which major version of oneDNN this is: descriptors are made from
// plain arguments here, and everything above is the same for v2 and v3.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

#include "trireme/ops/ops.hpp"

namespace trireme::cpu {

/// Engine and stream of one Ops object.
struct OneDnn {
    dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream{engine};
};

/// What the three convolution primitives have in common.
struct ConvShape {
    dnnl::memory::desc src, weights, bias, dst;  ///< bias may be empty
    dnnl::memory::dims strides, dilations, padding;
};

using ForwardConv = dnnl::convolution_forward::primitive_desc;
using BackwardDataConv = dnnl::convolution_backward_data::primitive_desc;
using BackwardWeightsConv = dnnl::convolution_backward_weights::primitive_desc;

/// `direct` passes over the library's batch-reduce kernels where another just-in-time kernel follows.
enum class ForwardKernel { library_choice, direct };

ForwardConv forward_conv(const OneDnn& library, const ConvShape& shape, Activation activation,
                         ForwardKernel kernel);
/// `forward` is a hint that the library asks for: the same convolution, with one type throughout.
BackwardDataConv backward_data_conv(const OneDnn& library, const ConvShape& shape,
                                    const ForwardConv& forward);
BackwardWeightsConv backward_weights_conv(const OneDnn& library, const ConvShape& shape,
                                          const ForwardConv& forward);

/// dst = act(src · weights + bias), or dst += src · weights; bias [1, n] may be empty.
dnnl::matmul::primitive_desc matmul_desc(const OneDnn& library, const dnnl::memory::desc& src,
                                         const dnnl::memory::desc& weights, const dnnl::memory::desc& bias,
                                         const dnnl::memory::desc& dst, Activation activation,
                                         bool accumulate);

/// True where the library has only its slow reference code for a primitive.
template <class Desc>
bool is_reference(const Desc& desc) {
    return std::string_view(desc.impl_info_str()).find("ref") != std::string_view::npos;
}

/// The library's name of float32 or bfloat16, the types that we have it multiply.
dnnl::memory::data_type data_type_of(DType type);

dnnl::eltwise_forward::primitive_desc forward_eltwise(const OneDnn& library, Activation kind,
                                                      const dnnl::memory::desc& data);
dnnl::eltwise_backward::primitive_desc backward_eltwise(const OneDnn& library, Activation kind,
                                                        const dnnl::memory::desc& data);

/// A reorder; `add` makes it to += from.
dnnl::reorder::primitive_desc reorder_desc(const OneDnn& library, const dnnl::memory::desc& from,
                                           const dnnl::memory::desc& to, bool add);

/// True where the processor, as far as the library may use it, multiplies bfloat16 by instructions of its
/// own.
bool has_bf16();
/// True where it does so faster than it multiplies float32.
bool has_fast_bf16();

/// "2.6.3": the library that is loaded, not the header.
std::string onednn_version();

/// @throws Error naming the call site when a C call failed.
void check(dnnl_status_t status, std::source_location where = std::source_location::current());

}  // namespace trireme::cpu
