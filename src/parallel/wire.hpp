// How a bucket of gradients is summed over the ranks: in float32 by an all-reduce, or with half the bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trireme/comm/communicator.hpp"
#include "trireme/ops/ops.hpp"
#include "trireme/param/arena.hpp"

namespace trireme {

class Wire {
public:
    virtual ~Wire() = default;
    /// Replaces a range of the column by its sum over the ranks. Collective.
    virtual void reduce(Communicator& comm, const Column& gradients, Range bucket) = 0;
    /// Collectives that one bucket takes.
    virtual int collectives() const = 0;
};

std::unique_ptr<Wire> make_float_wire();

/// Gradients travel as bfloat16, statistics (BatchNorm's) as float32: each rank rounds what it has, the owner
/// of a slice adds the ranks' parts in float32 and rank order, and the rounded sum is gathered. bfloat16 has
/// the range of float32: nothing overflows; each gradient is rounded twice, to 8 bits.
std::unique_ptr<Wire> make_bf16_wire(Device& device, const ParameterTable& table, int ranks,
                                     std::int64_t largest_bucket);

}  // namespace trireme
