// How a kernel is started: typed, on a stream, with the error of the launch as an error of ours.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "tensor/cuda/errors.hpp"

namespace trireme::cuda {

/// Threads of a block where a kernel does not ask for another number.
constexpr int threads = 128;
constexpr int warps = threads / 32;

struct Grid {
    std::int64_t blocks = 1, rows = 1;
    std::size_t shared_bytes = 0;
};

constexpr std::int64_t divided_up(std::int64_t a, std::int64_t b) {
    return (a + b - 1) / b;
}

/// Blocks for `items` of which a block takes `each` at a time, and comes back for more: at most `most`.
constexpr Grid covering(std::int64_t items, std::int64_t each, std::int64_t most) {
    return {std::min(divided_up(items, each), most)};
}

template <class... P, class... A>
void launch(cudaStream_t stream, Grid grid, void (*kernel)(P...), A&&... args) {
    constexpr std::size_t without_asking = 48 << 10;
    if (grid.shared_bytes > without_asking)
        check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(grid.shared_bytes)),
              "shared memory of a kernel");
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.rows));
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = grid.shared_bytes;
    config.stream = stream;
    check(cudaLaunchKernelEx(&config, kernel, std::forward<A>(args)...), "launch of a kernel");
}

}  // namespace trireme::cuda
