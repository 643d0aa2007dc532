// Stands in for the CUDA operations in builds without them.
#include "ops/backends.hpp"
#include "trireme/base/error.hpp"

namespace trireme {

std::unique_ptr<Ops> make_cuda_ops(Device&, int) {
    throw usage_error("run.device=cuda: this build has no CUDA backend; use run.device=cpu or auto");
}

}  // namespace trireme
