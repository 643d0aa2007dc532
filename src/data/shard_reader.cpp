#include "data/shard_reader.hpp"

#include <algorithm>
#include <cstring>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

/// Uncompressed chunks kept over all shards.
constexpr std::int64_t chunk_budget = std::int64_t{512} << 20;

std::int64_t bytes_of(const Shape& shape, DType type) {
    return shape.count() * static_cast<std::int64_t>(size_of(type));
}

io::Dataset open_column(const io::File& file, const std::string& name, std::int64_t rows,
                        std::int64_t cache) {
    io::Dataset dataset = file.open(name, cache);
    if (dataset.info().shape[0] != rows)
        throw data_error(dataset.name() + ": expected " + std::to_string(rows) +
                         " rows as at the start, found " + std::to_string(dataset.info().shape[0]) +
                         ": the file was replaced meanwhile");
    return dataset;
}

}  // namespace

std::int64_t stored_x_bytes(const DatasetLayout& layout) {
    return bytes_of(layout.is_tokens() ? Shape{} : layout.sample, layout.x_type);
}

std::int64_t stored_y_bytes(const DatasetLayout& layout) {
    return layout.is_tokens() ? 0 : bytes_of(layout.target, layout.y_type);
}

ShardReader::ShardReader(const DatasetLayout& layout, std::size_t open_files)
    : layout_(layout),
      most_open_(std::max<std::size_t>(open_files, 1)),
      x_bytes_(stored_x_bytes(layout)),
      y_bytes_(stored_y_bytes(layout)) {
    open_.reserve(std::min(most_open_, layout.shards.size()));
}

ShardReader::OpenShard& ShardReader::opened(std::size_t index) {
    ++uses_;
    for (OpenShard& shard : open_) {
        if (shard.index != index) continue;
        shard.last_use = uses_;
        return shard;
    }
    if (open_.size() == most_open_)
        open_.erase(std::min_element(open_.begin(), open_.end(),
                                     [](const auto& a, const auto& b) { return a.last_use < b.last_use; }));
    const Shard& shard = layout_.shards[index];
    const std::int64_t kept = static_cast<std::int64_t>(std::min(most_open_, layout_.shards.size()));
    const std::int64_t cache = std::min(io::File::default_chunk_cache, chunk_budget / kept);
    const io::File file(shard.path, io::Access::read);
    open_.push_back({index, open_column(file, layout_.x_name, shard.ids.size(), cache), std::nullopt, uses_});
    if (layout_.has_targets()) open_.back().y = open_column(file, layout_.y_name, shard.ids.size(), cache);
    return open_.back();
}

void ShardReader::read(Range rows, void* to, bool inputs) {
    auto* bytes = static_cast<std::byte*>(to);
    const Shard* const first = layout_.shards.data();
    for (std::int64_t row = rows.begin; row < rows.end;) {
        const Shard& shard = layout_.shard_of(row);
        const Range part = intersect(shard.ids, {row, rows.end});
        const Range within{part.begin - shard.ids.begin, part.end - shard.ids.begin};
        const OpenShard& open = opened(static_cast<std::size_t>(&shard - first));
        if (inputs)
            open.x.read_rows(within, layout_.x_type, bytes);
        else if (open.y)
            open.y->read_rows(within, layout_.y_type, bytes);
        else
            std::memset(bytes, 0, static_cast<std::size_t>(part.size() * y_bytes_));
        bytes += part.size() * (inputs ? x_bytes_ : y_bytes_);
        row = part.end;
    }
}

}  // namespace trireme
