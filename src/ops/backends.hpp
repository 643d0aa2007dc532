// The factories that make_ops chooses from; one definition of each is linked in.
#pragma once

#include <memory>

#include "trireme/ops/ops.hpp"

namespace trireme {

std::unique_ptr<Ops> make_cpu_ops(Device& device, int threads);
std::unique_ptr<Ops> make_cuda_ops(Device& device, int threads);
std::unique_ptr<Ops> make_meta_ops();

}  // namespace trireme
