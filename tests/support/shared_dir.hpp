#pragma once
// What tests under several ranks share: a folder, and errors that all raise alike.

#include <functional>
#include <optional>
#include <string>

#include "support/catch.hpp"
#include "support/process.hpp"
#include "trireme/base/error.hpp"
#include "trireme/comm/agree.hpp"

namespace trireme::testing {

// One directory for all ranks.
class SharedDir {
public:
    explicit SharedDir(Communicator& comm) : comm_(comm) {
        if (comm.rank() == 0) dir_.emplace();
        path_ = broadcast_text(comm, dir_ ? dir_->path().string() : "");
    }
    ~SharedDir() { comm_.barrier(); }
    std::string operator/(const std::string& name) const { return path_ + "/" + name; }
    const std::string& path() const { return path_; }

private:
    Communicator& comm_;
    std::optional<TempDir> dir_;
    std::string path_;
};

// The error that all ranks raise, the same for all.
inline Error agreed_error(Communicator& comm, const std::function<void()>& action) {
    std::optional<Error> error;
    try {
        action();
    } catch (const Error& caught) {
        error = caught;
    }
    REQUIRE(all_reduce_value(comm, error ? 1 : 0) == comm.size());
    CHECK(error->scope() == Scope::all_ranks);
    for (const std::string& other : gather_texts(comm, error->what())) CHECK(other == error->what());
    return *error;
}

}  // namespace trireme::testing
