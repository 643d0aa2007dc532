#include "trireme/param/partition.hpp"

namespace trireme {
namespace {

/// True where the rules alone, whatever the sizes, put two neighbours into different buckets.
bool kept_apart(const Parameter& a, const Parameter& b, BucketRules rules) {
    return (rules.statistics_apart && a.role != b.role) || (rules.tied_apart && (a.tied || b.tied));
}

/// Where the stretch of a block that begins with order[i] ends.
std::int64_t block_end(const ParameterTable& table, std::size_t i, BucketRules rules) {
    const std::vector<ParameterId>& order = table.order();
    while (i + 1 < order.size() && table[order[i]].block == table[order[i + 1]].block &&
           !kept_apart(table[order[i]], table[order[i + 1]], rules))
        ++i;
    return table.slot(order[i]).end;
}

}  // namespace

std::vector<Range> make_buckets(const ParameterTable& table, std::int64_t max_bytes, BucketRules rules) {
    const auto limit = max_bytes / static_cast<std::int64_t>(sizeof(float));
    const std::vector<ParameterId>& order = table.order();
    std::vector<Range> buckets;
    const Parameter* before = nullptr;
    bool cut = false;  // the block of `before` is larger than a bucket
    for (std::size_t i = 0; i < order.size(); ++i) {
        const Parameter& parameter = table[order[i]];
        const Range slot = table.slot(order[i]);
        if (slot.empty()) continue;
        bool joined = before != nullptr && !kept_apart(*before, parameter, rules);
        std::int64_t end = slot.end;
        if (rules.whole_blocks && (!joined || before->block != parameter.block)) {
            end = block_end(table, i, rules);
            joined = joined && !cut;
            cut = end - slot.begin > limit;
        }
        joined = joined && end - buckets.back().begin <= limit;
        if (joined)
            buckets.back().end = slot.end;
        else
            buckets.push_back(slot);
        before = &parameter;
    }
    return buckets;
}

Range shard_of(Range bucket, int ranks, int rank) {
    const Range steps = part_of({0, bucket.size() / parameter_alignment}, ranks, rank);
    return {bucket.begin + steps.begin * parameter_alignment, bucket.begin + steps.end * parameter_alignment};
}

}  // namespace trireme
