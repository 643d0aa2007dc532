// Attention in tiles with a running softmax, and rotary positions.
#include "ops/cpu/cpu_ops.hpp"
#include "trireme/base/error.hpp"

namespace trireme::cpu {

void CpuOps::attention_forward(const Attention&) {
    throw failure("cpu attention_forward: not built yet");
}
void CpuOps::attention_backward(const Attention&, View, View, View, View) {
    throw failure("cpu attention_backward: not built yet");
}
void CpuOps::rotate(View, std::int64_t, float, bool, View) {
    throw failure("cpu rotate: not built yet");
}

}  // namespace trireme::cpu
