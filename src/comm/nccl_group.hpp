// What NCCL does for a group of ranks with a GPU each. The one that uses NCCL stands in the CUDA backend
// (comm/nccl), which has neither MPI nor the rank's recorder; DeviceCommunicator puts both around it.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "trireme/base/range.hpp"
#include "trireme/comm/communicator.hpp"
#include "trireme/tensor/device.hpp"

namespace trireme {

/// Everything goes to the stream that the calling thread uses of the device, in the order of the calls, which
/// return before it is done. While the host waits for the device, what fails meanwhile is noticed. Verbs as
/// in Communicator.
/// @throws Error (failed) that names what NCCL says; also for what failed since the last call.
class NcclGroup {
public:
    virtual ~NcclGroup() = default;
    virtual void all_reduce(View buffer, Reduce op) = 0;
    virtual void broadcast(View buffer, int root) = 0;
    virtual void all_gather(View mine, View all) = 0;
    virtual void all_gather(View buffer, std::span<const Range> parts) = 0;
    virtual void all_to_all(View send, std::span<const Range> send_parts, View recv,
                            std::span<const Range> recv_parts) = 0;
    virtual void reduce_scatter(View all, std::span<const Range> parts, View mine, Reduce op) = 0;
    virtual void send(View buffer, int to) = 0;
    virtual void receive(View buffer, int from) = 0;
    /// Waits until the device is done with all it was given, or some of it has failed.
    virtual void finish() = 0;
};

/// What the ranks of a new group need in common: made by one, told to all.
using NcclId = std::array<std::byte, 128>;
NcclId make_nccl_id();
/// False where the CUDA backend was built without it.
bool has_nccl();
/// Collective among the `size` ranks. The device must outlive it.
std::unique_ptr<NcclGroup> make_nccl_group(Device& device, const NcclId& id, int rank, int size);

}  // namespace trireme
