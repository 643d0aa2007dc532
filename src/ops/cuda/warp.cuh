// Reductions over a warp and over a block, in an order that is always the same.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "ops/cuda/launch.hpp"

namespace trireme::cuda {
namespace {

constexpr unsigned all_lanes = 0xffffffffu;

__device__ inline int lane_of() {
    return static_cast<int>(threadIdx.x % 32);
}
__device__ inline int warp_of() {
    return static_cast<int>(threadIdx.x / 32);
}

template <class T>
__device__ inline T warp_sum(T value) {
    for (int by = 16; by > 0; by /= 2) value += __shfl_xor_sync(all_lanes, value, by);
    return value;
}
__device__ inline float warp_max(float value) {
    for (int by = 16; by > 0; by /= 2) value = fmaxf(value, __shfl_xor_sync(all_lanes, value, by));
    return value;
}
__device__ inline int warp_min(int value) {
    for (int by = 16; by > 0; by /= 2) value = min(value, __shfl_xor_sync(all_lanes, value, by));
    return value;
}

/// The sum over a block's threads, for thread 0.
__device__ inline double block_sum(double value) {
    __shared__ double part[warps];
    value = warp_sum(value);
    __syncthreads();  // the last use of part is over
    if (lane_of() == 0) part[warp_of()] = value;
    __syncthreads();
    double total = 0;
    for (int w = 0; w < warps; ++w) total += part[w];
    return total;
}

}  // namespace
}  // namespace trireme::cuda
