// One lock around the emulation, so that any thread may call it.
#pragma once

namespace trireme::cudaemu {

// Recursive. Not a std::mutex, which the race detector would take for an order between the program's threads.
class Lock {
public:
    Lock();
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

    static bool held();  // by the calling thread
};

// While one lives, other threads get in; it restores the lock as it was.
class Unlocked {
public:
    Unlocked();
    ~Unlocked();
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;

private:
    int depth_;
};

}  // namespace trireme::cudaemu
