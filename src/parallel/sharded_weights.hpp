// Weights that the ranks of the data group update in parts. Where they are whole on every rank (stages 1 and
// 2; in stage 3 the tied ones) the parts are gathered after each update. The others are gathered into windows
// before each pass through their blocks.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "parallel/windows.hpp"
#include "trireme/parallel/lane_weights.hpp"

namespace trireme {

class ShardedWeights final : public LaneWeights, BlockStorage, CollectiveWork {
public:
    ShardedWeights(CollectiveQueue& queue, Device& device, const ParameterTable& table,
                   const Sharding& sharding, Arena& arena, bool eval_average);

    const Column& weights() const override { return wide_column_ ? *wide_column_ : arena_.weights; }
    const Column& operands() const override {
        if (low_column_) return *low_column_;
        return arena_.low && !wide_column_ ? *arena_.low : weights();
    }
    BlockStorage* storage() override { return sharding_.shards_weights() ? this : nullptr; }
    std::int64_t turns(std::int64_t lanes) const override;

    void use(Ops& ops, WeightKind kind) override;
    void begin_step() override { forget_windows(); }
    void updated(Ops& ops) override;
    void enter(Ops& ops, int block, int until, bool backward) override;

    std::int64_t collectives() const override { return collectives_; }
    std::int64_t window_bytes() const override;
    std::int64_t buffer_bytes() const override { return static_cast<std::int64_t>(aside_.bytes()); }

private:
    void run(Communicator& comm, int which) override;
    void fill(Communicator& comm, const Windows& windows, const Column& from, int bucket);
    void gather(Ops& ops);
    void swap_in(Ops& ops, bool average);
    void fetch(int unit);
    void forget_windows();
    int buckets() const { return static_cast<int>(sharding_.buckets().size()); }

    CollectiveQueue& queue_;
    const Sharding& sharding_;
    Arena& arena_;
    std::unique_ptr<Ops> ops_;  ///< of whoever runs what the queue has
    std::vector<int> whole_;    ///< buckets of weights that every rank has whole
    bool eval_average_;
    WeightKind kind_ = WeightKind::current;
    Buffer aside_;                       ///< this rank's parts of those, while the average is in their place
    std::optional<Windows> wide_, low_;  ///< of float32 and of 16 bits, where weights are sharded
    std::optional<Column> wide_column_, low_column_;
    struct Slot {
        int unit = -1;
        CollectiveQueue::Ticket ticket = CollectiveQueue::none;
    };
    std::vector<Slot> slots_;  ///< what each window holds, or will hold
    std::atomic<std::int64_t> collectives_{0};
};

}  // namespace trireme
