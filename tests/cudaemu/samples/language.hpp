// A kernel for each part of the language that the emulation offers, behind plain declarations.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstddef>

namespace trireme::sample {

/// out[t] for a block of 64: indices in blocks of 4 x 4 x 4 threads, as x + 10 y + 100 z + 1000 block.
void indices(int* out, cudaStream_t stream);  // [2, 64]

/// By lane: value of lane 3; sum over the warp by xor; value 8 lanes down; inclusive prefix sum; ballot of
/// the odd lanes; sum over groups of 8.
void shuffles(int* out, cudaStream_t stream);  // [6, 32]

/// Sums of 1 by 3 blocks of 96 threads: float, double, int; then the maximum and minimum of the thread
/// number.
void atomics(float* f, double* d, int* i, cudaStream_t stream);  // i: [3]

/// y = x, four at a time; n a multiple of 4.
void copy_vectors(const float* x, float* y, std::size_t n, cudaStream_t stream);
void copy_vectors(const int* x, int* y, std::size_t n, cudaStream_t stream);

/// y = a x + y in T, the pairs of bf16 by vector functions.
void axpy(const __nv_bfloat16* x, __nv_bfloat16* y, std::size_t n, float a, cudaStream_t stream);
void axpy(const __half* x, __half* y, std::size_t n, float a, cudaStream_t stream);

/// out: rsqrtf, __expf, fmaf, erff, tanhf, min, max, __popc, __umulhi, isfinite of x.
void mathematics(float x, float* out, cudaStream_t stream);  // [10]

/// Number of threads with odd numbers, whether any is 5, whether all are below 64: by barriers that count.
void votes(int* out, cudaStream_t stream);  // [3]

/// Reverses n floats in dynamic shared memory, by one block.
void reverse(float* x, int n, cudaStream_t stream);
const void* reverse_kernel_address();

/// A kernel that is launched through cudaLaunchKernelExC only: x[0] = a + b.
const void* known_kernel();

}  // namespace trireme::sample
