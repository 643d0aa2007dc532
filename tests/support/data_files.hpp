#pragma once
// Small data sets on disk for tests, in every stored form that a user's file may have: written with HDF5
// directly, so that the product's own writer is not what its reader is tested against.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/tensor/dtype.hpp"
#include "trireme/tensor/shape.hpp"

namespace trireme::testing {

// How values lie in a file.
struct Storage {
    DType type = DType::f32;
    bool big_endian = false;
    std::int64_t chunk_rows = 0;  // 0: contiguous
    int deflate = 0;              // gzip level; needs chunks
};

// Adds a data set to a file, which is created when there is none yet.
void add_dataset(const std::filesystem::path& file, const std::string& name, const Shape& shape,
                 const std::vector<double>& values, const Storage& storage = {});
void add_strings(const std::filesystem::path& file, const std::string& name,
                 const std::vector<std::string>& values);
void add_compounds(const std::filesystem::path& file, const std::string& name, std::int64_t rows);

std::vector<double> read_values(const std::filesystem::path& file, const std::string& name);
Shape read_shape(const std::filesystem::path& file, const std::string& name);

// Cuts a file to this part of its size.
void truncate_file(const std::filesystem::path& file, double part);

struct Samples {
    Shape sample;
    std::vector<double> x, y;  // y: one label or, times targets, several numbers a sample
    std::int64_t targets = 0;  // 0: y is [n]; else [n, targets]

    std::int64_t rows() const;
};

// Sample i consists of small whole numbers that differ from those of its neighbours; its label is i mod
// classes.
Samples numbered_samples(std::int64_t rows, const Shape& sample, std::int64_t classes = 10);

// The samples as `/x` and `/y` of one file.
void write_samples(const std::filesystem::path& file, const Samples& samples, const Storage& x = {},
                   const Storage& y = {DType::i64});

// Shards of these sizes, in this order, as folder/part-0.h5, ...; returns the pattern that matches them.
std::string write_shards(const std::filesystem::path& folder, const Samples& samples,
                         const std::vector<std::int64_t>& sizes, const Storage& x = {},
                         const Storage& y = {DType::i64});

// Content of an IDX file with elements of one byte.
std::string idx_bytes(const std::vector<std::int64_t>& extents, const std::vector<std::uint8_t>& values);
// The same content, compressed.
std::string gzip_bytes(const std::string& content);

}  // namespace trireme::testing
