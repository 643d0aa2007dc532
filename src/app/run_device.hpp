// Which device each rank computes on, and how the ranks' devices talk.
#pragma once

#include <memory>
#include <string>

#include "trireme/base/log.hpp"
#include "trireme/comm/session.hpp"
#include "trireme/tensor/device.hpp"
#include "trireme/train/config.hpp"

namespace trireme::app {

/// What a rank computes on; `world` is over all ranks, and takes memory of the device.
struct RunDevice {
    std::unique_ptr<Device> device;
    std::unique_ptr<Communicator> own_world;  ///< absent: the session's, on CPUs
    bool shared = false;                      ///< ranks share a GPU

    Communicator& world(Session& session) const { return own_world ? *own_world : session.world(); }
};

/// By run.device and run.share_gpu: each rank of a machine takes the GPU of its number among the ranks there.
/// With "auto" all ranks are on GPUs where each has one, else all on CPUs. Collective.
/// @throws Error (usage, all ranks) for "cuda" where a rank has none; where ranks would share one unasked.
RunDevice make_run_device(Session& session, const Config& config, const Log& log);

}  // namespace trireme::app
