// Cuts the arena into the intervals that are worked on at once.
#pragma once

#include <vector>

#include "trireme/param/table.hpp"

namespace trireme {

/// Buckets for gradient reduction, in arena order: they cover the arena, end where a parameter (with its gap)
/// ends, and hold at most `max_bytes` of float32 unless a single parameter is larger.
std::vector<Range> make_buckets(const ParameterTable& table, std::int64_t max_bytes);

/// A run of neighbouring parameters that one update rule fits.
struct UpdateRun {
    Range place;
    Role role = Role::weight;
    bool decay = false;
    float average = 0;  ///< statistics only
};
std::vector<UpdateRun> make_update_runs(const ParameterTable& table);

}  // namespace trireme
