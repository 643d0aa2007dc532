// A communicator whose every verb goes by way of device memory: so that what is checked on values in host
// memory is checked on the device's collectives.
#pragma once

#include <map>
#include <memory>

#include "trireme/comm/communicator.hpp"
#include "trireme/tensor/device.hpp"

namespace trireme::app {

class DeviceDetour final : public Communicator {
public:
    /// `inner` takes memory of the device.
    DeviceDetour(Device& device, std::unique_ptr<Communicator> inner);
    ~DeviceDetour() override;

    int rank() const override { return inner_->rank(); }
    int size() const override { return inner_->size(); }
    std::string backend() const override { return inner_->backend() + " from " + device_.name(); }

    void all_reduce(View buffer, Reduce op) override;
    void broadcast(View buffer, int root) override;
    void all_gather(View mine, View all) override;
    void all_gather(View buffer, std::span<const Range> parts) override;
    void all_to_all(View send, std::span<const Range> send_parts, View recv,
                    std::span<const Range> recv_parts) override;
    void reduce_scatter(View all, std::span<const Range> parts, View mine, Reduce op) override;
    void barrier() override { inner_->barrier(); }
    void send(View buffer, int to, int tag) override;
    void receive(View buffer, int from, int tag) override;
    Ticket post(View buffer, int to, int tag) override;
    void wait(Ticket ticket) override;
    std::unique_ptr<Communicator> split(int colour, int key) override;

private:
    /// A view's elements on the device.
    class Copy;

    Device& device_;
    std::unique_ptr<Communicator> inner_;
    std::map<Ticket, std::unique_ptr<Copy>> posted_;
};

}  // namespace trireme::app
