// Streams: queues whose work runs when somebody waits, by the thread that waits.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace trireme::cudaemu {

struct Capture;

enum class Progress { done, moved, waiting };  // waiting: for other ranks

// The moment of an event: reached once the stream has come to it.
struct Mark {
    cudaStream_t stream = nullptr;
    bool reached = false;
    std::chrono::steady_clock::time_point time{};
};

struct Op {
    std::function<Progress()> run = {};
    std::function<std::string()> describe = {};  // and what it waits for, in words
    std::shared_ptr<Mark> needs = {};            // must be reached before
    std::shared_ptr<Mark> sets = {};             // is reached after
    std::shared_ptr<void> ticket = {};           // for the race detector: what the host did before the call
};

enum class NodeKind { kernel, copy, set, host };

// What a call asks of a stream: run once where the stream takes work, and once for every replay where it is
// captured.
struct Work {
    NodeKind kind;
    std::function<std::string()> describe;
    std::function<Op()> make;
};

// Work that is done in one go, with access to the device's memory.
Work work(NodeKind, int device, std::function<std::string()> describe, std::function<void()> run);

// Queues work, or captures it. Under eager streams it has run on return, as far as it can without other
// ranks.
cudaError_t submit(cudaStream_t, Work);
void enqueue(cudaStream_t, Op);
void run_if_eager(cudaStream_t);

// Runs queued work until something holds, as much or as little of it as the options say. Takes the work of
// other streams first, if need be, and lets other threads in while nothing moves.
void drive(const std::function<bool()>& done, cudaStream_t toward, const char* why);
void work_a_little();            // one step of each stream that has one to take
bool poke(cudaStream_t toward);  // one step, toward it if the options say so
void let_go();                   // closes the memory that is open for the next operation

void bury(cudaStream_t);  // when it has nothing left to do

void drain(cudaStream_t);  // waits for all that it has
void drain_device(int device);

std::vector<cudaStream_t>& streams();  // of all devices
std::string what_streams_wait_for();

}  // namespace trireme::cudaemu

struct CUstream_st {
    int device = 0;
    int number = 0;  // to tell them apart in reports
    unsigned flags = 0;
    int priority = 0;
    void* actor = nullptr;
    std::deque<trireme::cudaemu::Op> queue = {};
    bool busy = false;       // its first operation is running, and the lock is open
    bool abandoned = false;  // destroyed by the program, with work to do
    std::shared_ptr<trireme::cudaemu::Capture> capture = {};
    std::vector<std::size_t> tail = {};  // nodes that the next captured one comes after
};

struct CUevent_st {
    int device = 0;
    unsigned flags = 0;
    std::shared_ptr<trireme::cudaemu::Mark> mark = {};        // of the last record
    std::shared_ptr<trireme::cudaemu::Capture> capture = {};  // in which it was recorded, instead
    std::vector<std::size_t> tail = {};
};
