// Sums the gradients of all lanes of all ranks into the arena's gradient column. The trainer runs lanes; the
// reducer says where each lane's gradients go, and what must happen before the update.
#pragma once

#include <cstdint>
#include <memory>

#include "trireme/comm/communicator.hpp"
#include "trireme/ops/ops.hpp"
#include "trireme/param/arena.hpp"
#include "trireme/param/table.hpp"

namespace trireme {

struct ReducerOptions {
    std::int64_t lanes = 1;  ///< V, of the whole step
    Range my_lanes;          ///< those that this rank executes
    int workers = 1;         ///< lanes that run side by side on this rank
    bool reproducible = false;
    DType wire = DType::f32;  ///< what gradients are sent as: float32, or bfloat16 (not with reproducible)
    bool overlap = false;     ///< reduce buckets in a thread of their own while backward goes on
    std::int64_t bucket_bytes = 25 << 20;
};

class GradientReducer {
public:
    /// Where a lane's gradients go: into a column in which this rank's lanes add up (the first one to come
    /// sets it), or into one of the lane's own.
    struct Target {
        const Column* gradients;
        bool adds_up;
    };

    virtual ~GradientReducer() = default;

    /// Lanes of my_lanes that worker w executes, in this order.
    virtual Range lanes_of(int worker) const = 0;

    virtual void begin_step() = 0;
    /// Called by the worker before and after each of its lanes' backward passes, those of empty lanes
    /// included (they add nothing); begin_lane() also before a forward pass, which leaves BatchNorm's
    /// statistics there.
    virtual Target begin_lane(int worker, std::int64_t lane) = 0;
    virtual void end_lane(Ops& ops, int worker, std::int64_t lane, bool empty) = 0;
    /// In the backward pass of this rank's last lane that has samples: everything below this offset is
    /// complete.
    virtual void finished_below(std::int64_t offset) = 0;
    /// After all lanes: waits until the gradient column holds the sum over all lanes of all ranks.
    /// Collective.
    virtual void finish_step(Ops& ops) = 0;

    /// Collectives over gradients so far, for tests and profiles.
    virtual std::int64_t collectives() const = 0;
};

std::unique_ptr<GradientReducer> make_reducer(Communicator& data, Device& device, const ParameterTable& table,
                                              Arena& arena, const ReducerOptions& options);

}  // namespace trireme
