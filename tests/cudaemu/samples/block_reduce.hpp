// Reductions over a warp and over a block.
#pragma once

#include <cuda_runtime.h>

namespace trireme::sample {

struct Sum {
    static constexpr float identity = 0.0f;
    __device__ float operator()(float a, float b) const { return a + b; }
};

struct Max {
    static constexpr float identity = -3.402823466e+38f;
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

template <class Op>
__device__ inline float warp_reduce(float v, Op op) {
    for (int lane = warpSize / 2; lane > 0; lane /= 2) v = op(v, __shfl_xor_sync(0xffffffffu, v, lane));
    return v;
}

// Every thread of the block gets the result.
template <int threads, class Op>
__device__ inline float block_reduce(float v, Op op) {
    constexpr int warps = threads / 32;
    __shared__ float part[warps];
    v = warp_reduce(v, op);
    __syncthreads();  // the last use of part is over
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = Op::identity;
    for (int w = 0; w < warps; ++w) v = op(v, part[w]);
    return v;
}

}  // namespace trireme::sample
