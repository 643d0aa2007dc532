// The sums, maxima and minima of a collective that is done by threads in shared memory.
#pragma once

#include <cstdint>

#include "trireme/comm/communicator.hpp"

namespace trireme {

/// @throws Error for 16-bit reals, as over MPI: they are moved, never added.
void require_reducible(DType type);

/// into[i] = op(into[i], from[i]) for `count` elements. Sums of integers wrap around.
void combine(Reduce op, DType type, void* into, const void* from, std::int64_t count);

}  // namespace trireme
