#include "comm/device_communicator.hpp"

#include <string>
#include <utility>

#include "comm/operation.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/comm/device_communicator.hpp"

namespace trireme {
namespace {

NcclId common_id(Communicator& host) {
    NcclId id{};
    if (host.rank() == 0) id = make_nccl_id();
    host.broadcast({id.data(), DType::u8, Shape{static_cast<std::int64_t>(id.size())}}, 0);
    return id;
}

View part_of_view(View view, Range part) {
    auto* data =
        static_cast<std::byte*>(view.data) + static_cast<std::size_t>(part.begin) * size_of(view.dtype);
    return {data, view.dtype, Shape{part.size()}};
}

}  // namespace

DeviceCommunicator::DeviceCommunicator(Device& device, std::unique_ptr<Communicator> host, bool nccl)
    : device_(device), host_(std::move(host)), nccl_(nccl) {}

/// What NCCL says knows neither the verb nor the group.
template <class Action>
void DeviceCommunicator::on_device(const char* verb, View buffer, const Action& action) {
    const Span span = operation(*this, verb, buffer.bytes());
    try {
        if (!group_) group_ = make_nccl_group(device_, common_id(*host_), host_->rank(), host_->size());
        action(*group_);
    } catch (const Error& error) {
        throw Error(error.status(),
                    std::string("NCCL ") + verb + " of " + bytes_text(static_cast<double>(buffer.bytes())) +
                        " among " + std::to_string(size()) + " ranks failed: " + error.what(),
                    error.scope());
    }
}

/// The buffer, or as much host memory where it lies on the device.
View DeviceCommunicator::room_for(View buffer, Bytes& copy) const {
    if (!device_.holds(buffer.data)) return buffer;
    if (copy.size() < buffer.bytes()) copy.resize(buffer.bytes());
    return {copy.data(), buffer.dtype, buffer.shape};
}

View DeviceCommunicator::copied(View buffer, Bytes& copy) const {
    const View room = room_for(buffer, copy);
    if (room.data != buffer.data) device_.copy_to_host(room.data, buffer.data, buffer.bytes());
    return room;
}

void DeviceCommunicator::copy_back(View from, View to, Range part) const {
    if (part.empty() || from.data == to.data) return;
    const View here = part_of_view(from, part), there = part_of_view(to, part);
    device_.copy_from_host(there.data, here.data, there.bytes());
}

void DeviceCommunicator::all_reduce(View buffer, Reduce op) {
    sequence_ = one_more(sequence_, "all-reduce", buffer);
    if (!device_.holds(buffer.data)) return host_->all_reduce(buffer, op);
    if (size() == 1) return;
    if (by_nccl())
        return on_device("all-reduce", buffer, [&](NcclGroup& group) { group.all_reduce(buffer, op); });
    const View copy = copied(buffer, sent_);
    host_->all_reduce(copy, op);
    copy_back(copy, buffer, {0, buffer.count()});
}

void DeviceCommunicator::broadcast(View buffer, int root) {
    sequence_ = one_more(sequence_, "broadcast", buffer);
    if (!device_.holds(buffer.data)) return host_->broadcast(buffer, root);
    if (size() == 1) return;
    if (by_nccl())
        return on_device("broadcast", buffer, [&](NcclGroup& group) { group.broadcast(buffer, root); });
    const View copy = copied(buffer, sent_);
    host_->broadcast(copy, root);
    if (rank() != root) copy_back(copy, buffer, {0, buffer.count()});
}

void DeviceCommunicator::all_gather(View mine, View all) {
    if (by_nccl() && device_.holds(all.data))
        return on_device("all-gather", all, [&](NcclGroup& group) { group.all_gather(mine, all); });
    const View copy = room_for(all, received_);
    host_->all_gather(copied(mine, sent_), copy);
    copy_back(copy, all, {0, all.count()});
}

void DeviceCommunicator::all_gather(View buffer, std::span<const Range> parts) {
    if (by_nccl() && device_.holds(buffer.data))
        return on_device("all-gather", buffer, [&](NcclGroup& group) { group.all_gather(buffer, parts); });
    const View copy = copied(buffer, sent_);
    host_->all_gather(copy, parts);
    for (const Range part : parts) copy_back(copy, buffer, part);
}

void DeviceCommunicator::all_to_all(View send, std::span<const Range> send_parts, View recv,
                                    std::span<const Range> recv_parts) {
    if (by_nccl() && (device_.holds(send.data) || device_.holds(recv.data)))
        return on_device("all-to-all", send,
                         [&](NcclGroup& group) { group.all_to_all(send, send_parts, recv, recv_parts); });
    const View copy = room_for(recv, received_);
    host_->all_to_all(copied(send, sent_), send_parts, copy, recv_parts);
    for (const Range part : recv_parts) copy_back(copy, recv, part);
}

void DeviceCommunicator::reduce_scatter(View all, std::span<const Range> parts, View mine, Reduce op) {
    if (by_nccl() && device_.holds(all.data))
        return on_device("reduce-scatter", all,
                         [&](NcclGroup& group) { group.reduce_scatter(all, parts, mine, op); });
    const View copy = room_for(mine, received_);
    host_->reduce_scatter(copied(all, sent_), parts, copy, op);
    copy_back(copy, mine, {0, mine.count()});
}

void DeviceCommunicator::barrier() {
    if (group_)
        on_device("barrier", {nullptr, DType::u8, Shape{0}}, [](NcclGroup& group) { group.finish(); });
    host_->barrier();
}

void DeviceCommunicator::send(View buffer, int to, int tag) {
    wait(post(buffer, to, tag));
}

Communicator::Ticket DeviceCommunicator::post(View buffer, int to, int tag) {
    std::size_t ticket = 0;
    while (ticket < posted_.size() && posted_[ticket].ticket >= 0) ++ticket;
    if (ticket == posted_.size()) posted_.emplace_back();
    Posted& message = posted_[ticket];
    message.ticket = host_->post(copied(buffer, message.copy), to, tag);
    return static_cast<Ticket>(ticket);
}

void DeviceCommunicator::wait(Ticket ticket) {
    host_->wait(std::exchange(posted_.at(static_cast<std::size_t>(ticket)).ticket, -1));
}

void DeviceCommunicator::receive(View buffer, int from, int tag) {
    const View to = room_for(buffer, received_);
    host_->receive(to, from, tag);
    copy_back(to, buffer, {0, buffer.count()});
}

std::unique_ptr<Communicator> DeviceCommunicator::split(int colour, int key) {
    return std::make_unique<DeviceCommunicator>(device_, host_->split(colour, key), nccl_);
}

std::unique_ptr<Communicator> make_device_communicator(Device& device, std::unique_ptr<Communicator> host,
                                                       bool shared) {
    const bool nccl = !shared && has_nccl();
    return std::make_unique<DeviceCommunicator>(device, std::move(host), nccl);
}

}  // namespace trireme
