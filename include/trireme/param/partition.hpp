// Cuts the arena into the intervals that are worked on at once, and those into the parts that ranks own.
#pragma once

#include <vector>

#include "trireme/param/table.hpp"

namespace trireme {

/// What must not share a bucket.
struct BucketRules {
    bool statistics_apart = false;  ///< weights and statistics
    bool tied_apart = false;        ///< a tied parameter and any other
    bool whole_blocks = false;      ///< two blocks of which one is not all there
};

/// Buckets, in arena order: they cover the arena, end where a parameter (with its gap) ends, and hold at most
/// `max_bytes` of float32 unless a single parameter is larger.
std::vector<Range> make_buckets(const ParameterTable& table, std::int64_t max_bytes, BucketRules rules = {});

/// What rank `rank` of `ranks` owns of a bucket: cut at multiples of parameter_alignment, as evenly as that
/// allows. Empty where there are more ranks than such steps.
Range shard_of(Range bucket, int ranks, int rank);

}  // namespace trireme
