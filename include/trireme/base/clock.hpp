// Time since a fixed point, in seconds, that never runs backwards.
#pragma once

#include <chrono>

namespace trireme {

inline double now_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Seconds since the kernel started this process, loading of libraries included; to 10 ms.
double seconds_since_process_start();

/// Measures from its construction or its last restart.
class Stopwatch {
public:
    double seconds() const { return now_seconds() - start_; }
    void restart() { start_ = now_seconds(); }

private:
    double start_ = now_seconds();
};

}  // namespace trireme
