#include "bugs.hpp"

#include "launch.hpp"
#include "ops/cuda/dynamic_shared.hpp"

namespace trireme::sample {
namespace {

__global__ void past_the_end_kernel(float* y, int n) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i <= n) y[i] = 1;
}

__global__ void past_shared_kernel(float* y) {
    __shared__ float part[8];
    float* p = part;
    p[threadIdx.x] = 1;
    __syncthreads();
    y[0] = p[1];
}

__global__ void past_dynamic_kernel(float* y) {
    float* p = trireme::cuda::dynamic_shared<float>();
    p[threadIdx.x] = 1;
    __syncthreads();
    y[0] = p[1];
}

// The tree needs a barrier in each turn.
__global__ void missing_barrier_kernel(const float* x, float* sum, int n) {
    __shared__ float part[64];
    part[threadIdx.x] = static_cast<int>(threadIdx.x) < n ? x[threadIdx.x] : 0;
    __syncthreads();
    for (unsigned half = 32; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0) *sum = part[0];
}

// The shared value is written anew while slower threads still read the last turn's.
__global__ void missing_barrier_reuse_kernel(const float* x, float* sums, int n) {
    __shared__ float shared;
    for (int turn = 0; turn < 4; ++turn) {
        if (threadIdx.x == 0) shared = x[turn];
        __syncthreads();
        if (static_cast<int>(threadIdx.x) < n) sums[turn * n + static_cast<int>(threadIdx.x)] = shared;
    }
}

__global__ void divergent_barrier_kernel(float* y) {
    if (threadIdx.x < 17) __syncthreads();
    y[threadIdx.x] = 1;
}

__global__ void lost_lane_kernel(float* y) {
    if (threadIdx.x < 16) y[threadIdx.x] = __shfl_down_sync(0x0000ffffu, 1.0f * threadIdx.x, 8);
}

__global__ void racing_blocks_kernel(float* y) {
    if (threadIdx.x == 0) y[0] += 1;
}

__global__ void overflow_int_kernel(int* y) {
    y[threadIdx.x] = static_cast<int>(blockDim.x) * 0x10000000;
}

__global__ void misaligned_kernel(float* y) {
    reinterpret_cast<float4*>(y + 1)[threadIdx.x] = make_float4(0, 0, 0, 0);
}

}  // namespace

void past_the_end(float* y, int n, cudaStream_t stream) {
    launch(stream, {(static_cast<unsigned>(n) + 64) / 64, 64}, past_the_end_kernel, y, n);
}
void past_shared(float* y, cudaStream_t stream) {
    launch(stream, {1, 16}, past_shared_kernel, y);
}
void past_dynamic(float* y, cudaStream_t stream) {
    launch(stream, {1, 16, 15 * sizeof(float)}, past_dynamic_kernel, y);
}
void missing_barrier(const float* x, float* sum, int n, cudaStream_t stream) {
    launch(stream, {1, 64}, missing_barrier_kernel, x, sum, n);
}
void missing_barrier_reuse(const float* x, float* sums, int n, cudaStream_t stream) {
    launch(stream, {1, 64}, missing_barrier_reuse_kernel, x, sums, n);
}
void divergent_barrier(float* y, cudaStream_t stream) {
    launch(stream, {1, 64}, divergent_barrier_kernel, y);
}
void lost_lane(float* y, cudaStream_t stream) {
    launch(stream, {1, 32}, lost_lane_kernel, y);
}
void racing_blocks(float* y, cudaStream_t stream) {
    launch(stream, {4, 32}, racing_blocks_kernel, y);
}
void overflow_int(int* y, cudaStream_t stream) {
    launch(stream, {1, 32}, overflow_int_kernel, y);
}
void misaligned(float* y, cudaStream_t stream) {
    launch(stream, {1, 2}, misaligned_kernel, y);
}

}  // namespace trireme::sample
