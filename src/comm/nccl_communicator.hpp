// Communicator for ranks with a GPU each: collectives on device memory through NCCL, everything else (values
// in host memory, messages between two ranks) through another communicator of the same ranks.
#pragma once

#include <memory>
#include <vector>

#include "comm/nccl_group.hpp"

namespace trireme {

/// Collectives on device memory are ordered with the device's stream and return before they are done. A
/// message from or to device memory is copied through the host.
class NcclCommunicator final : public Communicator {
public:
    /// Collective. The device must outlive it.
    NcclCommunicator(Device& device, std::unique_ptr<Communicator> host);

    int rank() const override { return host_->rank(); }
    int size() const override { return host_->size(); }
    std::string backend() const override { return "nccl and " + host_->backend(); }

    void all_reduce(View buffer, Reduce op) override;
    void broadcast(View buffer, int root) override;
    void all_gather(View mine, View all) override;
    void all_gather(View buffer, std::span<const Range> parts) override;
    void all_to_all(View send, std::span<const Range> send_parts, View recv,
                    std::span<const Range> recv_parts) override;
    void reduce_scatter(View all, std::span<const Range> parts, View mine, Reduce op) override;
    /// Also waits for the collectives before it.
    void barrier() override;
    void send(View buffer, int to, int tag) override;
    void receive(View buffer, int from, int tag) override;
    Ticket post(View buffer, int to, int tag) override;
    void wait(Ticket ticket) override;
    std::unique_ptr<Communicator> split(int colour, int key) override;
    void rest_while_waiting() override { host_->rest_while_waiting(); }

private:
    template <class Action>
    void on_device(const char* verb, View buffer, const Action& action) const;
    /// A message on its way, and where its bytes lie meanwhile if they come from the device.
    struct Posted {
        Ticket ticket = -1;  ///< of host_; negative where this may be given out
        std::vector<std::byte> copy;
    };
    View staged(View buffer, std::vector<std::byte>& copy) const;

    Device& device_;
    std::unique_ptr<Communicator> host_;
    std::unique_ptr<NcclGroup> group_;
    std::vector<Posted> posted_;
    std::vector<std::byte> received_;  ///< kept so that a steady step allocates nothing
};

}  // namespace trireme
