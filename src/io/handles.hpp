// Private to io: what File and Dataset share.
#pragma once

#include <exception>
#include <string>

#include "io/library.hpp"
#include "trireme/io/hdf5.hpp"

namespace trireme::io {

struct File::Handle {
    Handle() = default;
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;
    ~Handle() {
        // Closing a parallel file waits for the other ranks, which an error on its way here may never let
        // come.
        if (parallel && std::uncaught_exceptions() > 0) file.release();
    }

    Id file;
    std::string path;
    Access access = Access::read;
    bool shared = false;                                    ///< several ranks hold it
    bool parallel = false;                                  ///< several processes do, through MPI-IO
    std::int64_t largest_transfer = std::int64_t{1} << 30;  ///< bytes that one call of the library moves

    /// Bad data when reading fails, a plain failure when writing does.
    Status blame() const { return access == Access::read ? Status::bad_data : Status::failed; }
};

struct Dataset::Handle {
    std::shared_ptr<File::Handle> file;
    Id dataset;
    Id space;  ///< of the whole; its selection is set anew by each transfer
};

}  // namespace trireme::io
