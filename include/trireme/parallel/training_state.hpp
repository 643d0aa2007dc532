// What is trained, and what is kept along with it, over the ranks of the data group: the arena with this
// rank's pieces, and what brings together what the ranks have of it.
#pragma once

#include <cstdint>
#include <memory>

#include "trireme/parallel/collective_queue.hpp"
#include "trireme/parallel/lane_weights.hpp"
#include "trireme/parallel/reducer.hpp"
#include "trireme/parallel/sharding.hpp"
#include "trireme/param/arena.hpp"

namespace trireme {

struct TrainingStateOptions {
    int stage = 0;  ///< parallel.zero
    std::int64_t bucket_bytes = 25 << 20;
    bool overlap = false;       ///< communication in a thread of its own while lanes go on
    bool eval_average = false;  ///< lanes will also compute with the moving average
    ArenaOptions arena{};       ///< the pieces are the sharding's
    ReducerOptions reducer{};
};

/// Bytes on one rank, without what layers compute (the workspaces).
struct StateBytes {
    std::int64_t weights = 0, low = 0, gradients = 0, states = 0, average = 0;  ///< the arena's columns
    std::int64_t weight_windows = 0, gradient_windows = 0;  ///< blocks that are whole while they are in use
    std::int64_t buffers = 0;  ///< buckets, and parts of them, on their way; weights put aside for validation
    std::int64_t total() const {
        return weights + low + gradients + states + average + weight_windows + gradient_windows + buffers;
    }
    friend bool operator==(const StateBytes&, const StateBytes&) = default;
};

/// What a rank of `ranks` data-parallel ones will allocate, from the table alone. Not for
/// reducer.reproducible, which keeps gradients of several lanes.
StateBytes state_bytes(const ParameterTable& table, int rank, int ranks, const TrainingStateOptions& options);

struct TrainingState {
    /// Everything but the options is kept by reference. Collective.
    TrainingState(Communicator& data, Device& device, const ParameterTable& table,
                  const TrainingStateOptions& options);
    TrainingState(const TrainingState&) = delete;
    TrainingState& operator=(const TrainingState&) = delete;

    /// What is allocated.
    StateBytes bytes() const;

    Sharding sharding;
    Arena arena;
    CollectiveQueue queue;
    std::unique_ptr<LaneWeights> weights;
    std::unique_ptr<GradientReducer> reducer;
};

}  // namespace trireme
