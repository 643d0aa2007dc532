#include "app/device_detour.hpp"

#include <algorithm>
#include <utility>

namespace trireme::app {

class DeviceDetour::Copy {
public:
    Copy(Device& device, View host)
        : device_(device), host_(host), buffer_(device, std::max<std::size_t>(1, host.bytes())) {
        device.copy_from_host(buffer_.data(), host.data, host.bytes());
    }
    View view() const { return {buffer_.data(), host_.dtype, host_.shape}; }
    void bring_back() const { device_.copy_to_host(host_.data, buffer_.data(), host_.bytes()); }

private:
    Device& device_;
    View host_;
    Buffer buffer_;
};

DeviceDetour::DeviceDetour(Device& device, std::unique_ptr<Communicator> inner)
    : device_(device), inner_(std::move(inner)) {}

DeviceDetour::~DeviceDetour() = default;

void DeviceDetour::all_reduce(View buffer, Reduce op) {
    const Copy copy(device_, buffer);
    inner_->all_reduce(copy.view(), op);
    copy.bring_back();
}

void DeviceDetour::broadcast(View buffer, int root) {
    const Copy copy(device_, buffer);
    inner_->broadcast(copy.view(), root);
    copy.bring_back();
}

void DeviceDetour::all_gather(View mine, View all) {
    const Copy from(device_, mine), to(device_, all);
    inner_->all_gather(from.view(), to.view());
    to.bring_back();
}

void DeviceDetour::all_gather(View buffer, std::span<const Range> parts) {
    const Copy copy(device_, buffer);
    inner_->all_gather(copy.view(), parts);
    copy.bring_back();
}

void DeviceDetour::all_to_all(View send, std::span<const Range> send_parts, View recv,
                              std::span<const Range> recv_parts) {
    const Copy from(device_, send), to(device_, recv);
    inner_->all_to_all(from.view(), send_parts, to.view(), recv_parts);
    to.bring_back();
}

void DeviceDetour::reduce_scatter(View all, std::span<const Range> parts, View mine, Reduce op) {
    const Copy from(device_, all), to(device_, mine);
    inner_->reduce_scatter(from.view(), parts, to.view(), op);
    to.bring_back();
}

void DeviceDetour::send(View buffer, int to, int tag) {
    const Copy copy(device_, buffer);
    inner_->send(copy.view(), to, tag);
}

void DeviceDetour::receive(View buffer, int from, int tag) {
    const Copy copy(device_, buffer);
    inner_->receive(copy.view(), from, tag);
    copy.bring_back();
}

Communicator::Ticket DeviceDetour::post(View buffer, int to, int tag) {
    auto copy = std::make_unique<Copy>(device_, buffer);
    const Ticket ticket = inner_->post(copy->view(), to, tag);
    posted_[ticket] = std::move(copy);
    return ticket;
}

void DeviceDetour::wait(Ticket ticket) {
    inner_->wait(ticket);
    posted_.erase(ticket);
}

std::unique_ptr<Communicator> DeviceDetour::split(int colour, int key) {
    return std::make_unique<DeviceDetour>(device_, inner_->split(colour, key));
}

}  // namespace trireme::app
