// reduction=fast, gradients whole on every rank: lanes add into one gradient column; buckets of it are summed
// in place, each as soon as the last lane's backward has finished it. Every rank gets the sums, or, where
// states are sharded, each rank those of what it updates.
#include "parallel/reducers.hpp"
#include "parallel/wire.hpp"

namespace trireme {
namespace {

class FastReducer final : public GradientReducer, CollectiveWork {
public:
    FastReducer(CollectiveQueue& queue, Device& device, const Sharding& sharding, Arena& arena,
                const ReducerOptions& options)
        : queue_(queue), sharding_(sharding), arena_(arena), my_lanes_(options.my_lanes) {
        if (sharding.ranks() > 1) wire_ = make_wire(options.wire, device, sharding);
    }

    Range lanes_of(int worker) const override { return worker == 0 ? my_lanes_ : Range{}; }
    void begin_step() override {
        next_ = 0;
        filled_ = false;
    }
    Target begin_lane(int, std::int64_t) override { return {&arena_.gradients, true}; }
    void end_lane(Ops&, int, std::int64_t, bool empty) override { filled_ = filled_ || !empty; }

    void finished_below(std::int64_t offset) override {
        while (queue_.overlaps() && more() && next().range.end <= offset) post();
    }
    void finish_step(Ops& ops) override {
        if (!filled_) ops.fill(arena_.gradients.whole(), 0);
        while (wire_ && more()) post();
        queue_.wait_all();
    }
    std::int64_t collectives() const override { return collectives_; }
    std::int64_t buffer_bytes() const override {
        return wire_ ? static_cast<std::int64_t>(wire_->bytes()) : 0;
    }

private:
    bool more() const { return next_ < static_cast<int>(sharding_.buckets().size()); }
    const Bucket& next() const { return sharding_.bucket(next_); }
    void post() {
        collectives_ += next().statistics       ? 1
                        : sharding_.stage() > 0 ? wire_->scatter_collectives()
                                                : wire_->reduce_collectives();
        queue_.post(*this, next_++);
    }
    void run(Communicator& comm, int which) override {
        const Bucket& bucket = sharding_.bucket(which);
        const View all = arena_.gradients.range(bucket.range);
        if (bucket.statistics)
            comm.all_reduce(all, Reduce::sum);
        else if (sharding_.stage() == 0)
            wire_->reduce(comm, all);
        else
            wire_->scatter(comm, all, bucket.parts, arena_.gradients.range(sharding_.mine(bucket)), false);
    }

    CollectiveQueue& queue_;
    const Sharding& sharding_;
    Arena& arena_;
    Range my_lanes_;
    std::unique_ptr<Wire> wire_;  ///< absent on one rank alone
    int next_ = 0;                ///< bucket
    bool filled_ = false;         ///< a lane with samples has left its gradients
    std::int64_t collectives_ = 0;
};

}  // namespace

std::unique_ptr<GradientReducer> make_fast_reducer(CollectiveQueue& queue, Device& device,
                                                   const Sharding& sharding, Arena& arena,
                                                   const ReducerOptions& options) {
    return std::make_unique<FastReducer>(queue, device, sharding, arena, options);
}

}  // namespace trireme
