// What libtrireme_cuda.so shows: the rest of it is hidden.
#include "ops/backends.hpp"
#include "tensor/backends.hpp"

#define TRIREME_ENTRY extern "C" __attribute__((visibility("default")))

/// Compared before anything else is called: classes with virtual functions cross this border.
TRIREME_ENTRY const char* const trireme_cuda_interface = TRIREME_INTERFACE;

TRIREME_ENTRY trireme::Device* trireme_cuda_device(int number) {
    return trireme::make_cuda_device(number).release();
}

TRIREME_ENTRY trireme::Ops* trireme_cuda_ops(trireme::Device& device) {
    return trireme::make_cuda_ops(device, 1).release();
}
