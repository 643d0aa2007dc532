// `trireme bench kernels`: the verbs that memory limits, each beside the rate of a copy.
#pragma once

#include "trireme/ops/ops.hpp"
#include "trireme/train/runtime.hpp"

namespace trireme::app {

/// Prints the table on rank 0: activations of this type, parameters in float32. Collective.
void bench_kernels(Runtime& runtime, Ops& ops, DType compute);

}  // namespace trireme::app
