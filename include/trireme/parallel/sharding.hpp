// Which rank of the data group keeps what of each column when the training state is spread over the group
// (ZeRO: Rajbhandari et al. 2020). A plan made from the parameter table alone: nothing is allocated or sent.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/param/arena.hpp"
#include "trireme/param/partition.hpp"
#include "trireme/param/table.hpp"

namespace trireme {

struct ShardingOptions {
    int stage = 0;  ///< parallel.zero: 1 shards the optimizer's state, 2 also gradients, 3 also weights
    int rank = 0, ranks = 1;  ///< of the data group; one rank alone has everything, whatever the stage
    std::int64_t bucket_bytes = 25 << 20;
    bool statistics_apart = false;  ///< in stage 0 too: they are sent otherwise than weights
};

/// An interval of the arena that is reduced and gathered at once.
struct Bucket {
    Range range{};
    bool statistics = false;  ///< nothing else in it
    int unit = -1;            ///< the unit of which it is a part; absent where the bucket is whole in memory
    std::vector<Range> parts{};  ///< what each rank owns of weights, from the first element of the bucket on
};

/// Neighbouring blocks whose parameters are in memory at the same time, in one window: several blocks in one
/// bucket, or one block in one or more buckets.
struct WindowUnit {
    std::vector<int> buckets{};
    std::int64_t size = 0;  ///< elements
};

class Sharding {
public:
    Sharding(const ParameterTable& table, const ShardingOptions& options);

    int stage() const { return options_.stage; }  ///< 0 where there is one rank
    int rank() const { return options_.rank; }
    int ranks() const { return options_.ranks; }
    bool shards_gradients() const { return stage() >= 2; }
    bool shards_weights() const { return stage() >= 3; }

    /// In arena order. In a sharded state statistics, and every tied parameter, have buckets of their own.
    const std::vector<Bucket>& buckets() const { return buckets_; }
    const Bucket& bucket(int number) const { return buckets_[static_cast<std::size_t>(number)]; }
    std::int64_t largest_bucket() const;
    /// What this rank owns of a weight bucket: it updates this, and keeps its states.
    Range mine(const Bucket& bucket) const { return shard_of(bucket.range, ranks(), rank()); }
    const ArenaPieces& pieces() const { return pieces_; }

    /// In arena order, that of the backward pass. None below stage 2.
    const std::vector<WindowUnit>& units() const { return units_; }
    const WindowUnit& unit(int number) const { return units_[static_cast<std::size_t>(number)]; }
    /// The unit that has a block's parameters; -1: they are whole in memory, or there are none.
    int unit_of(int block) const { return unit_of_[static_cast<std::size_t>(block)]; }

private:
    void cut(const ParameterTable& table);
    void make_units(const ParameterTable& table);
    void make_pieces(const ParameterTable& table);

    ShardingOptions options_;
    std::vector<Bucket> buckets_;
    std::vector<WindowUnit> units_;
    std::vector<int> unit_of_;  ///< by block
    ArenaPieces pieces_;
};

}  // namespace trireme
