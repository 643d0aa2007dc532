#include "trireme/parallel/lane_weights.hpp"

#include "parallel/sharded_weights.hpp"

namespace trireme {

void WholeWeights::use(Ops& ops, WeightKind kind) {
    weights_ = kind == WeightKind::average ? &*arena_.average : &arena_.weights;
    if (arena_.low) ops.copy(weights_->whole(), arena_.low->whole());
}

std::unique_ptr<LaneWeights> make_lane_weights(CollectiveQueue& queue, Device& device,
                                               const ParameterTable& table, const Sharding& sharding,
                                               Arena& arena, bool eval_average) {
    if (sharding.stage() == 0) return std::make_unique<WholeWeights>(arena);
    return std::make_unique<ShardedWeights>(queue, device, table, sharding, arena, eval_average);
}

}  // namespace trireme
