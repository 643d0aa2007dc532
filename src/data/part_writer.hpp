// Private to data: writes one part (train, valid or test) of an imported data set as shards of even size,
// under temporary names until everything is on the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/row_source.hpp"
#include "trireme/data/import.hpp"
#include "trireme/io/hdf5.hpp"

namespace trireme {

class PartWriter {
public:
    PartWriter(const ImportOptions& options, const std::string& name, const RowTable& table,
               std::int64_t rows);
    PartWriter(PartWriter&&) = default;
    PartWriter& operator=(PartWriter&&) = delete;
    ~PartWriter();

    /// Where the next rows are to be written, at most room() of them; take() takes them in.
    void* x() { return x_.data() + static_cast<std::size_t>(buffered_) * x_bytes_; }
    void* y() { return y_.data() + static_cast<std::size_t>(buffered_) * y_bytes_; }
    std::int64_t room();
    void take(std::int64_t rows);

    /// Writes what is left; empty shards included.
    void finish();
    /// Gives the files their names and removes those of an earlier import of this part.
    ImportedPart publish();

private:
    void open_shard();
    void write_out();
    void close_shard();
    std::string path_of(std::int64_t shard) const;
    std::string temporary_of(std::int64_t shard) const { return path_of(shard) + ".partial"; }

    std::string directory_, name_;
    RowTable table_;
    std::int64_t rows_, shards_, chunk_rows_;
    int deflate_;
    std::size_t x_bytes_, y_bytes_;
    std::int64_t buffer_rows_;
    std::vector<std::byte> x_, y_;

    std::int64_t shard_ = 0;                   ///< the one that is being written
    std::int64_t shard_rows_ = 0;              ///< of it, once it is open
    std::int64_t written_ = 0, buffered_ = 0;  ///< rows of it on the disk and in memory
    std::optional<io::File> file_;
    std::optional<io::Dataset> x_set_, y_set_;
    std::vector<std::string> temporary_;  ///< that have to go if this does not end well
};

}  // namespace trireme
