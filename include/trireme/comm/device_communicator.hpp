// A communicator whose verbs also take memory of a device.
#pragma once

#include <memory>

#include "trireme/comm/communicator.hpp"
#include "trireme/tensor/device.hpp"

namespace trireme {

/// Over `host`, another communicator of the same ranks. Collectives on device memory go through NCCL, unless
/// the backend has none or `shared` says that ranks share a GPU (which NCCL refuses): then through host
/// memory. Both the same on all ranks. The device must outlive it, and all that is split off.
std::unique_ptr<Communicator> make_device_communicator(Device& device, std::unique_ptr<Communicator> host,
                                                       bool shared);

}  // namespace trireme
