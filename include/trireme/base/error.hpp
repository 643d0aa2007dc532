// The one exception type of the program: a message for a person, an exit status for the shell, and whether
// all ranks raise it alike.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace trireme {

/// Exit statuses that scripts rely on.
enum class Status : int {
    done = 0,
    failed = 1,     ///< failed while running
    bad_usage = 2,  ///< wrong usage or configuration
    bad_data = 3,   ///< bad data set or checkpoint
    stopped = 75,   ///< stopped early with a checkpoint saved: start again to go on (EX_TEMPFAIL)
};

/// Who raises an error: one rank (the job is aborted) or all ranks alike (rank 0 speaks, all end in order).
enum class Scope { one_rank, all_ranks };

class Error : public std::runtime_error {
public:
    Error(Status status, const std::string& message, Scope scope = Scope::one_rank)
        : std::runtime_error(message), status_(status), scope_(scope) {}

    Status status() const { return status_; }
    Scope scope() const { return scope_; }

private:
    Status status_;
    Scope scope_;
};

inline Error failure(const std::string& message) {
    return Error(Status::failed, message);
}
inline Error usage_error(const std::string& message) {
    return Error(Status::bad_usage, message, Scope::all_ranks);
}
inline Error data_error(const std::string& message) {
    return Error(Status::bad_data, message);
}

}  // namespace trireme
