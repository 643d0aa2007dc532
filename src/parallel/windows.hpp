// Memory in which the parameters of one unit are whole for a while: gathered weights before they are used,
// gradients before they are reduced. Units take turns in it: unit u lies in window u mod count.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/ops/ops.hpp"
#include "trireme/parallel/sharding.hpp"
#include "trireme/param/arena.hpp"

namespace trireme {

/// Which parameters have a place in the windows: in 16-bit precision those that products read are wanted in
/// that type, the others in float32.
enum class Wanted { all, operands, others };

/// Where the wanted parameters of each unit lie in its window: one after another, in arena order.
class WindowLayout {
public:
    WindowLayout(const ParameterTable& table, const Sharding& sharding, Wanted wanted);

    /// An interval of the arena, and where it begins in its unit's window.
    struct Stretch {
        Range place{};
        std::int64_t at = 0;
    };
    /// The wanted elements of one bucket.
    struct Part {
        Range within{};  ///< the unit's window
        std::vector<Stretch> stretches{};
        std::vector<Range> of_ranks{};  ///< which of them are each rank's, from 0 on
    };
    const Part& part(int bucket) const { return parts_[static_cast<std::size_t>(bucket)]; }
    std::int64_t largest_unit() const { return largest_; }

private:
    std::vector<Part> parts_;  ///< by bucket; empty for those without a unit
    std::int64_t largest_ = 0;
};

/// Windows that are there at the same time.
int window_count(const Sharding& sharding, bool overlap);

class Windows {
public:
    /// `sharding` is kept by reference.
    Windows(Device& device, const ParameterTable& table, const Sharding& sharding, Wanted wanted, DType dtype,
            int count);

    int slot_of(int unit) const { return unit % count_; }
    std::size_t bytes() const { return buffer_.bytes(); }

    /// The wanted elements of a bucket, in its unit's window, and which of them are each rank's.
    View bucket(int number) const;
    std::span<const Range> ranks_of(int bucket) const { return layout_.part(bucket).of_ranks; }
    /// The whole window.
    View window(int unit) const;
    /// What this rank owns of a bucket: from its column, converted where types differ.
    void put(Ops& ops, const Column& from, int bucket) const;

    /// The arena as layers see it: wanted parameters in the windows; what is in no unit in `rest`, whose
    /// memory has to outlive the column.
    Column column(const Column& rest) const;

private:
    View at(int unit, std::int64_t begin, std::int64_t count) const;

    const Sharding& sharding_;
    WindowLayout layout_;
    int count_;
    DType dtype_;
    Buffer buffer_;  ///< [count_, largest unit]
};

}  // namespace trireme
