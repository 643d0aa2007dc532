// Stands before the toolkit's header of this name in an emulated build: the host compiler reads kernels as
// C++.
#pragma once
#pragma GCC system_header  // #include_next is an extension

#ifdef __CUDACC__
#error "The emulation is for the host compiler: take its folder off nvcc's include path"
#endif

// The toolkit's own launch forgets the types of the arguments.
#define cudaLaunchKernelEx trireme_cudaemu_untyped_launch
#include_next <cuda_runtime.h>
#undef cudaLaunchKernelEx

// The threads of a block run in one thread of the host, so that a static variable is what they share.
#undef __shared__
#define __shared__ static
#undef __launch_bounds__
#define __launch_bounds__(...)

#include "cudaemu/atomics.hpp"
#include "cudaemu/device.hpp"
#include "cudaemu/intrinsics.hpp"
#include "cudaemu/launch.hpp"
