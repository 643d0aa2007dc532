#pragma once
// Ranks that are threads, for tests of a team: threads may not use the test framework's assertions, so what
// goes wrong is collected and checked afterwards.

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/mpi_communicator.hpp"
#include "trireme/comm/communicator.hpp"

namespace trireme::testing {

class Faults {
public:
    void expect(bool good, const std::string& what) {
        if (good) return;
        const std::lock_guard lock(mutex_);
        found_.push_back(what);
    }
    std::string text() const;  // empty where all is well

private:
    std::mutex mutex_;
    std::vector<std::string> found_;
};

// Runs `action` on every rank, each in a thread of its own, and returns what went wrong. An exception of one
// rank, for which others may wait for ever, ends the process.
std::string on_each(const std::vector<std::unique_ptr<Communicator>>& ranks,
                    const std::function<void(Communicator&, Faults&)>& action);

// The same on a new team of so many threads of each of the processes.
std::string on_team(MpiCommunicator& processes, int threads,
                    const std::function<void(Communicator&, Faults&)>& action);
// Of this process alone.
std::string on_team(int threads, const std::function<void(Communicator&, Faults&)>& action);

// Every collective at awkward sizes and of several types, against exact values.
void check_collectives(Communicator& comm, Faults& faults, const std::vector<std::int64_t>& sizes);
// Messages between all pairs, a rank and itself among them, several at once and in order.
void check_messages(Communicator& comm, Faults& faults);
// Splits into groups of odd sizes and orders, and splits of these; collectives within them.
void check_splits(Communicator& comm, Faults& faults);

}  // namespace trireme::testing
