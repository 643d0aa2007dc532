// Reads kernel, stride, padding and dilation of a layer line: one number, or height x width ("kernel=3x5").
#pragma once

#include "trireme/nn/description.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme {

/// @throws Error (bad_usage) quoting the line when the samples are no images or the window does not fit into
/// them.
Window window_from(const LayerSpec& spec, const Shape& in, std::int64_t default_stride = 1);

}  // namespace trireme
