// The weights that lanes compute with: those of this rank's arena, or what the ranks of the data group have
// of them put together, for the whole step or for one block of layers at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "trireme/ops/ops.hpp"
#include "trireme/parallel/collective_queue.hpp"
#include "trireme/parallel/sharding.hpp"
#include "trireme/param/arena.hpp"
#include "trireme/param/blocks.hpp"

namespace trireme {

enum class WeightKind { current, average };

class LaneWeights {
public:
    virtual ~LaneWeights() = default;

    virtual const Column& weights() const = 0;   ///< float32: what norms, biases and statistics are read from
    virtual const Column& operands() const = 0;  ///< in the compute type: what products read
    /// Has to be told of each block before it is used; absent: all weights are there all the time.
    virtual BlockStorage* storage() { return nullptr; }
    /// Passes that each rank has to make where its lanes are some of `lanes`: with storage() the same on all
    /// ranks, else 0.
    virtual std::int64_t turns(std::int64_t) const { return 0; }

    /// Lanes compute with the weights, or their moving average, from now on. Where they compute in 16 bits,
    /// the rounded copy is made anew. To be called when weights have changed otherwise than by an update.
    /// Collective.
    virtual void use(Ops& ops, WeightKind kind) = 0;
    /// Before the lanes of a step: whatever came before, what they bring together is the same in every step.
    virtual void begin_step() {}
    /// After the update of this rank's pieces: brings those of the other ranks. Collective.
    virtual void updated(Ops&) {}

    /// Collectives so far, and bytes of its own beside the arena.
    virtual std::int64_t collectives() const { return 0; }
    virtual std::int64_t window_bytes() const { return 0; }
    virtual std::int64_t buffer_bytes() const { return 0; }
};

/// An arena that has everything.
class WholeWeights final : public LaneWeights {
public:
    /// Kept by reference.
    explicit WholeWeights(const Arena& arena) : arena_(arena), weights_(&arena.weights) {}

    const Column& weights() const override { return *weights_; }
    const Column& operands() const override { return arena_.low ? *arena_.low : *weights_; }
    void use(Ops& ops, WeightKind kind) override;

private:
    const Arena& arena_;
    const Column* weights_;
};

/// Everything is kept by reference; the arena has the pieces of the sharding. `eval_average`: use() will be
/// asked for the average. Collective where the queue's thread is.
std::unique_ptr<LaneWeights> make_lane_weights(CollectiveQueue& queue, Device& device,
                                               const ParameterTable& table, const Sharding& sharding,
                                               Arena& arena, bool eval_average);

/// What of this rank's weights stands aside while the average is used in their place.
std::int64_t elements_put_aside(const Sharding& sharding);

}  // namespace trireme
