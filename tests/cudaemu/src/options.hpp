// How adversarial the emulation is and which faults it injects: read from the environment at first use, and
// settable by tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>

namespace trireme::cudaemu {

enum class Order { forward, reverse, shuffled };

// When queued work runs: at once; as late as a wait allows; all of it before the awaited; in any allowed
// order.
enum class Streams { eager, lazy, others_first, shuffled };

// Strikes at the n-th occasion from when it was set, once.
struct Fault {
    std::size_t occasion = 0;  // 0: never
    bool strikes() { return occasion != 0 && --occasion == 0; }
};

// One rank of the job is hit, after so many of its NCCL operations.
struct RankFault {
    int rank = -1;
    std::size_t after = 0;
};

struct Options {
    Order threads = Order::forward;             // TRIREME_EMU_THREADS
    Streams streams = Streams::lazy;            // TRIREME_EMU_STREAMS
    std::uint64_t seed = 1;                     // TRIREME_EMU_SEED
    bool guard = true;                          // TRIREME_EMU_GUARD: the host cannot reach device memory
    int devices = 1;                            // TRIREME_EMU_DEVICES; -1 (none): there is no driver either
    std::size_t memory = std::size_t{1} << 32;  // TRIREME_EMU_MEMORY: bytes of each device
    double hang_seconds = 60;                   // TRIREME_EMU_HANG_SECONDS: until a standstill is reported
    Fault fail_alloc;                           // TRIREME_EMU_FAIL_ALLOC: the n-th cudaMalloc
    Fault fail_host_alloc;                      // TRIREME_EMU_FAIL_HOST_ALLOC
    Fault fail_launch;                          // TRIREME_EMU_FAIL_LAUNCH: the n-th launch is refused
    Fault fail_kernel;                          // TRIREME_EMU_FAIL_KERNEL: the n-th kernel loses its device
    RankFault nccl_error;                       // TRIREME_EMU_NCCL_ERROR=rank:after
    RankFault nccl_stall;                       // TRIREME_EMU_NCCL_STALL=rank:after
    std::string drop_barrier;                   // TRIREME_EMU_DROP_BARRIER=file:line, which then does nothing
    bool list_barriers = false;  // TRIREME_EMU_LIST_BARRIERS: those met, at the end of the program
};

Options& options();
std::mt19937_64& dice();

}  // namespace trireme::cudaemu
