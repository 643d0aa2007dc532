#include "language.hpp"

#include "launch.hpp"
#include "ops/cuda/dynamic_shared.hpp"

namespace trireme::sample {
namespace {

__global__ void indices_kernel(int* out) {
    const unsigned t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    out[blockIdx.y * 64 + t] =
        static_cast<int>(threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z + 1000 * blockIdx.y);
}

__global__ void shuffles_kernel(int* out) {
    const unsigned all = 0xffffffffu;
    const int lane = static_cast<int>(threadIdx.x);
    out[lane] = __shfl_sync(all, lane * 2, 3);
    int sum = lane;
    for (int bits = 16; bits > 0; bits /= 2) sum += __shfl_xor_sync(all, sum, bits);
    out[32 + lane] = sum;
    out[64 + lane] = __shfl_down_sync(all, lane, 8);
    int prefix = lane;
    for (unsigned by = 1; by < 32; by *= 2) {
        const int before = __shfl_up_sync(all, prefix, by);
        if (lane >= static_cast<int>(by)) prefix += before;
    }
    out[96 + lane] = prefix;
    out[128 + lane] = static_cast<int>(__ballot_sync(all, lane % 2));
    int group = lane;
    for (int bits = 4; bits > 0; bits /= 2) group += __shfl_xor_sync(all, group, bits, 8);
    __syncwarp();
    out[160 + lane] = group;
}

__global__ void atomics_kernel(float* f, double* d, int* i) {
    const int t = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    atomicAdd(f, 1.0f);
    atomicAdd(d, 1.0);
    atomicAdd(i, 1);
    atomicMax(i + 1, t);
    atomicMin(i + 2, t);
}

template <class V, class T>
__global__ void __launch_bounds__(64)
    copy_vectors_kernel(const T* __restrict__ x, T* __restrict__ y, std::size_t n) {
    const std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i * 4 < n) reinterpret_cast<V*>(y)[i] = __ldg(reinterpret_cast<const V*>(x) + i);
}

__global__ void axpy_bf16_kernel(const __nv_bfloat16* x, __nv_bfloat16* y, std::size_t n, float a) {
    const std::size_t i = threadIdx.x;
    if (i * 2 >= n) return;
    const float2 u = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162*>(x)[i]);
    float2 v = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162*>(y)[i]);
    v.x += a * u.x;
    v.y += a * u.y;
    reinterpret_cast<__nv_bfloat162*>(y)[i] = __float22bfloat162_rn(v);
}

__global__ void axpy_half_kernel(const __half* x, __half* y, std::size_t n, float a) {
    const std::size_t i = threadIdx.x;
    if (i < n) y[i] = __float2half_rn(a * __half2float(x[i]) + __half2float(y[i]));
}

__global__ void mathematics_kernel(float x, float* out) {
    out[0] = rsqrtf(x);
    out[1] = __expf(x);
    out[2] = fmaf(x, 2.0f, 1.0f);
    out[3] = erff(x);
    out[4] = tanhf(x);
    out[5] = min(x, 1.0f);
    out[6] = max(x, 1.0f);
    out[7] = static_cast<float>(__popc(0xf0f0u));
    out[8] = static_cast<float>(__umulhi(1u << 31, 6u));
    out[9] = isfinite(x * 3e38f * 10.0f) ? 1.0f : 0.0f;
}

__global__ void votes_kernel(int* out) {
    const int t = static_cast<int>(threadIdx.x);
    const int odd = __syncthreads_count(t % 2);
    const int five = __syncthreads_or(t == 5);
    const int below = __syncthreads_and(t < 64);
    if (t != 0) return;
    out[0] = odd;
    out[1] = five;
    out[2] = below;
}

__global__ void reverse_kernel(float* x, int n) {
    float* shared = trireme::cuda::dynamic_shared<float>();
    const int stride = static_cast<int>(blockDim.x);
    for (int i = static_cast<int>(threadIdx.x); i < n; i += stride) shared[i] = x[i];
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < n; i += stride) x[i] = shared[n - 1 - i];
}

__global__ void sum_kernel(float* x, float a, float b) {
    if (threadIdx.x == 0) x[0] = a + b;
}

}  // namespace

void indices(int* out, cudaStream_t stream) {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(1, 2);
    config.blockDim = dim3(4, 4, 4);
    config.stream = stream;
    check(cudaLaunchKernelEx(&config, indices_kernel, out));
}
void shuffles(int* out, cudaStream_t stream) {
    launch(stream, {1, 32}, shuffles_kernel, out);
}
void atomics(float* f, double* d, int* i, cudaStream_t stream) {
    launch(stream, {3, 96}, atomics_kernel, f, d, i);
}
void copy_vectors(const float* x, float* y, std::size_t n, cudaStream_t stream) {
    launch(stream, {static_cast<unsigned>(n / 256 + 1), 64}, copy_vectors_kernel<float4, float>, x, y, n);
}
void copy_vectors(const int* x, int* y, std::size_t n, cudaStream_t stream) {
    launch(stream, {static_cast<unsigned>(n / 256 + 1), 64}, copy_vectors_kernel<int4, int>, x, y, n);
}
void axpy(const __nv_bfloat16* x, __nv_bfloat16* y, std::size_t n, float a, cudaStream_t stream) {
    launch(stream, {1, 128}, axpy_bf16_kernel, x, y, n, a);
}
void axpy(const __half* x, __half* y, std::size_t n, float a, cudaStream_t stream) {
    launch(stream, {1, 128}, axpy_half_kernel, x, y, n, a);
}
void mathematics(float x, float* out, cudaStream_t stream) {
    launch(stream, {1, 1}, mathematics_kernel, x, out);
}
void votes(int* out, cudaStream_t stream) {
    launch(stream, {1, 64}, votes_kernel, out);
}
void reverse(float* x, int n, cudaStream_t stream) {
    launch(stream, {1, 128, static_cast<std::size_t>(n) * sizeof(float)}, reverse_kernel, x, n);
}
const void* reverse_kernel_address() {
    return reinterpret_cast<const void*>(reverse_kernel);
}
const void* known_kernel() {
#ifndef __CUDACC__
    cudaemu::know(sum_kernel);
#endif
    return reinterpret_cast<const void*>(sum_kernel);
}

}  // namespace trireme::sample
