// Cuts the arena into the intervals that are worked on at once.
#pragma once

#include <vector>

#include "trireme/param/table.hpp"

namespace trireme {

/// Buckets for gradient reduction, in arena order: they cover the arena, end where a parameter (with its gap)
/// ends, and hold at most `max_bytes` of float32 unless a single parameter is larger. `statistics_apart`: no
/// bucket holds both weights and statistics.
std::vector<Range> make_buckets(const ParameterTable& table, std::int64_t max_bytes,
                                bool statistics_apart = false);

}  // namespace trireme
