// What has to be the same on all ranks of a training, and whether it is.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/checkpoint/position.hpp"
#include "trireme/parallel/training_state.hpp"
#include "trireme/train/config.hpp"
#include "trireme/train/runtime.hpp"

namespace trireme {

class LockstepGuard {
public:
    LockstepGuard(Runtime& runtime, const Config& config);

    /// Of the configuration, the position, and the collectives of all ranks up to now. Rides along with every
    /// step's sums.
    std::uint32_t fingerprint(const Position& position) const;
    std::string in_words(const Position& position) const;

    /// Every run.check_every steps, and before the first one: the weights of all replicas have the same bits.
    /// Collective. @throws Error (failed, all ranks) naming the ranks that differ.
    void check_weights(const TrainingState& state, std::int64_t step);

private:
    Runtime& runtime_;
    std::int64_t every_;
    std::uint64_t config_;
};

/// Of the bits of a column's own memory, element by element in order.
std::uint64_t checksum(Device& device, const Column& column);

}  // namespace trireme
