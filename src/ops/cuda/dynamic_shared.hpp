// Shared memory whose size the launch sets.
#pragma once

namespace trireme::cuda {

/// The launch's dynamic shared memory, all of it, as elements of T.
template <class T>
__device__ inline T* dynamic_shared() {
    static_assert(alignof(T) <= 16);
    extern __shared__ __align__(16) unsigned char trireme_dynamic_shared[];
    return reinterpret_cast<T*>(trireme_dynamic_shared);
}

}  // namespace trireme::cuda
