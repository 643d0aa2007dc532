// The verbs of the CUDA device come from the same plugin as the device.
#include "tensor/cuda_plugin.hpp"
#include "ops/backends.hpp"

namespace trireme {

std::unique_ptr<Ops> make_cuda_ops(Device& device, int) {
    const auto make = reinterpret_cast<Ops* (*)(Device&)>(cuda_plugin_entry("trireme_cuda_ops"));
    return std::unique_ptr<Ops>(make(device));
}

}  // namespace trireme
