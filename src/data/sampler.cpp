#include "trireme/data/sampler.hpp"

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

/// What the permutation of an epoch ranges over: the samples, or the whole chunks among them.
std::int64_t permuted(std::int64_t samples, Shuffle shuffle, std::int64_t chunk) {
    switch (shuffle) {
        case Shuffle::full:
            return samples;
        case Shuffle::chunk:
            if (chunk < 1)
                throw usage_error("shuffling by chunks: expected a chunk of at least 1 sample, found " +
                                  std::to_string(chunk));
            return samples / chunk;
        case Shuffle::none:
            break;
    }
    return 0;
}

RandomStream stream_of(std::uint64_t seed, std::int64_t epoch, std::int64_t use) {
    return {seed, Purpose::shuffle, static_cast<std::uint64_t>(epoch), static_cast<std::uint64_t>(use)};
}

// Uses of an epoch's randomness: the order of all, the place of the short chunk, then one for each chunk.
constexpr std::int64_t whole_order = 0, short_chunk_place = 1, first_chunk = 2;

}  // namespace

Shuffle shuffle_from(const std::string& name) {
    if (name == "full") return Shuffle::full;
    if (name == "chunk") return Shuffle::chunk;
    if (name == "none") return Shuffle::none;
    throw usage_error("data.shuffle: expected full, chunk or none, found '" + name + "'");
}

Order::Order(std::int64_t samples, Shuffle shuffle, std::uint64_t seed, std::int64_t epoch,
             std::int64_t chunk)
    : samples_(samples),
      chunk_(chunk),
      shuffle_(shuffle),
      seed_(seed),
      epoch_(epoch),
      permutation_(permuted(samples, shuffle, chunk), stream_of(seed, epoch, whole_order)) {
    if (shuffle == Shuffle::chunk && samples % chunk != 0) {
        const std::uint64_t word = stream_of(seed, epoch, short_chunk_place).word(0);
        short_chunk_position_ =
            static_cast<std::int64_t>(word % static_cast<std::uint64_t>(permutation_.size() + 1));
    }
}

std::int64_t Order::operator()(std::int64_t position) const {
    switch (shuffle_) {
        case Shuffle::full:
            return permutation_(position);
        case Shuffle::chunk:
            return in_chunks(position);
        case Shuffle::none:
            break;
    }
    return position;
}

std::int64_t Order::in_chunks(std::int64_t position) const {
    // Only the short last chunk breaks the even spacing: whole chunks before it, itself, whole chunks after
    // it.
    const std::int64_t whole = permutation_.size(), short_size = samples_ - whole * chunk_;
    const std::int64_t short_begin = short_chunk_position_ * chunk_;
    const bool has_short = short_chunk_position_ >= 0;
    std::int64_t block = whole, offset = position - short_begin, size = short_size;
    if (!has_short || position < short_begin || offset >= short_size) {
        const std::int64_t even = has_short && position >= short_begin ? position - short_size : position;
        block = permutation_(even / chunk_);
        offset = even % chunk_;
        size = chunk_;
    }
    const Permutation within(size, stream_of(seed_, epoch_, first_chunk + block));
    return block * chunk_ + within(offset);
}

}  // namespace trireme
