#include "support/data_files.hpp"

#include <hdf5.h>
#include <zlib.h>

#include <algorithm>
#include <stdexcept>

#include "trireme/base/range.hpp"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

hid_t valid(hid_t id) {
    if (id < 0) throw std::runtime_error("HDF5 refused to write a test's file");
    return id;
}

hid_t open_or_create(const fs::path& file) {
    return valid(fs::exists(file) ? H5Fopen(file.c_str(), H5F_ACC_RDWR, H5P_DEFAULT)
                                  : H5Fcreate(file.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
}

hid_t base_type(DType type) {
    switch (type) {
        case DType::f64:
            return H5T_IEEE_F64LE;
        case DType::i8:
            return H5T_STD_I8LE;
        case DType::u8:
            return H5T_STD_U8LE;
        case DType::i16:
            return H5T_STD_I16LE;
        case DType::u16:
            return H5T_STD_U16LE;
        case DType::i32:
            return H5T_STD_I32LE;
        case DType::u32:
            return H5T_STD_U32LE;
        case DType::i64:
            return H5T_STD_I64LE;
        case DType::u64:
            return H5T_STD_U64LE;
        default:
            return H5T_IEEE_F32LE;
    }
}

hid_t stored_type(const Storage& storage) {
    const hid_t type = H5Tcopy(base_type(storage.type));
    if (storage.type == DType::f16 || storage.type == DType::bf16) {
        const bool half = storage.type == DType::f16;
        H5Tset_fields(type, 15, half ? 10 : 7, half ? 5 : 8, 0, half ? 10 : 7);
        H5Tset_size(type, 2);
        H5Tset_ebias(type, half ? 15 : 127);
    }
    H5Tset_order(type, storage.big_endian ? H5T_ORDER_BE : H5T_ORDER_LE);
    return valid(type);
}

// One data set with these values in memory type `memory`.
void write(const fs::path& file, const std::string& name, const Shape& shape, hid_t type, hid_t memory,
           const void* values, const Storage& storage = {}) {
    const hid_t id = open_or_create(file);
    std::vector<hsize_t> dims(shape.begin(), shape.end());
    const hid_t space = valid(H5Screate_simple(shape.rank(), dims.data(), nullptr));
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    if (storage.chunk_rows > 0) {
        dims[0] = static_cast<hsize_t>(storage.chunk_rows);
        H5Pset_chunk(creation, shape.rank(), dims.data());
        if (storage.deflate > 0) H5Pset_deflate(creation, static_cast<unsigned>(storage.deflate));
    }
    const hid_t dataset =
        valid(H5Dcreate2(id, name.c_str(), type, space, H5P_DEFAULT, creation, H5P_DEFAULT));
    if (shape.count() > 0) valid(H5Dwrite(dataset, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values));
    H5Dclose(dataset);
    H5Pclose(creation);
    H5Sclose(space);
    H5Fclose(id);
}

std::vector<double> rows_of(const std::vector<double>& values, std::int64_t per_row, Range rows) {
    return {values.begin() + rows.begin * per_row, values.begin() + rows.end * per_row};
}

}  // namespace

void add_dataset(const fs::path& file, const std::string& name, const Shape& shape,
                 const std::vector<double>& values, const Storage& storage) {
    const hid_t type = stored_type(storage);
    write(file, name, shape, type, H5T_NATIVE_DOUBLE, values.data(), storage);
    H5Tclose(type);
}

void add_strings(const fs::path& file, const std::string& name, const std::vector<std::string>& values) {
    const hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, H5T_VARIABLE);
    std::vector<const char*> texts;
    for (const std::string& value : values) texts.push_back(value.c_str());
    write(file, name, Shape{static_cast<std::int64_t>(values.size())}, type, type, texts.data());
    H5Tclose(type);
}

void add_compounds(const fs::path& file, const std::string& name, std::int64_t rows) {
    const hid_t type = H5Tcreate(H5T_COMPOUND, sizeof(double));
    H5Tinsert(type, "value", 0, H5T_NATIVE_DOUBLE);
    const std::vector<double> values(static_cast<std::size_t>(rows), 1.0);
    write(file, name, Shape{rows}, type, type, values.data());
    H5Tclose(type);
}

