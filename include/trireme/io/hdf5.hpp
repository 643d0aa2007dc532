// HDF5 files with owners: files, data sets and attributes whose handles close themselves, read and written
// through intervals of rows or of the flattened whole. Every failure names file, object and what was
// expected.
//
// The HDF5 library is not thread-safe: all calls below hold one lock of the process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/range.hpp"
#include "trireme/comm/communicator.hpp"
#include "trireme/tensor/dtype.hpp"
#include "trireme/tensor/shape.hpp"

namespace trireme::io {

/// What a data set in a file is like. `dtype` is the element type in memory that holds every stored value,
/// whatever its byte order. The 16-bit real types can be read and written as their own bits or converted from
/// and to f32.
struct DatasetInfo {
    DType dtype = DType::f32;
    Shape shape;
    std::optional<Shape> chunk;  ///< absent: contiguous
    bool compressed = false;
};

class Dataset {
public:
    const DatasetInfo& info() const { return info_; }
    const std::string& name() const { return name_; }  ///< "file.h5:/x", for messages

    /// Rows [rows.begin, rows.end) of the outermost dimension, converted to `as`.
    void read_rows(Range rows, DType as, void* to) const;
    /// Writes rows; an empty range is fine. Independent of other ranks. A chunked data set of a file that one
    /// process holds grows to the rows written.
    void write_rows(Range rows, DType from_type, const void* from);
    /// Elements [range.begin, range.end) of the flattened whole.
    /// Independent of other ranks; an empty range is fine.
    void read_flat(Range range, DType as, void* to) const;
    void write_flat(Range range, DType from_type, const void* from);

    struct Handle;
    Dataset(std::shared_ptr<Handle> handle, DatasetInfo info, std::string name);

private:
    void grow(std::int64_t rows);

    std::shared_ptr<Handle> handle_;
    DatasetInfo info_;
    std::string name_;
};

enum class Access { read, create, append };

class File {
public:
    /// One process alone. `create` truncates. @throws Error (bad_data) naming the path when it is missing,
    /// not HDF5, or truncated. Reading takes no file lock: read-only directories and several jobs on one file
    /// work.
    File(const std::string& path, Access access);
    /// All ranks of `comm` together, through MPI-IO when they are several processes; ranks that are threads
    /// of one process share its handle. Collective, as is all that changes the structure of the file, flush()
    /// and close(); reading and writing data sets is not. `comm` is kept by reference. While a group of which
    /// a process holds some ranks opens or closes a file, no other group of ranks of that process may.
    File(const std::string& path, Access access, Communicator& comm);

    const std::string& path() const;
    bool has(const std::string& object) const;
    /// Names of the children of a group, sorted; empty where there is no such group.
    std::vector<std::string> children(const std::string& group) const;
    bool is_dataset(const std::string& object) const;

    /// Memory granted to the uncompressed chunks of one data set, so that none is decompressed per row.
    static constexpr std::int64_t default_chunk_cache = std::int64_t{256} << 20;

    /// @throws Error (bad_data) naming file and data set when it is missing or has a type that is no number.
    Dataset open(const std::string& dataset, std::int64_t chunk_cache_bytes = default_chunk_cache) const;
    /// Groups on the way are created. Contiguous data sets are allocated at once and not filled.
    /// `rows_per_chunk` > 0: chunked and extendable along the rows.
    Dataset create(const std::string& dataset, DType dtype, const Shape& shape,
                   std::int64_t rows_per_chunk = 0, int deflate = 0);
    void create_group(const std::string& group);

    // Attributes of an object ("/" for the file itself).
    void set_attribute(const std::string& object, const std::string& name, const std::string& value);
    void set_attribute(const std::string& object, const std::string& name, std::int64_t value);
    void set_attribute(const std::string& object, const std::string& name, double value);
    std::optional<std::string> text_attribute(const std::string& object, const std::string& name) const;
    std::optional<std::int64_t> int_attribute(const std::string& object, const std::string& name) const;
    std::optional<double> real_attribute(const std::string& object, const std::string& name) const;

    // A scalar text as a data set of its own (/config).
    void write_text(const std::string& dataset, const std::string& text);
    std::string read_text(const std::string& dataset) const;

    /// Bytes that one call of the library moves at most (1 GiB); larger transfers are cut. The same on all
    /// ranks.
    void limit_transfers(std::int64_t bytes);

    /// Hands everything to the operating system and to the disk (fsync).
    void flush();
    /// Closes and reports failure, with data sets still held. The destructor closes silently once no data set
    /// is held; a parallel file that an exception leaves behind stays open, since closing waits for the other
    /// ranks.
    void close();

    struct Handle;

private:
    void together(const std::function<void()>& action);
    std::shared_ptr<void> once(const std::function<std::shared_ptr<void>()>& make);
    Dataset create_here(const std::string& dataset, DType dtype, const Shape& shape,
                        std::int64_t rows_per_chunk, int deflate);

    std::shared_ptr<Handle> handle_;
    Communicator* comm_ = nullptr;  ///< of the ranks that hold the file, where there are several
};

/// "1.10.8 (parallel)".
std::string hdf5_version();

/// Paths that match a shell pattern (or a comma-separated list of patterns), sorted by name. Empty when none.
std::vector<std::string> glob_paths(const std::string& patterns);

}  // namespace trireme::io
