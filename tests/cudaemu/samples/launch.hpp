// How a backend launches: typed, without the syntax that only nvcc reads.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

namespace trireme::sample {

inline void check(cudaError_t status) {
    if (status == cudaSuccess) return;
    throw std::runtime_error(std::string(cudaGetErrorName(status)) + ": " + cudaGetErrorString(status));
}

struct Grid {
    unsigned blocks, threads;
    std::size_t shared_bytes = 0;
};

template <class... P, class... A>
void launch(cudaStream_t stream, Grid grid, void (*kernel)(P...), A&&... args) {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(grid.blocks);
    config.blockDim = dim3(grid.threads);
    config.dynamicSmemBytes = grid.shared_bytes;
    config.stream = stream;
    check(cudaLaunchKernelEx(&config, kernel, std::forward<A>(args)...));
}

}  // namespace trireme::sample
