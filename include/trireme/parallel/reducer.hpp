// Sums the gradients of all lanes of all ranks into the arena's gradient column: what this rank updates of
// it. The trainer runs lanes; the reducer says where each lane's gradients go, and what must happen before
// the update.
#pragma once

#include <cstdint>
#include <memory>

#include "trireme/ops/ops.hpp"
#include "trireme/parallel/collective_queue.hpp"
#include "trireme/parallel/sharding.hpp"
#include "trireme/param/arena.hpp"
#include "trireme/param/blocks.hpp"
#include "trireme/param/table.hpp"

namespace trireme {

struct ReducerOptions {
    std::int64_t lanes = 1;     ///< V, of the whole step
    Range my_lanes{};           ///< those that this rank executes
    int workers = 1;            ///< lanes that run side by side on this rank
    bool reproducible = false;  ///< not with a sharded state
    DType wire = DType::f32;    ///< what gradients are sent as: float32, or bfloat16 (not with reproducible)
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
    /// Passes that the worker has to make in each step, with a lane or, after its lanes, without: the same on
    /// all ranks where every pass is reduced on its own.
    virtual std::int64_t turns(int worker) const { return lanes_of(worker).size(); }

    virtual void begin_step() = 0;
    /// Called by the worker before and after each of its lanes' backward passes, those of empty lanes
    /// included (they add nothing); begin_lane() also before a forward pass, which leaves BatchNorm's
    /// statistics there.
    virtual Target begin_lane(int worker, std::int64_t lane) = 0;
    virtual void end_lane(Ops& ops, int worker, std::int64_t lane, bool empty) = 0;
    /// Has to be told of each block of a backward pass; absent: every place for gradients is there all the
    /// time.
    virtual BlockStorage* storage() { return nullptr; }
    /// In the backward pass of this rank's last lane that has samples (with storage(): of any lane):
    /// everything below this offset is complete.
    virtual void finished_below(std::int64_t offset) = 0;
    /// After all lanes: waits until the gradient column holds the sum over all lanes of all ranks, where this
    /// rank updates it. Collective.
    virtual void finish_step(Ops& ops) = 0;

    /// Collectives over gradients so far, for tests and profiles; bytes of its own beside the arena.
    virtual std::int64_t collectives() const = 0;
    virtual std::int64_t window_bytes() const { return 0; }
    virtual std::int64_t buffer_bytes() const { return 0; }
};

/// Everything but the options is kept by reference; the arena has the pieces of the sharding.
std::unique_ptr<GradientReducer> make_reducer(CollectiveQueue& queue, Device& device,
                                              const ParameterTable& table, const Sharding& sharding,
                                              Arena& arena, const ReducerOptions& options);

}  // namespace trireme
