// The factories that make_device chooses from; one definition of each is linked in.
#pragma once

#include <memory>

#include "trireme/tensor/device.hpp"

namespace trireme {

std::unique_ptr<Device> make_cpu_device();
std::unique_ptr<Device> make_cuda_device(int number);

}  // namespace trireme
