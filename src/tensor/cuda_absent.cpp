// Stands in for the CUDA device in builds without it.
#include "tensor/backends.hpp"
#include "trireme/base/error.hpp"

namespace trireme {

std::unique_ptr<Device> make_cuda_device() {
    throw usage_error("run.device=cuda: this build has no CUDA backend; use run.device=cpu or auto");
}

}  // namespace trireme
