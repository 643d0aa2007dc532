// The multiprocessor: runs one block after another, the threads of each as fibers.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cudaemu/device.hpp"
#include "cudaemu/launch.hpp"
#include "fiber.hpp"
#include "sanitizer.hpp"

namespace trireme::cudaemu {

struct Launch {
    dim3 grid, block;
    std::size_t shared_bytes = 0;
    const void* kernel = nullptr;
    Body body = nullptr;
    const void* bound = nullptr;
};

void run(const Launch&);

// "kernel NAME"
std::string name(const void* kernel);

struct Thread {
    uint3 index{};
    Fiber* fiber = nullptr;
    bool done = false;
    const Site* waits_at = nullptr;  // null while it runs or may run
};

// Of the lanes of one mask; two rounds, since a lane may come to the next while others still read the last.
struct Meeting {
    unsigned mask = 0, arrived = 0, round = 0;
    Site site;
    std::array<const void*, 2> place{};
    std::array<std::array<std::uint64_t, 32>, 2> value;
};

// Stacks for the threads of one block. A fiber that has no thread left to run goes back.
class Pool {
public:
    Fiber* get();
    void put(Fiber* f) { free_.push_back(f); }

private:
    std::vector<std::unique_ptr<Fiber>> all_;
    std::vector<Fiber*> free_;
};

// Addresses at which the race detector joins clocks: a new one for every meeting, in new memory for every
// launch, since what was once released at an address stays there until the memory is freed.
class Places {
public:
    void renew() { bytes_.reset(san::races() ? new std::array<char, 1 << 16> : nullptr); }
    const void* next() { return bytes_ ? &(*bytes_)[next_++ % bytes_->size()] : nullptr; }

private:
    std::unique_ptr<std::array<char, 1 << 16>> bytes_;
    std::size_t next_ = 0;
};

// Where a race detector watches, each thread has a stack and an identity of its own. Kernels of different
// streams share neither, nor do neighbouring blocks: what one identity does is ordered by that alone.
struct Cast {
    std::vector<std::unique_ptr<Fiber>> stacks;
    std::vector<void*> actors;
    std::size_t used = 0;  // when, in launches
};

struct Machine {
    Launch launch;
    std::vector<Thread> threads;
    std::vector<unsigned> ready;  // taken from the back
    std::vector<std::deque<Meeting>> warps;
    std::unique_ptr<std::byte[]> shared;
    unsigned current = 0, live = 0;
    Fiber main;
    Fiber* fiber = nullptr;
    Pool pool;

    // The block's barrier.
    unsigned arrived = 0, round = 0;
    int votes = 0, verdict = 0;
    Site site;
    std::array<const void*, 2> place{};

    std::map<void*, Cast> casts;  // by the stream's actor
    std::vector<Cast> spare;      // of streams that are gone
    Cast* cast = nullptr;         // of this launch
    std::size_t first = 0;        // in it, of this block
    std::size_t launches = 0;
    Places places;
    const void *began = nullptr, *ended = nullptr, *fenced = nullptr;
};

void retire(void* actor);  // of a stream; those of its kernels serve the next

inline constexpr unsigned none = ~0u;

Machine& machine();
void push_ready(std::vector<unsigned>& ready, unsigned from);  // orders what came since `from`
unsigned pick();

// The current thread has noted what it waits for; others run until it may go on.
void wait();

// Whoever leaves this place has seen what everyone did who came to it.
template <class Settle>
void rendezvous(const void* place, Settle settle) {
    san::release(place);
    san::unwatch();  // until it is entered again
    settle();
    wait();
    san::acquire(place);
}

}  // namespace trireme::cudaemu
