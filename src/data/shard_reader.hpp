// Private to data: stored rows of a sharded data set, samples or tokens, across files. Keeps the files that
// it reads open, a bounded number of them; used by one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trireme/data/dataset.hpp"
#include "trireme/io/hdf5.hpp"

namespace trireme {

/// Bytes of one stored row in memory. Token data have no y.
std::int64_t stored_x_bytes(const DatasetLayout& layout);
std::int64_t stored_y_bytes(const DatasetLayout& layout);

class ShardReader {
public:
    /// The layout must outlive the reader.
    explicit ShardReader(const DatasetLayout& layout, std::size_t open_files = 64);

    /// Rows [rows.begin, rows.end) as layout.x_type or layout.y_type, one behind the other.
    void read_x(Range rows, void* to) { read(rows, to, true); }
    void read_y(Range rows, void* to) { read(rows, to, false); }

    std::int64_t x_bytes() const { return x_bytes_; }  ///< of one row
    std::int64_t y_bytes() const { return y_bytes_; }

private:
    struct OpenShard {
        std::size_t index;
        io::Dataset x;
        std::optional<io::Dataset> y;  ///< absent where the set has no targets: they read as zeros
        std::int64_t last_use;
    };

    void read(Range rows, void* to, bool inputs);
    OpenShard& opened(std::size_t index);

    const DatasetLayout& layout_;
    std::size_t most_open_;
    std::int64_t x_bytes_, y_bytes_, uses_ = 0;
    std::vector<OpenShard> open_;
};

}  // namespace trireme
