#include "parallel/wire.hpp"

#include <algorithm>

namespace trireme {
namespace {

class FloatWire final : public Wire {
public:
    void reduce(Communicator& comm, const Column& gradients, Range bucket) override {
        comm.all_reduce(gradients.range(bucket), Reduce::sum);
    }
    int collectives() const override { return 1; }
};

class Bf16Wire final : public Wire {
public:
    Bf16Wire(Device& device, const ParameterTable& table, int ranks, std::int64_t largest)
        : ops_(make_ops(device, 1)),
          slice_(part_of({0, largest}, ranks, 0).size()),
          bucket_(device, static_cast<std::size_t>(largest) * size_of(DType::bf16)),
          received_(device, static_cast<std::size_t>(slice_ * ranks) * size_of(DType::bf16)),
          slices_(static_cast<std::size_t>(ranks)),
          places_(static_cast<std::size_t>(ranks)) {
        for (const Parameter& parameter : table.all())
            if (parameter.role == Role::statistic)
                statistics_end_ = std::max(statistics_end_, parameter.place.end);
    }

    void reduce(Communicator& comm, const Column& gradients, Range bucket) override {
        if (bucket.begin < statistics_end_) return comm.all_reduce(gradients.range(bucket), Reduce::sum);
        const auto ranks = slices_.size();
        for (std::size_t q = 0; q < ranks; ++q)
            slices_[q] = part_of({0, bucket.size()}, comm.size(), static_cast<std::int64_t>(q));
        const Range mine = slices_[static_cast<std::size_t>(comm.rank())];
        for (std::size_t q = 0; q < ranks; ++q) {
            const std::int64_t begin = static_cast<std::int64_t>(q) * slice_;
            places_[q] = {begin, begin + mine.size()};
        }
        const View sums = gradients.range(bucket);
        ops_->copy(sums, low(bucket_, {0, bucket.size()}));
        comm.all_to_all(low(bucket_, {0, bucket.size()}), slices_, low(received_, {0, slice_ * comm.size()}),
                        places_);
        const View sum = gradients.range({bucket.begin + mine.begin, bucket.begin + mine.end});
        ops_->copy(low(received_, places_[0]), sum);
        for (std::size_t q = 1; q < ranks; ++q) ops_->add_scaled(low(received_, places_[q]), 1, sum);
        ops_->copy(sum, low(bucket_, mine));
        comm.all_gather(low(bucket_, {0, bucket.size()}), slices_);
        ops_->copy(low(bucket_, {0, bucket.size()}), sums);
    }
    int collectives() const override { return 2; }

private:
    static View low(const Buffer& buffer, Range part) {
        return {buffer.as<std::uint16_t>() + part.begin, DType::bf16, Shape{part.size()}};
    }

    std::unique_ptr<Ops> ops_;            // its own: buckets may be reduced beside the backward pass
    std::int64_t slice_;                  // elements of the largest slice
    Buffer bucket_;                       // [largest bucket]
    Buffer received_;                     // [ranks, slice_]: every rank's part of this rank's slice
    std::vector<Range> slices_, places_;  // of each rank: within the bucket, within received_
    std::int64_t statistics_end_ = 0;
};

}  // namespace

std::unique_ptr<Wire> make_float_wire() {
    return std::make_unique<FloatWire>();
}
std::unique_ptr<Wire> make_bf16_wire(Device& device, const ParameterTable& table, int ranks,
                                     std::int64_t largest_bucket) {
    return std::make_unique<Bf16Wire>(device, table, ranks, largest_bucket);
}

}  // namespace trireme
