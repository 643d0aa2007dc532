#include "trireme/param/partition.hpp"

namespace trireme {

std::vector<Range> make_buckets(const ParameterTable& table, std::int64_t max_bytes, bool statistics_apart) {
    const auto limit = max_bytes / static_cast<std::int64_t>(sizeof(float));
    std::vector<Range> buckets;
    Role role = Role::weight;
    for (const ParameterId id : table.order()) {
        const Range slot = table.slot(id);
        const bool joined = !buckets.empty() && slot.end - buckets.back().begin <= limit &&
                            (!statistics_apart || table[id].role == role);
        if (joined)
            buckets.back().end = slot.end;
        else
            buckets.push_back(slot);
        role = table[id].role;
    }
    return buckets;
}

}  // namespace trireme
