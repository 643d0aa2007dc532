// Rows of a table by number.
#include "ops/cpu/cpu_ops.hpp"
#include "trireme/base/error.hpp"

namespace trireme::cpu {

void CpuOps::embedding_forward(View, View, std::int64_t, View) {
    throw failure("cpu embedding_forward: not built yet");
}
void CpuOps::embedding_backward(View, View, std::int64_t, View, bool) {
    throw failure("cpu embedding_backward: not built yet");
}
void CpuOps::add_row(View, View, View) {
    throw failure("cpu add_row: not built yet");
}

}  // namespace trireme::cpu
