#include "tensor/backends.hpp"
#include "tensor/cuda_plugin.hpp"

namespace trireme {

std::unique_ptr<Device> make_cuda_device(int number) {
    const auto make = reinterpret_cast<Device* (*)(int)>(cuda_plugin_entry("trireme_cuda_device"));
    return std::unique_ptr<Device>(make(number));
}

}  // namespace trireme
