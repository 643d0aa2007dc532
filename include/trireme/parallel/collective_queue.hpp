// The collectives of a data group, one after another in the order in which they are posted, which is the same
// on all ranks: at once; or while lanes go on, by a thread of their own, or on a stream of the device's own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "trireme/comm/communicator.hpp"
#include "trireme/tensor/device.hpp"

namespace trireme {

/// What is posted: something that can be done for several numbers.
class CollectiveWork {
public:
    virtual ~CollectiveWork() = default;
    virtual void run(Communicator& comm, int which) = 0;
};

class CollectiveQueue {
public:
    /// `comm` and `device` are kept by reference. `overlap`: on a duplicate of comm; then collective. One
    /// rank alone has nothing to overlap.
    CollectiveQueue(Communicator& comm, Device& device, bool overlap);
    ~CollectiveQueue();
    CollectiveQueue(const CollectiveQueue&) = delete;
    CollectiveQueue& operator=(const CollectiveQueue&) = delete;

    Communicator& comm() { return comm_; }
    bool overlaps() const { return own_ != nullptr; }

    using Ticket = std::int64_t;
    static constexpr Ticket none = -1;
    /// `work` has to outlive the wait for it.
    Ticket post(CollectiveWork& work, int which);
    /// Until this one, and all that were posted before, are done, or will be before whatever this thread's
    /// stream of the device is given next. @throws what the thread met.
    void wait(Ticket ticket);
    void wait_all() { wait(posted_ - 1); }

private:
    struct Task {
        CollectiveWork* work;
        int which;
    };
    void serve();
    void run_on_stream(const Task& task);

    Communicator& comm_;
    Device& device_;
    std::unique_ptr<Communicator> own_;  ///< of what goes on beside the lanes
    std::unique_ptr<DeviceEvent> begin_;
    std::vector<std::unique_ptr<DeviceEvent>> ends_;  ///< of ticket t, or a later one: at t mod size
    Ticket followed_ = none;                          ///< the last one that compute comes after
    std::mutex mutex_;
    std::condition_variable wake_, progress_;
    std::vector<Task> tasks_;       ///< task of ticket t: at t mod size
    Ticket posted_ = 0, done_ = 0;  ///< how many
    bool closing_ = false;
    std::exception_ptr error_;
    std::thread thread_;
};

}  // namespace trireme
