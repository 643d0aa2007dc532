// Private to data: samples in their stored type, rows or windows of tokens, from files or, once loaded, from
// memory. Used by one thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "data/shard_reader.hpp"
#include "trireme/data/dataset.hpp"

namespace trireme {

class SampleStore {
public:
    /// `largest` is the number of samples asked for at once; the layout must outlive the store.
    SampleStore(const DatasetLayout& layout, std::int64_t largest, bool in_memory);

    /// Bytes of the whole set as it would lie in memory.
    static std::int64_t bytes_of(const DatasetLayout& layout);
    /// True where a piece is still to be loaded.
    bool pending() const { return in_memory_ && loaded() < layout_.stored_rows(); }
    bool complete() const { return in_memory_ && !pending(); }
    /// Loads the next few megabytes.
    void load_piece();

    /// Calls use(index into ids, x, y) for each id, in whatever order is fastest: x and y point to the
    /// sample's stored rows.
    template <class Use>
    void each(std::span<const std::int64_t> ids, Use use) {
        load_targets();
        if (complete()) {
            for (std::size_t i = 0; i < ids.size(); ++i)
                use(static_cast<std::int64_t>(i), cached_x(ids[i]), cached_y(ids[i]));
            return;
        }
        sort(ids);
        for (std::size_t begin = 0; begin < sorted_.size();) {
            const std::size_t end = fetch(begin);
            for (std::size_t i = begin; i < end; ++i) {
                const auto [id, index] = sorted_[i];
                const std::int64_t row = first_row(id) - fetched_from_;
                use(index, fetched_x_ + row * reader_.x_bytes(),
                    keeps_targets_ ? cached_y(id) : fetched_y_ + row * reader_.y_bytes());
            }
            begin = end;
        }
    }

private:
    struct Wanted {
        std::int64_t id, index;
    };
    using Bytes = std::unique_ptr<std::byte[]>;

    std::int64_t loaded() const { return loaded_.load(std::memory_order_relaxed); }
    bool is_loaded(std::int64_t id) const { return layout_.stored({id, id + 1}).end <= loaded(); }
    void load_targets();
    std::int64_t first_row(std::int64_t id) const { return layout_.stored({id, id + 1}).begin; }
    const std::byte* cached_x(std::int64_t id) const {
        return all_x_.get() + first_row(id) * reader_.x_bytes();
    }
    const std::byte* cached_y(std::int64_t id) const {
        return all_y_.get() + first_row(id) * reader_.y_bytes();
    }
    void sort(std::span<const std::int64_t> ids);
    std::size_t fetch(std::size_t begin);

    const DatasetLayout& layout_;
    ShardReader reader_;
    bool in_memory_;
    bool keeps_targets_;                   ///< all targets lie in memory, wherever the inputs are
    bool has_targets_ = false;             ///< they do by now
    std::atomic<std::int64_t> loaded_{0};  ///< rows in memory, from the first on
    Bytes all_x_, all_y_;

    std::vector<Wanted> sorted_;
    std::int64_t sample_bytes_;  ///< of a sample's own inputs: what windows share is not counted twice
    std::int64_t run_samples_;   ///< most samples of one read
    Bytes run_x_, run_y_;
    const std::byte *fetched_x_ = nullptr, *fetched_y_ = nullptr;
    std::int64_t fetched_from_ = 0;  ///< row
};

/// Memory that this process may still take, in bytes: of the machine and of its control group.
std::int64_t available_memory();

}  // namespace trireme
