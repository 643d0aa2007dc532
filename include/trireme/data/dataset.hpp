// A sharded data set: any number of HDF5 files with `x` [n, ...] and `y` [n] or [n, k], or with `tokens` [n],
// seen as one sequence of rows. Rows count through the files in name order. A sample is a row of x and y, or
// a window of tokens.
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
    Range ids;  ///< the rows it holds; may be empty
};

enum class DataKind { samples, tokens };

/// What to look for in the files, and how tokens are cut.
struct DatasetOptions {
    std::string x = "/x";
    std::string y = "/y";        ///< empty: a set without targets, whatever else the files hold
    std::string kind = "auto";   ///< samples, tokens, or auto: tokens where there are /tokens and no x
    std::int64_t context = 256;  ///< of token data: inputs of a window
};

/// What all shards agree on.
///
/// Window w of n tokens with context c has the inputs tokens [w c, (w + 1) c) and as targets the tokens that
/// follow each of them: (n - 1) / c windows, rounded up, in which each token but the first is a target once.
struct DatasetLayout {
    DataKind kind = DataKind::samples;
    std::string x_name = "/x", y_name = "/y";
    std::vector<Shard> shards;
    Shape sample;  ///< extents of one x, as stored (images: C, H, W); [1] where x is [n]; [context] of tokens
    DType x_type = DType::f32;
    Shape target;  ///< extents of one y: scalar, [k], or [context] of tokens
    DType y_type = DType::i64;

    bool is_tokens() const { return kind == DataKind::tokens; }
    bool has_targets() const { return !y_name.empty(); }
    /// Samples: rows of x, or windows of tokens.
    std::int64_t rows() const;
    /// Rows of the files: samples, or tokens.
    std::int64_t stored_rows() const { return shards.empty() ? 0 : shards.back().ids.end; }
    /// The stored rows that make up consecutive samples. Neighbouring windows share a token.
    Range stored(Range ids) const;
    /// Shard that holds a stored row, 0 <= row < stored_rows().
    const Shard& shard_of(std::int64_t row) const;
    /// "file.h5:/x row 17", for messages.
    std::string place_of(std::int64_t row, const std::string& dataset) const;
};

/// Opens every shard and compares it with the first; rank 0 does the work and everybody gets the verdict.
/// Collective.
/// @throws Error (bad_data, all ranks) with file, data set, expected and found, when nothing matches, a file
/// is damaged, lacks x or y, has other sample extents or type class, or x and y differ in length. Shards may
/// differ in integer or real width: x_type and y_type are then the widest. Token data: lacks tokens, has
/// others than integers [n], or fewer than two in all.
DatasetLayout open_dataset(Communicator& comm, const std::string& patterns,
                           const DatasetOptions& options = {});

/// Largest label of integer targets plus one; of token data the largest token plus one. Scans them over all
/// ranks. Collective.
/// @throws Error (bad_data, all ranks) naming file, row and value for labels that are negative (other than
/// ignore_index) or no integers, and for tokens that are negative or beyond 32 bits.
std::int64_t count_classes(Communicator& comm, const DatasetLayout& layout, std::int64_t ignore_index);

/// How raw values become inputs: (value - shift) * scale, per channel (the outermost extent of a sample).
struct Normalization {
    std::vector<float> shift, scale;  ///< one per channel, or one for all
    bool identity() const { return shift.empty(); }
};

/// kind: none, unit (divide by the integer type's maximum; reals unchanged) or standard (mean and standard
/// deviation of the data set, per channel; constant channels keep scale 1). The sums are over fixed segments
/// of ids, so the result has the same bits on any number of ranks. Collective.
/// @throws Error (bad_usage) on another kind, and on any but none for token data.
Normalization make_normalization(Communicator& comm, const DatasetLayout& layout, const std::string& kind);

}  // namespace trireme
