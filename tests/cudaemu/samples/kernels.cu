#include "kernels.hpp"

#include <algorithm>

#include "block_reduce.hpp"
#include "launch.hpp"
#include "ops/cuda/dynamic_shared.hpp"

namespace trireme::sample {
namespace {

constexpr int threads = 64;  // few, since the race detector gives each an identity

Grid covering(std::size_t n) {
    return {static_cast<unsigned>(std::min<std::size_t>((n + threads - 1) / threads, 64)), threads};
}

__device__ inline std::size_t first() {
    return static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::size_t stride() {
    return static_cast<std::size_t>(gridDim.x) * blockDim.x;
}

template <class T>
__device__ inline float load(const T* p) {
    return static_cast<float>(*p);
}

template <class T>
__global__ void __launch_bounds__(threads)
    row_sum_kernel(const T* __restrict__ x, float* __restrict__ sums, int cols) {
    const T* row = x + static_cast<std::size_t>(blockIdx.x) * cols;
    float s = 0;
    for (int c = threadIdx.x; c < cols; c += threads) s += load(row + c);
    s = block_reduce<threads>(s, Sum{});
    if (threadIdx.x == 0) sums[blockIdx.x] = s;
}

template <class T>
__global__ void __launch_bounds__(threads)
    normalize_kernel(const T* __restrict__ x, T* __restrict__ y, float* __restrict__ mean, int cols,
                     float epsilon) {
    const std::size_t base = static_cast<std::size_t>(blockIdx.x) * cols;
    float s = 0;
    for (int c = threadIdx.x; c < cols; c += threads) s += load(x + base + c);
    const float mu = block_reduce<threads>(s, Sum{}) / cols;
    float q = 0;
    for (int c = threadIdx.x; c < cols; c += threads) {
        const float d = load(x + base + c) - mu;
        q += d * d;
    }
    const float r = rsqrtf(block_reduce<threads>(q, Sum{}) / cols + epsilon);
    for (int c = threadIdx.x; c < cols; c += threads) y[base + c] = T((load(x + base + c) - mu) * r);
    if (threadIdx.x == 0) mean[blockIdx.x] = mu;
}

template <class T>
__global__ void __launch_bounds__(threads)
    softmax_kernel(const T* __restrict__ x, T* __restrict__ y, int cols) {
    const std::size_t base = static_cast<std::size_t>(blockIdx.x) * cols;
    float m = Max::identity;
    for (int c = threadIdx.x; c < cols; c += threads) m = fmaxf(m, load(x + base + c));
    m = block_reduce<threads>(m, Max{});
    float s = 0;
    for (int c = threadIdx.x; c < cols; c += threads) s += __expf(load(x + base + c) - m);
    s = block_reduce<threads>(s, Sum{});
    for (int c = threadIdx.x; c < cols; c += threads) y[base + c] = T(__expf(load(x + base + c) - m) / s);
}

constexpr int tile = 16;

template <class T>
__global__ void __launch_bounds__(tile * 4)
    transpose_kernel(const T* __restrict__ x, T* __restrict__ y, int rows, int cols) {
    __shared__ T cell[tile][tile + 1];
    const int tiles = (cols + tile - 1) / tile;
    const int r0 = static_cast<int>(blockIdx.x) / tiles * tile,
              c0 = static_cast<int>(blockIdx.x) % tiles * tile;
    const int lane = threadIdx.x % tile, group = threadIdx.x / tile;
    for (int r = group; r < tile; r += 4) {
        if (r0 + r < rows && c0 + lane < cols)
            cell[r][lane] = x[static_cast<std::size_t>(r0 + r) * cols + c0 + lane];
    }
    __syncthreads();
    for (int c = group; c < tile; c += 4) {
        if (c0 + c < cols && r0 + lane < rows)
            y[static_cast<std::size_t>(c0 + c) * rows + r0 + lane] = cell[lane][c];
    }
}

template <class D, class S>
__global__ void __launch_bounds__(threads)
    cast_kernel(const S* __restrict__ x, D* __restrict__ y, std::size_t n) {
    for (std::size_t i = first(); i < n; i += stride()) y[i] = D(load(x + i));
}

__global__ void __launch_bounds__(threads) add_kernel(float* x, float by, std::size_t n) {
    for (std::size_t i = first(); i < n; i += stride()) x[i] += by;
}

__global__ void __launch_bounds__(threads)
    histogram_kernel(const int* x, int* counts, std::size_t n, int bins) {
    int* mine = trireme::cuda::dynamic_shared<int>();
    for (int b = threadIdx.x; b < bins; b += threads) mine[b] = 0;
    __syncthreads();
    for (std::size_t i = first(); i < n; i += stride()) atomicAdd(mine + __ldg(x + i), 1);
    __syncthreads();
    for (int b = threadIdx.x; b < bins; b += threads) atomicAdd(counts + b, mine[b]);
}

}  // namespace

template <class T>
void row_sum(const T* x, float* sums, int rows, int cols, cudaStream_t stream) {
    launch(stream, {static_cast<unsigned>(rows), threads}, row_sum_kernel<T>, x, sums, cols);
}

template <class T>
void normalize(const T* x, T* y, float* mean, int rows, int cols, float epsilon, cudaStream_t stream) {
    launch(stream, {static_cast<unsigned>(rows), threads}, normalize_kernel<T>, x, y, mean, cols, epsilon);
}

template <class T>
void softmax(const T* x, T* y, int rows, int cols, cudaStream_t stream) {
    launch(stream, {static_cast<unsigned>(rows), threads}, softmax_kernel<T>, x, y, cols);
}

template <class T>
void transpose(const T* x, T* y, int rows, int cols, cudaStream_t stream) {
    const auto tiles = static_cast<unsigned>((rows + tile - 1) / tile * ((cols + tile - 1) / tile));
    launch(stream, {tiles, tile * 4}, transpose_kernel<T>, x, y, rows, cols);
}

template <class D, class S>
void cast(const S* x, D* y, std::size_t n, cudaStream_t stream) {
    launch(stream, covering(n), cast_kernel<D, S>, x, y, n);
}

void add(float* x, float by, std::size_t n, cudaStream_t stream) {
    launch(stream, covering(n), add_kernel, x, by, n);
}

void histogram(const int* x, int* counts, std::size_t n, int bins, cudaStream_t stream) {
    const Grid grid{covering(n).blocks, threads, static_cast<std::size_t>(bins) * sizeof(int)};
    launch(stream, grid, histogram_kernel, x, counts, n, bins);
}

#define TRIREME_SAMPLE_KERNELS(T)                                                 \
    template void row_sum(const T*, float*, int, int, cudaStream_t);              \
    template void normalize(const T*, T*, float*, int, int, float, cudaStream_t); \
    template void softmax(const T*, T*, int, int, cudaStream_t);                  \
    template void transpose(const T*, T*, int, int, cudaStream_t);                \
    template void cast(const float*, T*, std::size_t, cudaStream_t);

TRIREME_SAMPLE_KERNELS(float)
TRIREME_SAMPLE_KERNELS(__nv_bfloat16)
TRIREME_SAMPLE_KERNELS(__half)
template void cast(const __nv_bfloat16*, float*, std::size_t, cudaStream_t);
template void cast(const __half*, float*, std::size_t, cudaStream_t);

}  // namespace trireme::sample
