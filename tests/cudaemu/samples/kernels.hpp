// Kernels like those of a backend, behind plain declarations.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstddef>

namespace trireme::sample {

/// sums[r] = sum of row r.
template <class T>
void row_sum(const T* x, float* sums, int rows, int cols, cudaStream_t stream);

/// y = (x - mean) / sqrt(variance + epsilon) by rows.
template <class T>
void normalize(const T* x, T* y, float* mean, int rows, int cols, float epsilon, cudaStream_t stream);

/// y = softmax(x) by rows.
template <class T>
void softmax(const T* x, T* y, int rows, int cols, cudaStream_t stream);

/// y = x transposed, by tiles in shared memory.
template <class T>
void transpose(const T* x, T* y, int rows, int cols, cudaStream_t stream);

/// y = D(x)
template <class D, class S>
void cast(const S* x, D* y, std::size_t n, cudaStream_t stream);

/// x += by
void add(float* x, float by, std::size_t n, cudaStream_t stream);

/// counts[x[i]] += 1, gathered in dynamic shared memory first.
void histogram(const int* x, int* counts, std::size_t n, int bins, cudaStream_t stream);

}  // namespace trireme::sample
