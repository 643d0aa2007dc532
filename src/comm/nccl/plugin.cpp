// What libtrireme_cuda.so shows of NCCL: the rest of it is hidden.
#include "comm/nccl_group.hpp"

#define TRIREME_ENTRY extern "C" __attribute__((visibility("default")))

TRIREME_ENTRY void trireme_nccl_id(trireme::NcclId& id) {
    id = trireme::make_nccl_id();
}

TRIREME_ENTRY trireme::NcclGroup* trireme_nccl_group(trireme::Device& device, const trireme::NcclId& id,
                                                     int rank, int size) {
    return trireme::make_nccl_group(device, id, rank, size).release();
}
