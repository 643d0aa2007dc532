#include "trireme/parallel/sharding.hpp"

#include <algorithm>

namespace trireme {

Sharding::Sharding(const ParameterTable& table, const ShardingOptions& options)
    : options_(options), unit_of_(static_cast<std::size_t>(table.blocks()), -1) {
    if (options_.ranks == 1) options_.stage = 0;
    cut(table);
    if (shards_gradients()) make_units(table);
    make_pieces(table);
}

void Sharding::cut(const ParameterTable& table) {
    const bool sharded = stage() > 0;
    std::int64_t statistics_end = 0;
    for (const Parameter& parameter : table.all())
        if (parameter.role == Role::statistic) statistics_end = std::max(statistics_end, parameter.place.end);
    for (const Range range : make_buckets(table, options_.bucket_bytes,
                                          {.statistics_apart = sharded || options_.statistics_apart,
                                          .tied_apart = sharded,
                                          .whole_blocks = shards_gradients()})) {
        const bool statistics = (sharded || options_.statistics_apart) && range.begin < statistics_end;
        buckets_.push_back({.range = range, .statistics = statistics});
        for (int q = 0; q < ranks(); ++q)
            buckets_.back().parts.push_back(shard_of({0, range.size()}, ranks(), q));
    }
}

/// Buckets that have parameters of the same block are wanted together.
void Sharding::make_units(const ParameterTable& table) {
    auto id = table.order().begin();
    int block_before = -1;
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
        Bucket& bucket = buckets_[b];
        const auto first = std::find_if(id, table.order().end(), [&](ParameterId i) {
            return table.slot(i).begin >= bucket.range.begin && !table.slot(i).empty();
        });
        id = std::find_if(first, table.order().end(),
                          [&](ParameterId i) { return table.slot(i).begin >= bucket.range.end; });
        const bool tied = table[*first].tied;
        if (bucket.statistics || tied) continue;
        if (table[*first].block != block_before || units_.empty()) units_.emplace_back();
        units_.back().buckets.push_back(static_cast<int>(b));
        units_.back().size += bucket.range.size();
        bucket.unit = static_cast<int>(units_.size()) - 1;
        for (auto i = first; i != id; ++i)
            if (!table.slot(*i).empty()) {
                block_before = table[*i].block;
                unit_of_[static_cast<std::size_t>(block_before)] = bucket.unit;
            }
    }
}

void Sharding::make_pieces(const ParameterTable& table) {
    if (stage() == 0) {
        const std::vector<Range> all = {{0, table.arena_size()}};
        pieces_ = {all, all, all, all};
        return;
    }
    for (const Bucket& bucket : buckets_) {
        const Range owned = bucket.statistics ? bucket.range : mine(bucket);
        const Range kept = bucket.unit < 0 ? bucket.range : owned;
        const auto add = [](std::vector<Range>& pieces, Range piece) {
            if (!piece.empty()) pieces.push_back(piece);
        };
        add(pieces_.weights, shards_weights() ? kept : bucket.range);
        add(pieces_.gradients, shards_gradients() ? kept : bucket.range);
        add(pieces_.updated, owned);
        if (!bucket.statistics) add(pieces_.states, owned);
    }
}

std::int64_t Sharding::largest_bucket() const {
    std::int64_t largest = 0;
    for (const Bucket& bucket : buckets_) largest = std::max(largest, bucket.range.size());
    return largest;
}

}  // namespace trireme
