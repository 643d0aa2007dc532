// Whether all ranks are where they should be, and hold what they should hold alike.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trireme/comm/communicator.hpp"

namespace trireme {

/// Compares a fingerprint, at most 32 bits, with the sum of all ranks' fingerprints, which rode along with
/// something else. Costs nothing while they agree. @throws Error (failed, all ranks) that names the ranks
/// which differ from most, and what each is at, `in_words` (in the order of the ranks; called when they
/// differ alone).
void require_lockstep(Communicator& world, std::uint32_t fingerprint, double sum,
                      const std::function<std::string()>& in_words);

/// Compares what the ranks of `alike` should hold in the same bits. Collective over `world`, of which `alike`
/// is a part. @throws Error (failed, all ranks) naming the ranks of the world that differ from most of their
/// group. `what` is "the weights after step 500" or the like.
void require_same(Communicator& world, Communicator& alike, std::uint64_t checksum, const std::string& what);

}  // namespace trireme
