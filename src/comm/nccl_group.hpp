// What NCCL does for a group of ranks with a GPU each. The one that uses NCCL stands in the CUDA backend
// (comm/nccl), which has neither MPI nor the rank's recorder; NcclCommunicator puts both around it.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "trireme/base/range.hpp"
#include "trireme/comm/communicator.hpp"
#include "trireme/tensor/device.hpp"

namespace trireme {

/// Everything goes to one communication stream, after what the device's stream had been given; what that is
/// given next comes after it. Calls return before the work is done. Verbs as in Communicator.
/// @throws Error (failed) that names what NCCL says; also for what failed since the last call.
class NcclGroup {
public:
    virtual ~NcclGroup() = default;
    /// True for memory that NCCL may use: of the group's device.
    virtual bool reaches(const void* data) const = 0;
    virtual void all_reduce(View buffer, Reduce op) = 0;
    virtual void broadcast(View buffer, int root) = 0;
    virtual void all_gather(View mine, View all) = 0;
    virtual void all_gather(View buffer, std::span<const Range> parts) = 0;
    virtual void all_to_all(View send, std::span<const Range> send_parts, View recv,
                            std::span<const Range> recv_parts) = 0;
    virtual void reduce_scatter(View all, std::span<const Range> parts, View mine, Reduce op) = 0;
    /// Waits until all of it is done, or has failed.
    virtual void finish() = 0;
};

/// What the ranks of a new group need in common: made by one, told to all.
using NcclId = std::array<std::byte, 128>;
NcclId make_nccl_id();
/// Collective among the `size` ranks. The device must outlive it.
std::unique_ptr<NcclGroup> make_nccl_group(Device& device, const NcclId& id, int rank, int size);

}  // namespace trireme
