#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "comm/processes.hpp"
#include "io/handles.hpp"
#include "trireme/comm/agree.hpp"

namespace trireme::io {
namespace {

Id access_properties(Access access) {
    Id properties(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
    // Several jobs may read one file, and a directory may be read-only; files are written under names of
    // their own.
    H5Pset_file_locking(properties, false, true);
    // An explicit close means closed, whatever data sets are still held.
    H5Pset_fclose_degree(properties, H5F_CLOSE_STRONG);
    // Rows are read at random, whole runs at once: the library's own reading ahead would fetch 64 KiB for
    // each.
    if (access == Access::read) H5Pset_sieve_buf_size(properties, 0);
    return properties;
}

/// "eof = 700, ..., stored_eof = 1234" of the library's message as a sentence; empty when it says something
/// else.
std::string truncation(const std::string& reason) {
    const auto number_after = [&](const std::string& mark) {
        const auto at = reason.find(mark);
        return at == std::string::npos
                   ? std::string()
                   : reason.substr(at + mark.size(), reason.find(',', at) - at - mark.size());
    };
    const std::string found = number_after(" eof = "), expected = number_after("stored_eof = ");
    if (found.empty() || expected.empty()) return {};
    return "expected a file of " + expected + " bytes, found " + found + " bytes: it is truncated";
}

[[noreturn]] void refuse_to_open(const std::string& path) {
    const std::string reason = hdf5_reason();
    if (const std::string sentence = truncation(reason); !sentence.empty())
        fail(Status::bad_data, path, sentence);
    if (H5Fis_hdf5(path.c_str()) == 0)
        fail(Status::bad_data, path, "expected an HDF5 file, found something else");
    fail(Status::bad_data, path,
         "expected a whole HDF5 file, found one that cannot be opened (" + reason + ")");
}

Id open_file(const std::string& path, Access access, const Id& properties) {
    const char* name = path.c_str();
    if (access == Access::create) {
        const hid_t file = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, properties);
        return {check(file, Status::failed, path, "cannot be created"), H5Fclose};
    }
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored))
        fail(Status::bad_data, path, "expected an HDF5 file, found no such file");
    if (std::filesystem::is_directory(path, ignored))
        fail(Status::bad_data, path, "expected an HDF5 file, found a directory");
    const hid_t file = H5Fopen(name, access == Access::read ? H5F_ACC_RDONLY : H5F_ACC_RDWR, properties);
    if (file < 0) refuse_to_open(path);
    return {file, H5Fclose};
}

std::shared_ptr<File::Handle> open_alone(const std::string& path, Access access) {
    const Lock lock;
    auto handle = std::make_shared<File::Handle>();
    handle->path = path;
    handle->access = access;
    handle->file = open_file(path, access, access_properties(access));
    return handle;
}

std::shared_ptr<File::Handle> open_together(const std::string& path, Access access, MPI_Comm processes) {
    int count = 1;
    MPI_Comm_size(processes, &count);
    if (count == 1) return open_alone(path, access);
    const Lock lock;
    auto handle = std::make_shared<File::Handle>();
    handle->path = path;
    handle->access = access;
    handle->parallel = true;
    const Id properties = access_properties(access);
    check(H5Pset_fapl_mpio(properties, processes, MPI_INFO_NULL), Status::failed, path,
          "cannot be opened by several ranks");
    handle->file = open_file(path, access, properties);
    return handle;
}

}  // namespace

File::File(const std::string& path, Access access) : handle_(open_alone(path, access)) {}

File::File(const std::string& path, Access access, Communicator& comm) {
    if (comm.size() == 1) {
        handle_ = open_alone(path, access);
        return;
    }
    // One rank tries first: its message says more than MPI-IO's, and all ranks get the same.
    agreed_by_one(comm, [&] { open_alone(path, access == Access::create ? access : Access::read); });
    comm_ = &comm;
    handle_ = std::static_pointer_cast<Handle>(
        once_per_process(comm, [&] { return open_together(path, access, processes_of(comm)); }));
    const Lock lock;
    handle_->shared = true;
}

