// What every entry of the runtime does first, and how it ends.
#pragma once

#include <cuda_runtime_api.h>

#include "device.hpp"
#include "lock.hpp"
#include "sanitizer.hpp"

namespace trireme::cudaemu {

// Remembers an error for cudaGetLastError.
cudaError_t note(cudaError_t);

// What keeps the calling thread from using the runtime at all: no device, a lost one, or a host function that
// a stream is running.
cudaError_t obstacle();
bool& in_host_function();  // of the calling thread

template <class F>
cudaError_t api(F f) {
    const Lock lock;
    const san::Aside aside;
    if (const cudaError_t e = obstacle(); e != cudaSuccess) return note(e);
    return note(f());
}

}  // namespace trireme::cudaemu
