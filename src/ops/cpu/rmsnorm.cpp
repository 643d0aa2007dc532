// RMSNorm (Zhang and Sennrich 2019), one row at a time.
#include "ops/cpu/cpu_ops.hpp"
#include "trireme/base/error.hpp"

namespace trireme::cpu {

void CpuOps::rmsnorm_forward(const RmsNorm&) {
    throw failure("cpu rmsnorm_forward: not built yet");
}
void CpuOps::rmsnorm_backward(const RmsNorm&, View, View, View, bool) {
    throw failure("cpu rmsnorm_backward: not built yet");
}

}  // namespace trireme::cpu
