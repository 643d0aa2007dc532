#include "trireme/param/partition.hpp"

#include <ranges>

namespace trireme {
namespace {

/// The parameters in arena order, each with the interval from its begin to the next one's.
template <class Visit>
void for_each_placed(const ParameterTable& table, Visit visit) {
    for (int id = table.count() - 1; id >= 0; --id) {
        const std::int64_t end = id > 0 ? table[id - 1].place.begin : table.arena_size();
        visit(table[id], Range{table[id].place.begin, end});
    }
}

}  // namespace

std::vector<Range> make_buckets(const ParameterTable& table, std::int64_t max_bytes) {
    const auto limit = max_bytes / static_cast<std::int64_t>(sizeof(float));
    std::vector<Range> buckets;
    for_each_placed(table, [&](const Parameter&, Range place) {
        if (!buckets.empty() && place.end - buckets.back().begin <= limit)
            buckets.back().end = place.end;
        else
            buckets.push_back(place);
    });
    return buckets;
}

std::vector<UpdateRun> make_update_runs(const ParameterTable& table) {
    std::vector<UpdateRun> runs;
    for_each_placed(table, [&](const Parameter& parameter, Range place) {
        const float average = parameter.role == Role::statistic ? parameter.average : 0;
        const bool same = !runs.empty() && runs.back().role == parameter.role &&
                          runs.back().decay == parameter.decay && runs.back().average == average;
        if (same)
            runs.back().place.end = place.end;
        else
            runs.push_back({place, parameter.role, parameter.decay, average});
    });
    return runs;
}

}  // namespace trireme
