#include "data/sample_store.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace trireme {
namespace {

constexpr std::int64_t piece_bytes = std::int64_t{8} << 20;
/// One read costs about as much as copying this much more.
constexpr std::int64_t bridged_bytes = 4096;
constexpr std::int64_t run_bytes = std::int64_t{1} << 20;
/// Targets up to this size are read once, which halves the number of reads.
constexpr std::int64_t kept_targets_bytes = std::int64_t{16} << 20;

std::unique_ptr<std::byte[]> bytes(std::int64_t count) {
    return std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(count));
}

}  // namespace

SampleStore::SampleStore(const DatasetLayout& layout, std::int64_t largest, bool in_memory)
    : layout_(layout), reader_(layout), in_memory_(in_memory) {
    const std::int64_t stored = layout.stored_rows();
    keeps_targets_ = in_memory || stored * reader_.y_bytes() <= kept_targets_bytes;
    has_targets_ = reader_.y_bytes() == 0;
    if (in_memory) all_x_ = bytes(stored * reader_.x_bytes());
    if (keeps_targets_) all_y_ = bytes(stored * reader_.y_bytes());
    sorted_.reserve(static_cast<std::size_t>(largest));
    sample_bytes_ = layout.sample.count() * static_cast<std::int64_t>(size_of(layout.x_type));
    run_samples_ = std::max<std::int64_t>(run_bytes / (sample_bytes_ + reader_.y_bytes()), 1);
    run_samples_ = std::min(run_samples_, std::max<std::int64_t>(layout.rows(), 1));
    const std::int64_t run_rows = layout.stored({0, run_samples_}).size();
    run_x_ = bytes(run_rows * reader_.x_bytes());
    run_y_ = bytes(run_rows * reader_.y_bytes());
}

std::int64_t SampleStore::bytes_of(const DatasetLayout& layout) {
    return layout.stored_rows() * (stored_x_bytes(layout) + stored_y_bytes(layout));
}

void SampleStore::load_targets() {
    if (!keeps_targets_ || has_targets_) return;
    reader_.read_y({0, layout_.stored_rows()}, all_y_.get());
    has_targets_ = true;
}

void SampleStore::load_piece() {
    load_targets();
    const std::int64_t from = loaded();
    const std::int64_t rows = std::max<std::int64_t>(piece_bytes / reader_.x_bytes(), 1);
    const Range piece = intersect({0, layout_.stored_rows()}, {from, from + rows});
    reader_.read_x(piece, all_x_.get() + from * reader_.x_bytes());
    loaded_.store(piece.end, std::memory_order_relaxed);
}

void SampleStore::sort(std::span<const std::int64_t> ids) {
    sorted_.clear();
    for (std::size_t i = 0; i < ids.size(); ++i) sorted_.push_back({ids[i], static_cast<std::int64_t>(i)});
    std::sort(sorted_.begin(), sorted_.end(), [](Wanted a, Wanted b) { return a.id < b.id; });
}

/// Brings a run of the sorted samples into reach, `begin` first, and returns where it ends. Small gaps are
/// read along.
std::size_t SampleStore::fetch(std::size_t begin) {
    const std::int64_t first = sorted_[begin].id;
    std::size_t end = begin + 1;
    if (is_loaded(first)) {
        while (end < sorted_.size() && is_loaded(sorted_[end].id)) ++end;
        fetched_x_ = all_x_.get();
        fetched_from_ = 0;
        return end;
    }
    const std::int64_t step = std::max<std::int64_t>(bridged_bytes / sample_bytes_, 1);
    while (end < sorted_.size() && sorted_[end].id - sorted_[end - 1].id <= step &&
           sorted_[end].id - first < run_samples_)
        ++end;
    const Range run = layout_.stored({first, sorted_[end - 1].id + 1});
    reader_.read_x(run, run_x_.get());
    if (!keeps_targets_) reader_.read_y(run, run_y_.get());
    fetched_x_ = run_x_.get();
    fetched_y_ = run_y_.get();
    fetched_from_ = run.begin;
    return end;
}

std::int64_t available_memory() {
    std::int64_t available = std::numeric_limits<std::int64_t>::max();
    std::ifstream meminfo("/proc/meminfo");
    for (std::string key; meminfo >> key;) {
        std::int64_t kilobytes = 0;
        if (key == "MemAvailable:" && meminfo >> kilobytes) available = kilobytes * 1024;
    }
    // A batch system may have given the job less than the machine has.
    std::ifstream membership("/proc/self/cgroup");
    for (std::string line; std::getline(membership, line);) {
        if (!line.starts_with("0::")) continue;
        const std::string folder = "/sys/fs/cgroup" + line.substr(3);
        std::int64_t limit = 0, used = 0;
        if (std::ifstream(folder + "/memory.max") >> limit &&
            std::ifstream(folder + "/memory.current") >> used)
            available = std::min(available, std::max<std::int64_t>(limit - used, 0));
    }
    return available;
}

}  // namespace trireme
