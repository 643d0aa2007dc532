// Ends a job that no longer gets on, after saying where each process stands.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "trireme/comm/session.hpp"

namespace trireme {

/// One for each process. A thread looks once a second how long the process has begun and ended nothing. Where
/// that is longer than the timeout, process 0 asks all others: when any of them gets on, others merely wait
/// for it; when none does, or some do not answer, the job has stalled. Time in which the process itself was
/// stopped (a suspended job) does not count.
class Watchdog {
public:
    struct Options {
        double timeout = 0;                    ///< seconds; 0: nobody watches
        std::function<double()> idle_seconds;  ///< since something began or ended here
        std::function<std::string()> place;    ///< where this process stands, for people
        /// Says what was found (on one process) and ends the job; does not return.
        std::function<void(const std::string&)> end;
    };
    /// Collective among the processes, as is the end.
    Watchdog(Session& session, Options options);
    ~Watchdog();
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
