// A half-open interval [begin, end) of a flat index space: a bucket, a shard, a rank's part, a parameter.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace trireme {

struct Range {
    std::int64_t begin = 0;
    std::int64_t end = 0;

    std::int64_t size() const { return end - begin; }
    bool empty() const { return end <= begin; }
    bool contains(std::int64_t i) const { return begin <= i && i < end; }
    friend bool operator==(const Range&, const Range&) = default;
};

/// The common part of two ranges; empty (begin == end) where there is none.
inline Range intersect(Range a, Range b) {
    const std::int64_t begin = std::max(a.begin, b.begin);
    return {begin, std::max(begin, std::min(a.end, b.end))};
}

/// The index-th of `parts` parts of `whole`, cut as evenly as whole elements allow; the first parts take the
/// rest.
inline Range part_of(Range whole, std::int64_t parts, std::int64_t index) {
    const std::int64_t base = whole.size() / parts, rest = whole.size() % parts;
    const std::int64_t begin = whole.begin + index * base + std::min(index, rest);
    return {begin, begin + base + (index < rest ? 1 : 0)};
}

/// The smallest multiple of `step` that is not below `value`.
inline std::int64_t round_up(std::int64_t value, std::int64_t step) {
    return (value + step - 1) / step * step;
}

}  // namespace trireme
