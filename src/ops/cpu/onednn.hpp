// The only file, with its source, that knows which major version of oneDNN this is: descriptors are made from
// plain arguments here, and everything above is the same for v2 and v3.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include <cstdint>
#include <source_location>
#include <string>

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
BackwardDataConv backward_data_conv(const OneDnn& library, const ConvShape& shape);
BackwardWeightsConv backward_weights_conv(const OneDnn& library, const ConvShape& shape);

dnnl::eltwise_forward::primitive_desc forward_eltwise(const OneDnn& library, Activation kind,
                                                      const dnnl::memory::desc& data);
dnnl::eltwise_backward::primitive_desc backward_eltwise(const OneDnn& library, Activation kind,
                                                        const dnnl::memory::desc& data);

/// A reorder; `add` makes it to += from.
dnnl::reorder::primitive_desc reorder_desc(const OneDnn& library, const dnnl::memory::desc& from,
                                           const dnnl::memory::desc& to, bool add);

/// "2.6.3": the library that is loaded, not the header.
std::string onednn_version();

/// @throws Error naming the call site when a C call failed.
void check(dnnl_status_t status, std::source_location where = std::source_location::current());

}  // namespace trireme::cpu
