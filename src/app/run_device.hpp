// Which device a command computes on.
#pragma once

#include <memory>
#include <string>

#include "trireme/tensor/device.hpp"

namespace trireme::app {

/// The device of run.device=`kind`. Operations run on GPUs, but what stands above them (loader,
/// communicators, checkpoints) still takes memory for the host's: so "auto" is the CPU, without a look at
/// GPUs.
/// @throws Error (usage, all ranks alike) for "cuda": what is missing on this machine, or else this.
std::unique_ptr<Device> make_run_device(const std::string& kind);

/// Why "auto" is no GPU: a clause.
std::string gpu_absence();

}  // namespace trireme::app
