#include "parallel/windows.hpp"

#include <algorithm>

namespace trireme {
namespace {

bool fits(Wanted wanted, const Parameter& parameter) {
    return wanted == Wanted::all || parameter.operand == (wanted == Wanted::operands);
}

/// Elements of the stretches that lie before an arena offset.
std::int64_t before(const std::vector<WindowLayout::Stretch>& stretches, std::int64_t offset) {
    std::int64_t count = 0;
    for (const WindowLayout::Stretch& stretch : stretches)
        count += std::clamp(offset, stretch.place.begin, stretch.place.end) - stretch.place.begin;
    return count;
}

}  // namespace

WindowLayout::WindowLayout(const ParameterTable& table, const Sharding& sharding, Wanted wanted)
    : parts_(sharding.buckets().size()) {
    for (const WindowUnit& unit : sharding.units()) {
        std::int64_t at = 0;
        for (const int number : unit.buckets) {
            const Bucket& bucket = sharding.bucket(number);
            Part& part = parts_[static_cast<std::size_t>(number)];
            part.within.begin = at;
            for (const ParameterId id : table.order()) {
                const Range slot = table.slot(id);
                if (!fits(wanted, table[id]) || intersect(slot, bucket.range).empty()) continue;
                if (!part.stretches.empty() && part.stretches.back().place.end == slot.begin)
                    part.stretches.back().place.end = slot.end;
                else
                    part.stretches.push_back({slot, at});
                at += slot.size();
            }
            part.within.end = at;
            for (const Range owned : bucket.parts)
                part.of_ranks.push_back({before(part.stretches, bucket.range.begin + owned.begin),
                                         before(part.stretches, bucket.range.begin + owned.end)});
        }
        largest_ = std::max(largest_, at);
    }
}

int window_count(const Sharding& sharding, bool overlap) {
    return static_cast<int>(std::min<std::size_t>(overlap ? 2 : 1, sharding.units().size()));
}

Windows::Windows(Device& device, const ParameterTable& table, const Sharding& sharding, Wanted wanted,
                 DType dtype, int count)
    : sharding_(sharding),
      layout_(table, sharding, wanted),
      count_(count),
      dtype_(dtype),
      buffer_(device, static_cast<std::size_t>(count * layout_.largest_unit()) * size_of(dtype)) {}

View Windows::at(int unit, std::int64_t begin, std::int64_t count) const {
    const std::int64_t first = slot_of(unit) * layout_.largest_unit() + begin;
    return {buffer_.as<char>() + static_cast<std::size_t>(first) * size_of(dtype_), dtype_, Shape{count}};
}

View Windows::bucket(int number) const {
    const Range within = layout_.part(number).within;
    return at(sharding_.bucket(number).unit, within.begin, within.size());
}

View Windows::window(int unit) const {
    return at(unit, 0, layout_.largest_unit());
}

void Windows::put(Ops& ops, const Column& from, int bucket) const {
    const Range mine = sharding_.mine(sharding_.bucket(bucket));
    for (const WindowLayout::Stretch& stretch : layout_.part(bucket).stretches) {
        const Range owned = intersect(stretch.place, mine);
        if (!owned.empty())
            ops.copy(from.range(owned), at(sharding_.bucket(bucket).unit,
                                           stretch.at + owned.begin - stretch.place.begin, owned.size()));
    }
}

Column Windows::column(const Column& rest) const {
    std::vector<Column::Piece> pieces;
    for (int number = 0; number < static_cast<int>(sharding_.buckets().size()); ++number) {
        const Bucket& bucket = sharding_.bucket(number);
        if (bucket.unit < 0) {
            pieces.push_back({bucket.range, rest.range(bucket.range).data});
            continue;
        }
        for (const WindowLayout::Stretch& stretch : layout_.part(number).stretches)
            pieces.push_back({stretch.place, at(bucket.unit, stretch.at, stretch.place.size()).data});
    }
    return {std::move(pieces), rest.name(), rest.dtype()};
}

}  // namespace trireme
