// Communicator for ranks whose tensors lie in memory of a device each, over another communicator of the same
// ranks, which takes everything that lies in host memory. Collectives on device memory, and messages on
// routes that were announced, go through NCCL where it is there and every rank has a GPU of its own; all else
// by way of a copy in host memory.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "comm/nccl_group.hpp"

namespace trireme {

/// What goes through NCCL is ordered with the stream that the thread uses of the device, and returns before
/// it is done.
class DeviceCommunicator final : public Communicator {
public:
    /// `nccl`: the same on all ranks. The device must outlive it.
    DeviceCommunicator(Device& device, std::unique_ptr<Communicator> host, bool nccl);

    /// The one for what lies in host memory.
    Communicator& host() const { return *host_; }

    int rank() const override { return host_->rank(); }
    int size() const override { return host_->size(); }
    std::string backend() const override {
        return (nccl_ ? "nccl and " : "host copies and ") + host_->backend();
    }

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
    void connect(std::span<const Route> routes) override;
    std::unique_ptr<Communicator> split(int colour, int key) override;
    bool on_streams() const override { return nccl_; }
    void rest_while_waiting() override { host_->rest_while_waiting(); }

private:
    using Bytes = std::vector<std::byte>;
    /// A message on its way.
    struct Posted {
        enum { free, by_host, on_stream } state = free;
        Ticket ticket = -1;  ///< of host_,
        Bytes copy;          ///< and where the bytes lie meanwhile if they come from the device
        std::unique_ptr<DeviceEvent> left;  ///< on a stream: when
    };
    /// One end of a route, through NCCL.
    struct Line {
        Route route;
        Stream stream;
        std::unique_ptr<NcclGroup> group;  ///< the sender is its rank 0
        std::unique_ptr<DeviceEvent> begin, arrived;
    };
    bool by_nccl() const { return nccl_ && size() > 1; }
    NcclGroup& group();
    template <class Action>
    void on_device(const char* verb, View buffer, const Action& action, const Route* route = nullptr);
    bool have_streams(std::span<const Route> routes) const;
    Line* line_of(View buffer, const Route& route);
    void pass(Line& line, View buffer, bool sends, DeviceEvent& done);
    View room_for(View buffer, Bytes& copy) const;
    View copied(View buffer, Bytes& copy) const;
    void copy_back(View from, View to, Range part) const;

    Device& device_;
    std::unique_ptr<Communicator> host_;
    bool nccl_;
    std::unique_ptr<NcclGroup> group_;  ///< from the first collective on device memory on
    std::vector<Line> lines_;           ///< those that begin or end here
    std::vector<Posted> posted_;
    Bytes sent_, received_;  ///< kept so that a steady step allocates nothing
};

}  // namespace trireme
