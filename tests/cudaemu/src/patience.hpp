// How a thread waits for what others have to do: it lets them in, sleeps when that takes long, and reports
// what every stream waits for when nothing moves at all.
#pragma once

#include <chrono>

namespace trireme::cudaemu {

class Patience {
public:
    explicit Patience(const char* why) : why_(why) {}

    void moved() { since_ = Clock::now(); }
    void idle();  // call with the lock, which is open meanwhile, or without
    bool over(std::chrono::microseconds limit) const { return Clock::now() - since_ > limit; }

private:
    using Clock = std::chrono::steady_clock;

    const char* why_;
    Clock::time_point since_ = Clock::now();
    bool reported_ = false;
};

}  // namespace trireme::cudaemu
