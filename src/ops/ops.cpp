#include "trireme/ops/ops.hpp"

#include "ops/backends.hpp"
#include "trireme/base/error.hpp"

namespace trireme {

std::unique_ptr<Ops> make_ops(Device& device, int threads) {
    const std::string name = device.name();
    if (name == "cpu") return make_cpu_ops(device, threads);
    if (name == "cuda") return make_cuda_ops(device, threads);
    if (name == "meta") return make_meta_ops();
    throw failure("no operations for the device \"" + name + "\"");
}

}  // namespace trireme
