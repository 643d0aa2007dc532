#include "parallel/wire.hpp"

#include <algorithm>

namespace trireme {
namespace {

/// Elements that one rank owns of the largest bucket.
std::int64_t largest_part(const Sharding& sharding) {
    return shard_of({0, sharding.largest_bucket()}, sharding.ranks(), 0).size();
}

class FloatWire final : public Wire {
public:
    FloatWire(Device& device, const Sharding& sharding)
        : ops_(make_ops(device, 1)),
          part_(device, static_cast<std::size_t>(wire_bytes(DType::f32, sharding))) {}

    void reduce(Communicator& comm, View bucket) override { comm.all_reduce(bucket, Reduce::sum); }
    void scatter(Communicator& comm, View bucket, std::span<const Range> parts, View mine,
                 bool add) override {
        const View sum = view_of(part_.as<float>(), mine.shape);
        comm.reduce_scatter(bucket, parts, sum, Reduce::sum);
        if (add)
            ops_->add_scaled(sum, 1, mine);
        else
            ops_->copy(sum, mine);
    }
    int reduce_collectives() const override { return 1; }
    std::size_t bytes() const override { return part_.bytes(); }

private:
    std::unique_ptr<Ops> ops_;  // its own: buckets may be reduced beside the backward pass
    Buffer part_;               // [largest part], absent where nothing is scattered
};

class Bf16Wire final : public Wire {
public:
    Bf16Wire(Device& device, const Sharding& sharding)
        : ops_(make_ops(device, 1)),
          part_(largest_part(sharding)),
          bucket_(device, static_cast<std::size_t>(sharding.largest_bucket()) * size_of(DType::bf16)),
          received_(device, static_cast<std::size_t>(part_ * sharding.ranks()) * size_of(DType::bf16)),
          parts_(static_cast<std::size_t>(sharding.ranks())),
          places_(static_cast<std::size_t>(sharding.ranks())) {}

    void reduce(Communicator& comm, View bucket) override {
        for (int q = 0; q < comm.size(); ++q)
            parts_[static_cast<std::size_t>(q)] = shard_of({0, bucket.count()}, comm.size(), q);
        const Range part = parts_[static_cast<std::size_t>(comm.rank())];
        const View mine = view_of(bucket.as<float>() + part.begin, Shape{part.size()});
        scatter(comm, bucket, parts_, mine, false);
        ops_->copy(mine, low(bucket_, part));
        comm.all_gather(low(bucket_, {0, bucket.count()}), parts_);
        ops_->copy(low(bucket_, {0, bucket.count()}), bucket);
    }
    void scatter(Communicator& comm, View bucket, std::span<const Range> parts, View mine,
                 bool add) override {
        for (std::size_t q = 0; q < places_.size(); ++q) {
            const std::int64_t begin = static_cast<std::int64_t>(q) * part_;
            places_[q] = {begin, begin + mine.count()};
        }
        ops_->copy(bucket, low(bucket_, {0, bucket.count()}));
        comm.all_to_all(low(bucket_, {0, bucket.count()}), parts, low(received_, {0, part_ * comm.size()}),
                        places_);
        if (!add) ops_->copy(low(received_, places_[0]), mine);
        for (std::size_t q = add ? 0 : 1; q < places_.size(); ++q)
            ops_->add_scaled(low(received_, places_[q]), 1, mine);
    }
    int reduce_collectives() const override { return 2; }
    std::size_t bytes() const override { return bucket_.bytes() + received_.bytes(); }

private:
    static View low(const Buffer& buffer, Range part) {
        return {buffer.as<std::uint16_t>() + part.begin, DType::bf16, Shape{part.size()}};
    }

    std::unique_ptr<Ops> ops_;           // its own: buckets may be reduced beside the backward pass
    std::int64_t part_;                  // elements of the largest part
    Buffer bucket_;                      // [largest bucket]
    Buffer received_;                    // [ranks, part_]: every rank's share of this rank's part
    std::vector<Range> parts_, places_;  // of each rank: within the bucket, within received_
};

}  // namespace

std::unique_ptr<Wire> make_wire(DType type, Device& device, const Sharding& sharding) {
    if (type == DType::f32) return std::make_unique<FloatWire>(device, sharding);
    return std::make_unique<Bf16Wire>(device, sharding);
}

std::int64_t wire_bytes(DType type, const Sharding& sharding) {
    const std::int64_t part = largest_part(sharding);
    if (type == DType::f32)
        return sharding.stage() == 0 ? 0 : part * static_cast<std::int64_t>(sizeof(float));
    return (sharding.largest_bucket() + part * sharding.ranks()) *
           static_cast<std::int64_t>(size_of(DType::bf16));
}

}  // namespace trireme
