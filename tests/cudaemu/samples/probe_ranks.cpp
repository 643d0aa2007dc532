// Probes of NCCL and of injected faults: in one process with two devices, or on several ranks of MPI.
#include <mpi.h>
#include <nccl.h>

#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <thread>

#include "buffers.hpp"
#include "kernels.hpp"
#include "probe.hpp"

using namespace trireme::sample;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t n = 1000;

using trireme::sample::check;

void check(ncclResult_t result) {
    if (result == ncclSuccess) return;
    throw std::runtime_error(std::string("NCCL: ") + ncclGetErrorString(result) + ": " +
                             ncclGetLastError(nullptr));
}

// Two ranks in this process, each with a device, a stream that computes and one that communicates.
void sum_on_two_devices(bool event_before, bool event_after) {
    ncclComm_t comms[2];
    check(ncclCommInitAll(comms, 2, nullptr));
    struct Rank {
        Stream compute, traffic;
        Buffer<float> x{std::vector<float>(n, 1)}, y{n};
    };
    check(cudaSetDevice(0));
    Rank first;
    check(cudaSetDevice(1));
    Rank second;
    Rank* ranks[] = {&first, &second};
    for (int r = 0; r < 2; ++r) {
        check(cudaSetDevice(r));
        add(ranks[r]->x, 1, n, ranks[r]->compute);
        if (event_before) order(ranks[r]->compute, ranks[r]->traffic);
    }
    check(ncclGroupStart());
    for (int r = 0; r < 2; ++r) {
        check(ncclAllReduce(ranks[r]->x, ranks[r]->x, n, ncclFloat32, ncclSum, comms[r], ranks[r]->traffic));
    }
    check(ncclGroupEnd());
    for (int r = 0; r < 2; ++r) {
        check(cudaSetDevice(r));
        if (event_after) order(ranks[r]->traffic, ranks[r]->compute);
        cast<float>(ranks[r]->x.data(), ranks[r]->y.data(), n, ranks[r]->compute);
    }
    for (int r = 0; r < 2; ++r) {
        check(cudaSetDevice(r));
        ranks[r]->compute.wait();
        ranks[r]->traffic.wait();
        if (event_before && event_after) expect("the sum", ranks[r]->y.get()[7], 4);
        check(ncclCommDestroy(comms[r]));
    }
    check(cudaSetDevice(0));
}

class Job {
public:
    Job() {
        MPI_Init(nullptr, nullptr);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_size(MPI_COMM_WORLD, &size);
        check(cudaSetDevice(rank));
        ncclUniqueId id{};
        if (rank == 0) check(ncclGetUniqueId(&id));
        MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
        check(ncclCommInitRank(&comm, size, id, rank));
    }
    ~Job() { MPI_Finalize(); }

    int rank = 0, size = 0;
    ncclComm_t comm = nullptr;
};

}  // namespace

TRIREME_PROBE(nccl_without_event_before) {
    sum_on_two_devices(false, true);
}
TRIREME_PROBE(nccl_without_event_after) {
    sum_on_two_devices(true, false);
}
TRIREME_PROBE(nccl_with_events) {
    sum_on_two_devices(true, true);
}

TRIREME_PROBE(count_devices) {
    int count = -1;
    const cudaError_t e = cudaGetDeviceCount(&count);
    std::printf("%s %d", cudaGetErrorName(e), count);
    for (int i = 0; e == cudaSuccess && i < count; ++i) {
        char id[16];
        check(cudaDeviceGetPCIBusId(id, sizeof id, i));
        std::printf(" %s", id);
    }
    std::puts("");
}

TRIREME_PROBE(allocate) {
    std::vector<float*> all(4);
    for (float*& p : all) check(cudaMalloc(reinterpret_cast<void**>(&p), 1 << 20));
}
TRIREME_PROBE(allocate_host) {
    const Pinned<float> first(n), second(n);
}
TRIREME_PROBE(launch_twice) {
    const Stream s;
    const Buffer<float> x(std::vector<float>(n, 0));
    add(x, 1, n, s);
    add(x, 1, n, s);
    s.wait();
    check(cudaGetLastError());
}

TRIREME_PROBE(ranks_disagree) {
    const Job job;
    const Stream s;
    const Buffer<float> x(std::vector<float>(n, 1));
    check(ncclAllReduce(x, x, n - static_cast<std::size_t>(job.rank), ncclFloat32, ncclSum, job.comm, s));
    s.wait();
}

// What a product's watchdog does: sees that nothing moves, or that NCCL tells an error, and aborts.
TRIREME_PROBE(watchdog) {
    const Job job;
    const Stream s;
    const Buffer<float> x(std::vector<float>(n, 1));
    std::thread dog([&] {
        for (int i = 0; i < 100; ++i) {
            ncclResult_t error = ncclSuccess;
            ncclCommGetAsyncError(job.comm, &error);
            if (error != ncclSuccess) {
                std::fprintf(stderr, "rank %d: asynchronous error: %s\n", job.rank,
                             ncclGetErrorString(error));
                break;
            }
            std::this_thread::sleep_for(10ms);
        }
        ncclCommAbort(job.comm);
    });
    for (int i = 0; i < 3; ++i) check(ncclAllReduce(x, x, n, ncclFloat32, ncclSum, job.comm, s));
    s.wait();
    dog.join();
    std::fprintf(stderr, "rank %d: aborted\n", job.rank);
}

// Legal: the device of rank 0 works on while its host waits in MPI.
TRIREME_PROBE(wait_in_mpi) {
    Job job;
    {
        const Stream s;
        const Buffer<float> x(std::vector<float>(n, 1));
        check(ncclAllReduce(x, x, n, ncclFloat32, ncclSum, job.comm, s));
        if (job.rank == 0) MPI_Barrier(MPI_COMM_WORLD);
        s.wait();
        if (job.rank != 0) MPI_Barrier(MPI_COMM_WORLD);
        expect("the sum", x.get()[3], job.size);
    }
    check(ncclCommDestroy(job.comm));
}

TRIREME_PROBE(wait_for_nothing_to_move) {
    const Stream s, t;
    const Buffer<float> x(std::vector<float>(n, 1));
    ncclComm_t comm = nullptr;
    check(ncclCommInitAll(&comm, 1, nullptr));
    check(ncclAllReduce(x, x, n, ncclFloat32, ncclSum, comm, s));
    order(s, t);
    std::thread dog([&] {
        std::this_thread::sleep_for(600ms);
        ncclCommAbort(comm);
    });
    t.wait();
    dog.join();
}
