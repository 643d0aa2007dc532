// How a bucket of gradients is summed over the ranks: in float32, or with half the bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trireme/comm/communicator.hpp"
#include "trireme/ops/ops.hpp"
#include "trireme/parallel/sharding.hpp"

namespace trireme {

class Wire {
public:
    virtual ~Wire() = default;
    /// Replaces a bucket by its sum over the ranks. Collective.
    virtual void reduce(Communicator& comm, View bucket) = 0;
    /// mine (+)= the sum over the ranks of this rank's part of a bucket; `parts`: those of all ranks, which
    /// follow each other from element 0 of the bucket on. What is left in the bucket is undefined, but for
    /// `mine` where it lies there. Collective.
    virtual void scatter(Communicator& comm, View bucket, std::span<const Range> parts, View mine,
                         bool add) = 0;
    /// Collectives that one bucket takes.
    virtual int reduce_collectives() const = 0;
    virtual int scatter_collectives() const { return 1; }
    /// Of its own memory.
    virtual std::size_t bytes() const = 0;
};

/// float32: as they are. bfloat16: each rank rounds what it has, the owner of a part adds the ranks' parts in
/// float32 and rank order; where everybody wants the sum, it is rounded again and gathered. bfloat16 has the
/// range of float32: nothing overflows; each gradient is rounded once or twice, to 8 bits.
std::unique_ptr<Wire> make_wire(DType type, Device& device, const Sharding& sharding);
/// What a wire allocates.
std::int64_t wire_bytes(DType type, const Sharding& sharding);

}  // namespace trireme
