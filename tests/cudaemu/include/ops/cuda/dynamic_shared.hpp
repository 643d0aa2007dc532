// Stands before the backend's header of this name in an emulated build, where shared memory whose size the
// launch sets cannot be declared `extern __shared__`.
#pragma once

#include "cudaemu/device.hpp"

namespace trireme::cuda {

/// The launch's dynamic shared memory, all of it, as elements of T.
template <class T>
__device__ inline T* dynamic_shared() {
    static_assert(alignof(T) <= 16);
    return static_cast<T*>(cudaemu::dynamic_shared());
}

}  // namespace trireme::cuda