/// Done once for all ranks of a process that hold the file. The lock of the library is taken within `make`:
/// whoever waits here must not hold it.
std::shared_ptr<void> File::once(const std::function<std::shared_ptr<void>()>& make) {
    return comm_ == nullptr ? make() : once_per_process(*comm_, make);
}

void File::together(const std::function<void()>& action) {
    once([&] {
        action();
        return nullptr;
    });
}

const std::string& File::path() const {
    return handle_->path;
}

bool File::has(const std::string& object) const {
    const Lock lock;
    // Each link on the way has to be asked for, or the library calls a missing one an error.
    for (std::size_t end = 0; end != std::string::npos;) {
        end = object.find('/', end + 1);
        const std::string part = object.substr(0, end);
        if (part.empty() || part == "/" || part.back() == '/') continue;
        if (H5Lexists(handle_->file, part.c_str(), H5P_DEFAULT) <= 0) return false;
    }
    return true;
}

std::vector<std::string> File::children(const std::string& group) const {
    const Lock lock;
    std::vector<std::string> names;
    if (!has(group)) return names;
    const Id id(H5Gopen2(handle_->file, group.c_str(), H5P_DEFAULT), H5Gclose);
    H5G_info_t info{};
    if (id < 0 || H5Gget_info(id, &info) < 0) return names;
    for (hsize_t i = 0; i < info.nlinks; ++i) {
        const auto by_index = [&](char* text, std::size_t size) {
            return check(H5Lget_name_by_idx(id, ".", H5_INDEX_NAME, H5_ITER_INC, i, text, size, H5P_DEFAULT),
                         Status::bad_data, handle_->path, "its groups cannot be listed");
        };
        std::string name(static_cast<std::size_t>(by_index(nullptr, 0)), '\0');
        by_index(name.data(), name.size() + 1);
        names.push_back(std::move(name));
    }
    std::sort(names.begin(), names.end());
    return names;
}

bool File::is_dataset(const std::string& object) const {
    const Lock lock;
    if (!has(object)) return false;
    const Id id(H5Oopen(handle_->file, object.c_str(), H5P_DEFAULT), H5Oclose);
    return id >= 0 && H5Iget_type(id) == H5I_DATASET;
}

void File::create_group(const std::string& group) {
    together([&] {
        const Lock lock;
        if (group == "/" || has(group)) return;
        const Id links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
        H5Pset_create_intermediate_group(links, 1);
        const Id id(H5Gcreate2(handle_->file, group.c_str(), links, H5P_DEFAULT, H5P_DEFAULT), H5Gclose);
        check(id.operator hid_t(), Status::failed, handle_->path + ":" + group,
              "the group cannot be created");
    });
}

void File::limit_transfers(std::int64_t bytes) {
    const Lock lock;
    handle_->largest_transfer = bytes;
}

void File::flush() {
    together([&] {
        const Lock lock;
        check(H5Fflush(handle_->file, H5F_SCOPE_GLOBAL), Status::failed, handle_->path, "cannot be written");
        if (handle_->parallel) return;  // the MPI-IO driver has called MPI_File_sync
        void* driver = nullptr;
        check(H5Fget_vfd_handle(handle_->file, H5P_DEFAULT, &driver), Status::failed, handle_->path,
              "has no descriptor");
        if (fsync(*static_cast<int*>(driver)) != 0)
            fail(Status::failed, handle_->path,
                 "cannot be written to the disk: " + std::string(std::strerror(errno)));
    });
}

void File::close() {
    together([&] {
        const Lock lock;
        if (handle_->file < 0) return;
        if (!handle_->file.close())
            fail(handle_->blame(), handle_->path, "cannot be closed: " + hdf5_reason());
    });
}

}  // namespace trireme::io
