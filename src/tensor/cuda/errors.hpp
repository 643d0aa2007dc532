// A failed call of CUDA as an error of ours: which call, and what CUDA says.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace trireme::cuda {

/// @throws Error when the status is not success; `call` names what was asked for.
void check(cudaError_t status, const char* call);
void check(cudaError_t status, const std::string& call);

}  // namespace trireme::cuda
