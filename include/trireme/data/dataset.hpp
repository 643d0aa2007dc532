// A sharded data set: any number of HDF5 files with `x` [n, ...] and `y` [n] or [n, k], seen as one sequence
// of samples. Ids count through the files in name order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/range.hpp"
#include "trireme/comm/communicator.hpp"
#include "trireme/tensor/dtype.hpp"
#include "trireme/tensor/shape.hpp"

namespace trireme {

struct Shard {
    std::string path;
    Range ids;  ///< the samples it holds; may be empty
};

/// What all shards agree on.
struct DatasetLayout {
    std::string x_name = "/x", y_name = "/y";
    std::vector<Shard> shards;
    Shape sample;  ///< extents of one x, as stored (images: C, H, W); [1] where x is [n]
    DType x_type = DType::f32;
    Shape target;  ///< extents of one y: scalar or [k]
    DType y_type = DType::i64;

    bool has_targets() const { return !y_name.empty(); }
    std::int64_t rows() const { return shards.empty() ? 0 : shards.back().ids.end; }
    /// Shard that holds a sample, 0 <= id < rows().
    const Shard& shard_of(std::int64_t id) const;
    /// "file.h5:/x row 17", for messages.
    std::string place_of(std::int64_t id, const std::string& dataset) const;
};

/// Opens every shard and compares it with the first; rank 0 does the work and everybody gets the verdict.
/// Collective.
/// @throws Error (bad_data, all ranks) with file, data set, expected and found, when nothing matches, a file
/// is damaged, lacks x or y, has other sample extents or type class, or x and y differ in length. Shards may
/// differ in integer or real width: x_type and y_type are then the widest.
/// An empty y_name: a set without targets, whatever else the files hold.
DatasetLayout open_dataset(Communicator& comm, const std::string& patterns, const std::string& x_name,
                           const std::string& y_name);

/// Largest label of integer targets plus one. Scans y over all ranks. Collective.
/// @throws Error (bad_data, all ranks) naming file, row and value for labels that are negative (other than
/// ignore_index) or no integers.
std::int64_t count_classes(Communicator& comm, const DatasetLayout& layout, std::int64_t ignore_index);

/// How raw values become inputs: (value - shift) * scale, per channel (the outermost extent of a sample).
struct Normalization {
    std::vector<float> shift, scale;  ///< one per channel, or one for all
    bool identity() const { return shift.empty(); }
};

/// kind: none, unit (divide by the integer type's maximum; reals unchanged) or standard (mean and standard
/// deviation of the data set, per channel; constant channels keep scale 1). The sums are over fixed segments
/// of ids, so the result has the same bits on any number of ranks. Collective.
Normalization make_normalization(Communicator& comm, const DatasetLayout& layout, const std::string& kind);

}  // namespace trireme
