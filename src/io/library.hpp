// Private to io: the lock around the HDF5 library, owners of its handles, and its failures as Errors.
#pragma once

#include <hdf5.h>

#include <string>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/tensor/dtype.hpp"

namespace trireme::io {

/// Held around every call into the library, which is not thread-safe; a thread may hold it several times
/// over. Threads get it in the order in which they ask, so that whoever moves much in many pieces lets others
/// in between. The first holder initializes the library, whose own printing of errors is off from then on.
class Lock {
public:
    Lock();
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
};

/// The description nearest to the cause on the library's error stack.
std::string hdf5_reason();

[[noreturn]] void fail(Status status, const std::string& object, const std::string& what);

/// Passes a handle or a status on. @throws Error "object: what: reason" when it is negative.
template <class Result>
Result check(Result result, Status status, const std::string& object, const char* what) {
    if (result < 0) fail(status, object, what + std::string(": ") + hdf5_reason());
    return result;
}

/// Owns a handle of the library; closing by the destructor cannot fail loudly.
class Id {
public:
    using Close = herr_t (*)(hid_t);

    Id() = default;
    Id(hid_t id, Close closer) : id_(id), close_(closer) {}
    Id(Id&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)), close_(other.close_) {}
    Id& operator=(Id&& other) noexcept {
        std::swap(id_, other.id_);
        std::swap(close_, other.close_);
        return *this;
    }
    ~Id() { close(); }

    operator hid_t() const { return id_; }
    bool close() noexcept;
    /// Gives the handle up without closing it.
    hid_t release() { return std::exchange(id_, H5I_INVALID_HID); }

private:
    hid_t id_ = H5I_INVALID_HID;
    Close close_ = nullptr;
};

/// The type of elements in memory; owned by the library or by the process.
hid_t memory_type(DType type);
/// The type written into files: little-endian.
hid_t file_type(DType type);
/// The element type that holds every value of a stored type. @throws Error (bad_data) naming `object` for
/// types that are no numbers.
DType dtype_of_file_type(hid_t type, const std::string& object);

}  // namespace trireme::io
