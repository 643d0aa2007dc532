// Cross-entropy over classes that are split over ranks.
#include "ops/cpu/cpu_ops.hpp"
#include "trireme/base/error.hpp"

namespace trireme::cpu {

void CpuOps::split_cross_entropy_maximum(const SplitCrossEntropy&) {
    throw failure("cpu split_cross_entropy_maximum: not built yet");
}
void CpuOps::split_cross_entropy_sums(const SplitCrossEntropy&) {
    throw failure("cpu split_cross_entropy_sums: not built yet");
}
void CpuOps::split_cross_entropy_finish(const SplitCrossEntropy&) {
    throw failure("cpu split_cross_entropy_finish: not built yet");
}

}  // namespace trireme::cpu
