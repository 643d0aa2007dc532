// NCCL communicators: who is in them, and the state that their calls share.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "call.hpp"

namespace trireme::cudaemu {

struct Communicator {
    std::uint64_t id = 0;
    int rank = 0, size = 0;
    int device = 0;
    std::vector<int> process;  // of each rank
    bool blocking = true;

    ncclResult_t state = ncclSuccess;
    // Carries an unfinished call on; returns ncclInProgress, or how it ended.
    std::function<ncclResult_t()> pending = {};
    bool aborted = false, destroyed = false;

    // Numbers by which letters find each other: calls are matched in the order in which they are issued.
    std::uint64_t collectives = 0, splits = 0;
    std::map<int, std::uint64_t> sent = {}, received = {};
    std::size_t open = 0;  // operations that are queued or under way
    // Calls that captures and graphs hold: the communicator does not end before them.
    std::size_t recorded = 0;
};

// Carries the communicator on, and returns its state.
ncclResult_t advance(Communicator&);
// Until it is no longer in progress; other streams work meanwhile.
ncclResult_t settle(const std::shared_ptr<Communicator>&, const char* why);

ncclResult_t fail(ncclResult_t, std::string message);  // for ncclGetLastError

template <class F>
ncclResult_t nccl_api(F f) {
    const Lock lock;
    const san::Aside aside;
    if (const cudaError_t e = obstacle(); e != cudaSuccess) {
        return fail(ncclUnhandledCudaError, cudaGetErrorString(e));
    }
    return f();
}

// Groups, of the calling thread: what is in one begins when it ends.
bool in_group();
void join_later(std::shared_ptr<Communicator>);

}  // namespace trireme::cudaemu

struct ncclComm {
    std::shared_ptr<trireme::cudaemu::Communicator> state;
};
