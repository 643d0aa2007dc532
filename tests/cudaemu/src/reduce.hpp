// Element types and reductions of NCCL.
#pragma once

#include <nccl.h>

#include <cstddef>

namespace trireme::cudaemu {

std::size_t width(ncclDataType_t);  // 0 for types that are not emulated
const char* name_of(ncclDataType_t);
const char* name_of(ncclRedOp_t);
bool known(ncclRedOp_t);

// into = into (op) from, rounded to the type after each step, as on a ring.
void reduce(void* into, const void* from, std::size_t count, ncclDataType_t, ncclRedOp_t);
void divide(void* values, std::size_t count, ncclDataType_t, int by);

}  // namespace trireme::cudaemu
