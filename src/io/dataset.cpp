#include <algorithm>

#include "io/handles.hpp"
#include "io/selection.hpp"

namespace trireme::io {
namespace {

/// Chunks are uncompressed once and kept: as many as the caller grants memory for, at least one.
Id access_with_cache(const DatasetInfo& info, std::int64_t cache_bytes) {
    Id properties(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose);
    if (!info.chunk || info.shape.count() == 0) return properties;
    const std::int64_t chunk_bytes = info.chunk->count() * static_cast<std::int64_t>(size_of(info.dtype));
    std::int64_t chunks = 1;
    for (int axis = 0; axis < info.shape.rank(); ++axis)
        chunks *= (info.shape[axis] + (*info.chunk)[axis] - 1) / (*info.chunk)[axis];
    const std::int64_t kept =
        std::clamp(cache_bytes / std::max<std::int64_t>(chunk_bytes, 1), std::int64_t{1}, chunks);
    // Ten slots a chunk, odd, keep two chunks from sharing one, in which they would evict each other.
    const std::int64_t slots = std::min<std::int64_t>(10 * kept, std::int64_t{1} << 22) | 1;
    H5Pset_chunk_cache(properties, static_cast<std::size_t>(slots),
                       static_cast<std::size_t>(kept * chunk_bytes), 0.0);
    return properties;
}

Shape shape_of(hid_t space, const std::string& name) {
    const int rank = H5Sget_simple_extent_ndims(space);
    if (rank > Shape::max_rank)
        fail(Status::bad_data, name,
             "expected at most " + std::to_string(Shape::max_rank) + " dimensions, found " +
                 std::to_string(rank));
    hsize_t dims[Shape::max_rank] = {};
    Shape shape;
    if (H5Sget_simple_extent_dims(space, dims, nullptr) < 0) return shape;
    for (int axis = 0; axis < rank; ++axis) shape.push_back(static_cast<std::int64_t>(dims[axis]));
    return shape;
}

DatasetInfo describe(hid_t dataset, const std::string& name) {
    DatasetInfo info;
    const Id type(check(H5Dget_type(dataset), Status::bad_data, name, "its type cannot be read"), H5Tclose);
    info.dtype = dtype_of_file_type(type, name);
    const Id space(check(H5Dget_space(dataset), Status::bad_data, name, "its extents cannot be read"),
                   H5Sclose);
    info.shape = shape_of(space, name);
    const Id creation(H5Dget_create_plist(dataset), H5Pclose);
    if (H5Pget_layout(creation) != H5D_CHUNKED) return info;
    hsize_t dims[Shape::max_rank] = {};
    const int rank = H5Pget_chunk(creation, Shape::max_rank, dims);
    info.chunk.emplace();
    for (int axis = 0; axis < rank; ++axis) info.chunk->push_back(static_cast<std::int64_t>(dims[axis]));
    info.compressed = H5Pget_nfilters(creation) > 0;
    return info;
}

std::shared_ptr<Dataset::Handle> handle_of(const std::shared_ptr<File::Handle>& file, Id dataset,
                                           const std::string& name) {
    auto handle = std::make_shared<Dataset::Handle>();
    handle->file = file;
    handle->space =
        Id(check(H5Dget_space(dataset), file->blame(), name, "its extents cannot be read"), H5Sclose);
    handle->dataset = std::move(dataset);
    return handle;
}

void expect_within(const std::string& name, Range range, std::int64_t size, const char* unit) {
    if (range.begin >= 0 && range.begin <= range.end && range.end <= size) return;
    fail(Status::bad_data, name,
         std::string("expected ") + unit + " " + std::to_string(range.begin) + " to " +
             std::to_string(range.end) + ", found " + std::to_string(size));
}

enum class Way { read, write };

/// Moves the selected elements between the file and `memory`, in which they lie one behind the other in this
/// shape.
void transfer(const Dataset::Handle& handle, const std::string& name, Way way, const Shape& shape, DType type,
              void* memory, hid_t properties) {
    hsize_t dims[Shape::max_rank] = {};
    std::copy(shape.begin(), shape.end(), dims);
    const Id space(H5Screate_simple(shape.rank(), dims, nullptr), H5Sclose);
    const hid_t element = memory_type(type);
    const herr_t status = way == Way::read
                              ? H5Dread(handle.dataset, element, space, handle.space, properties, memory)
                              : H5Dwrite(handle.dataset, element, space, handle.space, properties, memory);
    check(status, handle.file->blame(), name, way == Way::read ? "cannot be read" : "cannot be written");
}

void transfer_rows(const Dataset::Handle& handle, const DatasetInfo& info, const std::string& name, Way way,
                   Range rows, DType type, void* memory) {
    // The same shape in memory as in the file: otherwise the library goes through chunks element by element.
    const Shape shape = info.shape.rank() > 0 ? info.shape.inner().batched(rows.size()) : Shape{1};
    if (shape.count() == 0) return;
    select_rows(handle.space, info.shape, rows);
    transfer(handle, name, way, shape, type, memory, H5P_DEFAULT);
}

/// In pieces that the library and MPI-IO can move at once. Each rank by itself, also in a parallel file: the
/// parts are whole intervals, so there is nothing to gather, and a rank whose disk is full leaves nobody
/// waiting in a collective.
void transfer_flat(const Dataset::Handle& handle, const DatasetInfo& info, const std::string& name, Way way,
                   Range range, DType type, void* memory) {
    const std::int64_t bytes = static_cast<std::int64_t>(size_of(type));
    const std::int64_t piece = std::max<std::int64_t>(handle.file->largest_transfer / bytes, 1);
    for (std::int64_t done = 0; done < range.size(); done += piece) {
        const Range part = intersect(range, {range.begin + done, range.begin + done + piece});
        select_flat(handle.space, info.shape, part);
        transfer(handle, name, way, Shape{part.size()}, type, static_cast<char*>(memory) + done * bytes,
                 H5P_DEFAULT);
    }
}

}  // namespace

Dataset::Dataset(std::shared_ptr<Handle> handle, DatasetInfo info, std::string name)
    : handle_(std::move(handle)), info_(info), name_(std::move(name)) {}

void Dataset::read_rows(Range rows, DType as, void* to) const {
    const Lock lock;
    expect_within(name_, rows, info_.shape.rank() > 0 ? info_.shape[0] : 1, "rows");
    transfer_rows(*handle_, info_, name_, Way::read, rows, as, to);
}

void Dataset::write_rows(Range rows, DType from_type, const void* from) {
    const Lock lock;
    if (info_.chunk && !handle_->file->shared && rows.end > info_.shape[0]) grow(rows.end);
    expect_within(name_, rows, info_.shape.rank() > 0 ? info_.shape[0] : 1, "rows");
    transfer_rows(*handle_, info_, name_, Way::write, rows, from_type, const_cast<void*>(from));
}

void Dataset::grow(std::int64_t rows) {
    info_.shape[0] = rows;
    hsize_t dims[Shape::max_rank] = {};
    std::copy(info_.shape.begin(), info_.shape.end(), dims);
    check(H5Dset_extent(handle_->dataset, dims), Status::failed, name_, "cannot be extended");
    handle_->space = Id(
        check(H5Dget_space(handle_->dataset), Status::failed, name_, "its extents cannot be read"), H5Sclose);
}

void Dataset::read_flat(Range range, DType as, void* to) const {
    const Lock lock;
    expect_within(name_, range, info_.shape.count(), "elements");
    transfer_flat(*handle_, info_, name_, Way::read, range, as, to);
}

void Dataset::write_flat(Range range, DType from_type, const void* from) {
    const Lock lock;
    expect_within(name_, range, info_.shape.count(), "elements");
    transfer_flat(*handle_, info_, name_, Way::write, range, from_type, const_cast<void*>(from));
}

Dataset File::open(const std::string& dataset, std::int64_t chunk_cache_bytes) const {
    const Lock lock;
    const std::string name = handle_->path + ":" + dataset;
    if (!is_dataset(dataset))
        fail(Status::bad_data, name,
             has(dataset) ? "expected a data set, found a group" : "expected a data set, found none");
    const auto open_as = [&](hid_t properties) {
        return Id(check(H5Dopen2(handle_->file, dataset.c_str(), properties), handle_->blame(), name,
                        "cannot be opened"),
                  H5Dclose);
    };
    Id id = open_as(H5P_DEFAULT);
    DatasetInfo info = describe(id, name);
    if (info.chunk) {
        id.close();
        id = open_as(access_with_cache(info, chunk_cache_bytes));
    }
    return {handle_of(handle_, std::move(id), name), info, name};
}

Dataset File::create(const std::string& dataset, DType dtype, const Shape& shape, std::int64_t rows_per_chunk,
                     int deflate) {
    // Ranks that are threads of one process share it.
    const auto made = once([&] {
        return std::make_shared<Dataset>(create_here(dataset, dtype, shape, rows_per_chunk, deflate));
    });
    return *std::static_pointer_cast<Dataset>(made);
}

Dataset File::create_here(const std::string& dataset, DType dtype, const Shape& shape,
                          std::int64_t rows_per_chunk, int deflate) {
    const Lock lock;
    const std::string name = handle_->path + ":" + dataset;
    DatasetInfo info{dtype, shape, std::nullopt, false};
    hsize_t dims[Shape::max_rank] = {}, limits[Shape::max_rank] = {};
    std::copy(shape.begin(), shape.end(), dims);
    std::copy(shape.begin(), shape.end(), limits);
    const Id creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    if (rows_per_chunk > 0 && shape.rank() > 0) {
        limits[0] = H5S_UNLIMITED;
        info.chunk = shape.inner().batched(rows_per_chunk);
        info.compressed = deflate > 0;
        hsize_t chunk[Shape::max_rank] = {};
        std::copy(info.chunk->begin(), info.chunk->end(), chunk);
        check(H5Pset_chunk(creation, shape.rank(), chunk), Status::failed, name, "cannot be cut into chunks");
        if (deflate > 0)
            check(H5Pset_deflate(creation, static_cast<unsigned>(deflate)), Status::failed, name, "gzip");
    } else {
        // Allocated at once and not filled: rank 0 lays out the file, all ranks then write their parts.
        H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY);
        H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER);
    }
    const Id space(shape.rank() > 0 ? H5Screate_simple(shape.rank(), dims, limits) : H5Screate(H5S_SCALAR),
                   H5Sclose);
    const Id links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
    H5Pset_create_intermediate_group(links, 1);
    const Id access = access_with_cache(info, default_chunk_cache);
    Id id(check(H5Dcreate2(handle_->file, dataset.c_str(), file_type(dtype), space, links, creation, access),
                Status::failed, name, "cannot be created"),
          H5Dclose);
    return {handle_of(handle_, std::move(id), name), info, name};
}

}  // namespace trireme::io
