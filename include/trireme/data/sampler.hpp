// Which samples a step takes and in what order: a bijection of [0, N) keyed by (seed, epoch), the same on all
// ranks, cut into steps and lanes. Needs no memory however large N is.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/permutation.hpp"
#include "trireme/base/range.hpp"

namespace trireme {

enum class Shuffle { full, chunk, none };
/// @throws Error (bad_usage) on other names than full, chunk, none.
Shuffle shuffle_from(const std::string& name);

/// How an epoch is cut: step s takes positions [sB, min((s+1)B, N)), lane v the v-th of V even parts of it.
struct EpochPlan {
    std::int64_t samples = 0;  ///< N
    std::int64_t batch = 1;    ///< B, the global batch
    std::int64_t lanes = 1;    ///< V
    bool drop_last = false;    ///< drop the short tail

    std::int64_t steps() const { return drop_last ? samples / batch : (samples + batch - 1) / batch; }
    Range step(std::int64_t s) const { return {s * batch, std::min((s + 1) * batch, samples)}; }
    /// Positions of lane v in step s; may be empty.
    Range lane(std::int64_t s, std::int64_t v) const { return part_of(step(s), lanes, v); }
    /// Samples of the largest lane of any step.
    std::int64_t largest_lane() const { return (std::min(batch, samples) + lanes - 1) / lanes; }
};

/// The order of one epoch.
class Order {
public:
    /// chunk shuffling permutes blocks of `chunk` consecutive ids, and the ids within each block.
    Order(std::int64_t samples, Shuffle shuffle, std::uint64_t seed, std::int64_t epoch,
          std::int64_t chunk = 1024);

    /// The sample at a position, 0 <= position < samples.
    std::int64_t operator()(std::int64_t position) const;

private:
    std::int64_t in_chunks(std::int64_t position) const;

    std::int64_t samples_, chunk_;
    Shuffle shuffle_;
    std::uint64_t seed_;
    std::int64_t epoch_;
    Permutation permutation_;  ///< of the samples (full) or of the chunks (chunk)
    std::int64_t short_chunk_position_ = -1;
};

}  // namespace trireme
