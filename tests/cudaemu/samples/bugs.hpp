// Kernels with one fault each.
#pragma once

#include <cuda_runtime_api.h>

namespace trireme::sample {

void past_the_end(float* y, int n, cudaStream_t stream);
void past_shared(float* y, cudaStream_t stream);
void past_dynamic(float* y, cudaStream_t stream);
void missing_barrier(const float* x, float* sum, int n, cudaStream_t stream);
void missing_barrier_reuse(const float* x, float* sums, int n, cudaStream_t stream);
void divergent_barrier(float* y, cudaStream_t stream);
void lost_lane(float* y, cudaStream_t stream);
void racing_blocks(float* y, cudaStream_t stream);
void overflow_int(int* y, cudaStream_t stream);
void misaligned(float* y, cudaStream_t stream);

}  // namespace trireme::sample
