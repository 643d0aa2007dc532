// Sharded gradients: each rank keeps the sums of what it updates. A lane's gradients of one unit of blocks
// lie in a window until its backward pass is through with them; then they are summed over the ranks, each
// rank adds what is its own to what it has, and the window is used for the next unit. So every pass of every
// rank is reduced on its own, those without samples too, which bring zeros. Statistics and tied weights,
// which are written at two moments of a pass, are whole on every rank and summed once, at the end of the
// step.
#include <vector>

#include "parallel/reducers.hpp"
#include "parallel/windows.hpp"
#include "parallel/wire.hpp"

namespace trireme {
namespace {

class WindowReducer final : public GradientReducer, BlockStorage, CollectiveWork {
public:
    WindowReducer(CollectiveQueue& queue, Device& device, const ParameterTable& table,
                  const Sharding& sharding, Arena& arena, const ReducerOptions& options)
        : queue_(queue),
          sharding_(sharding),
          arena_(arena),
          my_lanes_(options.my_lanes),
          turns_(part_of({0, options.lanes}, sharding.ranks(), 0).size()),
          wire_(make_wire(options.wire, device, sharding)),
          windows_(device, table, sharding, Wanted::all, DType::f32,
                   window_count(sharding, queue.overlaps())),
          column_(windows_.column(arena.gradients)),
          begun_(sharding.buckets().size()),
          busy_(sharding.units().size(), CollectiveQueue::none) {}

    Range lanes_of(int worker) const override { return worker == 0 ? my_lanes_ : Range{}; }
    std::int64_t turns(int worker) const override { return worker == 0 ? turns_ : 0; }
    BlockStorage* storage() override { return this; }

    void begin_step() override {
        begun_.assign(begun_.size(), false);
        filled_ = false;
    }
    Target begin_lane(int, std::int64_t) override { return {&column_, true}; }
    void end_lane(Ops&, int, std::int64_t, bool empty) override {
        close();
        filled_ = filled_ || !empty;
    }

    void enter(Ops& ops, int block, int, bool) override {
        const int unit = sharding_.unit_of(block);
        if (unit < 0 || unit == open_) return;
        close();
        open_ = unit;
        next_ = 0;
        queue_.wait(busy_[static_cast<std::size_t>(windows_.slot_of(unit))]);
        // Gaps between parameters, and blocks that this pass does not come to, stay zero.
        ops.fill(windows_.window(unit), 0);
    }
    void finished_below(std::int64_t offset) override {
        while (more() && sharding_.bucket(next()).range.end <= offset) post(take_next());
    }

    void finish_step(Ops& ops) override {
        for (int b = 0; b < static_cast<int>(sharding_.buckets().size()); ++b) {
            const Bucket& bucket = sharding_.bucket(b);
            if (bucket.unit >= 0) continue;
            if (!filled_) ops.fill(arena_.gradients.range(bucket.range), 0);
            post(b);
        }
        queue_.wait_all();
    }
    std::int64_t collectives() const override { return collectives_; }
    std::int64_t window_bytes() const override { return static_cast<std::int64_t>(windows_.bytes()); }
    std::int64_t buffer_bytes() const override { return static_cast<std::int64_t>(wire_->bytes()); }

private:
    bool more() const { return open_ >= 0 && next_ < sharding_.unit(open_).buckets.size(); }
    int next() const { return sharding_.unit(open_).buckets[next_]; }
    int take_next() { return sharding_.unit(open_).buckets[next_++]; }
    void close() {
        while (more()) post(take_next());
        open_ = -1;
    }
    void post(int number) {
        const auto at = static_cast<std::size_t>(number);
        const CollectiveQueue::Ticket ticket = queue_.post(*this, 2 * number + (begun_[at] ? 1 : 0));
        begun_[at] = true;
        collectives_ += sharding_.bucket(number).statistics ? 1 : wire_->scatter_collectives();
        if (open_ >= 0) busy_[static_cast<std::size_t>(windows_.slot_of(open_))] = ticket;
    }
    void run(Communicator& comm, int which) override {
        const int number = which / 2;
        const bool add = which % 2 != 0;
        const Bucket& bucket = sharding_.bucket(number);
        if (bucket.statistics) return comm.all_reduce(arena_.gradients.range(bucket.range), Reduce::sum);
        const View all = bucket.unit < 0 ? arena_.gradients.range(bucket.range) : windows_.bucket(number);
        wire_->scatter(comm, all, bucket.parts, arena_.gradients.range(sharding_.mine(bucket)), add);
    }

    CollectiveQueue& queue_;
    const Sharding& sharding_;
    Arena& arena_;
    Range my_lanes_;
    std::int64_t turns_;
    std::unique_ptr<Wire> wire_;
    Windows windows_;
    Column column_;                              ///< what lanes write to
    std::vector<bool> begun_;                    ///< by bucket: this step's sum has a first summand
    std::vector<CollectiveQueue::Ticket> busy_;  ///< by window: until when it is on its way
    int open_ = -1;                              ///< unit whose gradients are being written
    std::size_t next_ = 0;                       ///< its first bucket that is not on its way
    bool filled_ = false;                        ///< a lane with samples has left its gradients
    std::int64_t collectives_ = 0;
};

}  // namespace

std::unique_ptr<GradientReducer> make_window_reducer(CollectiveQueue& queue, Device& device,
                                                     const ParameterTable& table, const Sharding& sharding,
                                                     Arena& arena, const ReducerOptions& options) {
    return std::make_unique<WindowReducer>(queue, device, table, sharding, arena, options);
}

}  // namespace trireme
