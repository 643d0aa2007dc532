// Turns foreign files into sharded HDF5: CSV, IDX and text (also .gz). Streams: memory does not grow with the
// input.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/tensor/shape.hpp"

namespace trireme {

struct ImportOptions {
    std::vector<std::string> inputs;  ///< CSV: one file or several with the same columns; IDX: images,
                                      ///< labels; text: one file or several, which follow each other
    std::string kind = "auto";        ///< auto (text by the suffix .txt, else by content), csv, idx, text
    std::string output;               ///< directory; <part>-000.h5, <part>-001.h5, ... are written into it
    std::string label = "last";      ///< CSV: column name, index (0-based; negative from the end), last, none
    std::string header = "auto";     ///< auto, yes, no
    std::string separator = "auto";  ///< auto, or one of , ; tab space
    std::vector<double> split;    ///< fractions of train, valid, test, drawn row by row; a text is cut into
                                  ///< them; empty: everything into `name`
    std::string name = "train";   ///< part name when there is no split
    std::int64_t shards = 1;      ///< files per part
    std::string dtype = "auto";   ///< auto (IDX: as stored; CSV: float32), float32, uint8, int16, int32;
                                  ///< text: uint8
    Shape shape;                  ///< extents of a sample; rank 0: [columns] or as stored
    std::uint64_t seed = 1;       ///< of the split
    std::int64_t chunk_rows = 0;  ///< 0: contiguous
    int deflate = 0;              ///< gzip level 1..9 (needs chunks; 0: off)
};

struct ImportedPart {
    std::string name;  ///< train, valid, test
    std::vector<std::string> files;
    std::int64_t rows = 0;  ///< or tokens
};

struct ImportResult {
    std::vector<ImportedPart> parts;
    bool tokens = false;  ///< of a text
    Shape sample;
    std::string x_type, y_type;
    std::int64_t classes = 0;  ///< largest label or token + 1; 0: real targets or no labels
};

/// Files appear whole or not at all (temporary name, then rename). Existing files of the same parts are
/// replaced.
/// @throws Error (bad_data) naming file, line and column for cells that are no numbers, rows of other
/// lengths, values that do not fit the type; (bad_usage) for options that contradict the input.
ImportResult import_data(const ImportOptions& options);

}  // namespace trireme
