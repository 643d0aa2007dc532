// SwiGLU's gate.
#include "ops/cpu/cpu_ops.hpp"
#include "trireme/base/error.hpp"

namespace trireme::cpu {

void CpuOps::gate_forward(View, View, View) {
    throw failure("cpu gate_forward: not built yet");
}
void CpuOps::gate_backward(View, View, View, View, View) {
    throw failure("cpu gate_backward: not built yet");
}

}  // namespace trireme::cpu
