// Sums that go to a few doubles of the caller, in device or in host memory: blocks leave their parts, which
// are added in a fixed order.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>

#include "ops/cuda/scratch.hpp"
#include "tensor/cuda/device.hpp"

namespace trireme::cuda {

/// Where up to three sums are added to; null: not wanted.
using Targets = std::array<double*, 3>;

class Scalars {
public:
    explicit Scalars(CudaDevice& device);
    ~Scalars();
    Scalars(const Scalars&) = delete;
    Scalars& operator=(const Scalars&) = delete;

    /// Device memory for `terms` doubles of each of `blocks` blocks: [blocks, terms].
    double* parts(std::int64_t blocks, int terms) { return parts_.reserve_of<double>(blocks * terms); }
    /// *targets[t] += Σ_b parts[b, t]. Host memory has the sums when this returns; device memory in the
    /// stream's order.
    void add(const double* parts, std::int64_t blocks, int terms, const Targets& targets);
    /// Then verbs wait for the device anyway.
    bool in_host_memory(const Targets& targets) const;

    /// One int64 of device memory, set to `value` in the stream's order, and what it holds once all before is
    /// done: for faults that a kernel finds.
    std::int64_t* flag(std::int64_t value);
    std::int64_t wait_for_flag();

private:
    CudaDevice& device_;
    Scratch parts_;
    Buffer sums_;             // three doubles, then the flag
    double* host_ = nullptr;  // pinned, four of them
};

}  // namespace trireme::cuda
