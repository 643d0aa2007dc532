#include "parallel/sharded_weights.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

/// Buckets of weights that every rank has whole, though each updates a part of them.
std::vector<int> whole_buckets(const Sharding& sharding) {
    std::vector<int> whole;
    for (int b = 0; b < static_cast<int>(sharding.buckets().size()); ++b) {
        const Bucket& bucket = sharding.bucket(b);
        if (!bucket.statistics && (bucket.unit < 0 || !sharding.shards_weights())) whole.push_back(b);
    }
    return whole;
}

}  // namespace

std::int64_t elements_put_aside(const Sharding& sharding) {
    std::int64_t elements = 0;
    if (sharding.stage() > 0)
        for (const int b : whole_buckets(sharding)) elements += sharding.mine(sharding.bucket(b)).size();
    return elements;
}

ShardedWeights::ShardedWeights(CollectiveQueue& queue, Device& device, const ParameterTable& table,
                               const Sharding& sharding, Arena& arena, bool eval_average)
    : queue_(queue),
      sharding_(sharding),
      arena_(arena),
      ops_(make_ops(device, 1)),
      whole_(whole_buckets(sharding)),
      eval_average_(eval_average),
      aside_(device,
             eval_average ? static_cast<std::size_t>(elements_put_aside(sharding)) * sizeof(float) : 0) {
    if (!sharding.shards_weights()) return;
    const int count = window_count(sharding, queue.overlaps());
    slots_.resize(static_cast<std::size_t>(count));
    const auto windows = [&](std::optional<Windows>& place, Wanted wanted, DType type) {
        place.emplace(device, table, sharding, wanted, type, count);
    };
    windows(wide_, arena.low ? Wanted::others : Wanted::all, DType::f32);
    wide_column_ = wide_->column(arena.weights);
    if (!arena.low) return;
    windows(low_, Wanted::operands, arena.low->dtype());
    low_column_ = low_->column(*arena.low);
}

std::int64_t ShardedWeights::turns(std::int64_t lanes) const {
    return sharding_.shards_weights() ? part_of({0, lanes}, sharding_.ranks(), 0).size() : 0;
}

std::int64_t ShardedWeights::window_bytes() const {
    return static_cast<std::int64_t>((wide_ ? wide_->bytes() : 0) + (low_ ? low_->bytes() : 0));
}

void ShardedWeights::use(Ops& ops, WeightKind kind) {
    if (kind == WeightKind::average && !eval_average_)
        throw failure("the average of a sharded state is wanted, but no room was made for it");
    if (kind != kind_)
        swap_in(ops, kind == WeightKind::average);
    else if (arena_.low && kind == WeightKind::current)
        ops.copy(arena_.weights.whole(), arena_.low->whole());
    kind_ = kind;
    forget_windows();
}

void ShardedWeights::updated(Ops& ops) {
    gather(ops);
    forget_windows();
}

/// Puts the average in the place of the weights that are whole, or the weights back.
void ShardedWeights::swap_in(Ops& ops, bool average) {
    std::int64_t at = 0;
    for (const int b : whole_) {
        const Range mine = sharding_.mine(sharding_.bucket(b));
        const View weights = arena_.weights.range(mine),
                   aside = view_of(aside_.as<float>() + at, weights.shape);
        at += mine.size();
        if (average) {
            ops.copy(weights, aside);
            ops.copy(arena_.average->range(mine), weights);
        } else {
            ops.copy(aside, weights);
        }
    }
    gather(ops);
}

/// Every rank's part of the weights that are whole. The 16-bit copy is rounded here from what has come: half
/// as many bytes again on the wire would cost more.
void ShardedWeights::gather(Ops& ops) {
    CollectiveQueue::Ticket last = CollectiveQueue::none;
    for (const int b : whole_) last = queue_.post(*this, b);
    CollectiveQueue::Ticket ticket = last - static_cast<CollectiveQueue::Ticket>(whole_.size());
    for (const int b : whole_) {
        queue_.wait(++ticket);
        const Range range = sharding_.bucket(b).range;
        if (arena_.low) ops.copy(arena_.weights.range(range), arena_.low->range(range));
    }
}

void ShardedWeights::enter(Ops&, int block, int until, bool) {
    const int unit = sharding_.unit_of(block);
    if (unit >= 0) fetch(unit);
    if (slots_.size() > 1) {  // what comes next, while this one is in use
        const int step = until < block ? -1 : 1;
        int next = -1;
        for (int on = block; on != until && (next < 0 || next == unit);) next = sharding_.unit_of(on += step);
        if (next >= 0 && next != unit) fetch(next);
    }
    if (unit >= 0) queue_.wait(slots_[static_cast<std::size_t>(wide_->slot_of(unit))].ticket);
}

void ShardedWeights::fetch(int unit) {
    Slot& slot = slots_[static_cast<std::size_t>(wide_->slot_of(unit))];
    if (slot.unit == unit) return;
    slot = {unit, queue_.post(*this, buckets() + unit)};
}

void ShardedWeights::forget_windows() {
    std::fill(slots_.begin(), slots_.end(), Slot{});
}

void ShardedWeights::run(Communicator& comm, int which) {
    if (which < buckets()) {
        ++collectives_;
        const Bucket& bucket = sharding_.bucket(which);
        comm.all_gather(arena_.weights.range(bucket.range), bucket.parts);
        return;
    }
    const bool average = kind_ == WeightKind::average;
    for (const int b : sharding_.unit(which - buckets()).buckets) {
        fill(comm, *wide_, average ? *arena_.average : arena_.weights, b);
        if (low_) fill(comm, *low_, average ? *arena_.average : *arena_.low, b);
    }
}

void ShardedWeights::fill(Communicator& comm, const Windows& windows, const Column& from, int bucket) {
    const View all = windows.bucket(bucket);
    if (all.count() == 0) return;
    ++collectives_;
    windows.put(*ops_, from, bucket);
    comm.all_gather(all, windows.ranks_of(bucket));
}

}  // namespace trireme