Shape read_shape(const fs::path& file, const std::string& name) {
    const hid_t id = valid(H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT));
    const hid_t dataset = valid(H5Dopen2(id, name.c_str(), H5P_DEFAULT)),
                space = valid(H5Dget_space(dataset));
    std::vector<hsize_t> dims(static_cast<std::size_t>(H5Sget_simple_extent_ndims(space)));
    H5Sget_simple_extent_dims(space, dims.data(), nullptr);
    H5Sclose(space);
    H5Dclose(dataset);
    H5Fclose(id);
    Shape shape;
    for (const hsize_t dim : dims) shape.push_back(static_cast<std::int64_t>(dim));
    return shape;
}

std::vector<double> read_values(const fs::path& file, const std::string& name) {
    std::vector<double> values(static_cast<std::size_t>(read_shape(file, name).count()));
    const hid_t id = valid(H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT));
    const hid_t dataset = valid(H5Dopen2(id, name.c_str(), H5P_DEFAULT));
    valid(H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
    H5Dclose(dataset);
    H5Fclose(id);
    return values;
}

void truncate_file(const fs::path& file, double part) {
    fs::resize_file(file, static_cast<std::uintmax_t>(static_cast<double>(fs::file_size(file)) * part));
}

std::int64_t Samples::rows() const {
    return static_cast<std::int64_t>(x.size()) / sample.count();
}

namespace {

void write_rows_of(const fs::path& file, const Samples& samples, Range rows, const Storage& x,
                   const Storage& y) {
    fs::create_directories(file.parent_path());
    fs::remove(file);
    add_dataset(file, "/x", samples.sample.batched(rows.size()),
                rows_of(samples.x, samples.sample.count(), rows), x);
    const Shape targets = samples.targets > 0 ? Shape{rows.size(), samples.targets} : Shape{rows.size()};
    add_dataset(file, "/y", targets, rows_of(samples.y, std::max<std::int64_t>(samples.targets, 1), rows), y);
}

}  // namespace

Samples numbered_samples(std::int64_t rows, const Shape& sample, std::int64_t classes) {
    Samples samples{sample, {}, {}};
    for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t k = 0; k < sample.count(); ++k)
            samples.x.push_back(static_cast<double>((31 * i + 7 * k + i * k) % 120));
        samples.y.push_back(static_cast<double>(i % classes));
    }
    return samples;
}

void write_samples(const fs::path& file, const Samples& samples, const Storage& x, const Storage& y) {
    write_rows_of(file, samples, {0, samples.rows()}, x, y);
}

std::string write_shards(const fs::path& folder, const Samples& samples,
                         const std::vector<std::int64_t>& sizes, const Storage& x, const Storage& y) {
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < sizes.size(); begin += sizes[i++])
        write_rows_of(folder / ("part-" + std::to_string(i) + ".h5"), samples, {begin, begin + sizes[i]}, x,
                      y);
    return folder / "part-*.h5";
}

std::string idx_bytes(const std::vector<std::int64_t>& extents, const std::vector<std::uint8_t>& values) {
    std::string bytes{'\0', '\0', '\x08', static_cast<char>(extents.size())};
    for (const std::int64_t extent : extents)
        for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(extent >> shift));
    bytes.append(values.begin(), values.end());
    return bytes;
}

std::string gzip_bytes(const std::string& content) {
    z_stream stream{};
    constexpr int with_gzip_header = 15 + 16;
    if (deflateInit2(&stream, 6, Z_DEFLATED, with_gzip_header, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        throw std::runtime_error("zlib refused to compress a test's file");
    std::string bytes(deflateBound(&stream, content.size()), '\0');
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
    stream.avail_in = static_cast<uInt>(content.size());
    stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
    stream.avail_out = static_cast<uInt>(bytes.size());
    deflate(&stream, Z_FINISH);
    bytes.resize(stream.total_out);
    deflateEnd(&stream);
    return bytes;
}

}  // namespace trireme::testing
