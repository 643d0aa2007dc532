#include "comm/device_communicator.hpp"

#include <algorithm>
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

/// What NCCL says knows neither the verb nor the ranks.
template <class Action>
void DeviceCommunicator::on_device(const char* verb, View buffer, const Action& action, const Route* route) {
    const Span span = operation(*this, verb, buffer.bytes());
    try {
        action();
    } catch (const Error& error) {
        const std::string ranks = route == nullptr
                                      ? "among " + std::to_string(size()) + " ranks"
                                      : "from rank " + std::to_string(route->from) + " to rank " +
                                            std::to_string(route->to) + " of " + std::to_string(size());
        throw Error(error.status(),
                    std::string("NCCL ") + verb + " of " + bytes_text(static_cast<double>(buffer.bytes())) +
                        " " + ranks + " failed: " + error.what(),
                    error.scope());
    }
}

NcclGroup& DeviceCommunicator::group() {
    if (!group_) group_ = make_nccl_group(device_, common_id(*host_), host_->rank(), host_->size());
    return *group_;
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
    if (by_nccl()) return on_device("all-reduce", buffer, [&] { group().all_reduce(buffer, op); });
    const View copy = copied(buffer, sent_);
    host_->all_reduce(copy, op);
    copy_back(copy, buffer, {0, buffer.count()});
}

void DeviceCommunicator::broadcast(View buffer, int root) {
    sequence_ = one_more(sequence_, "broadcast", buffer);
    if (!device_.holds(buffer.data)) return host_->broadcast(buffer, root);
    if (size() == 1) return;
    if (by_nccl()) return on_device("broadcast", buffer, [&] { group().broadcast(buffer, root); });
    const View copy = copied(buffer, sent_);
    host_->broadcast(copy, root);
    if (rank() != root) copy_back(copy, buffer, {0, buffer.count()});
}

void DeviceCommunicator::all_gather(View mine, View all) {
    if (by_nccl() && device_.holds(all.data))
        return on_device("all-gather", all, [&] { group().all_gather(mine, all); });
    const View copy = room_for(all, received_);
    host_->all_gather(copied(mine, sent_), copy);
    copy_back(copy, all, {0, all.count()});
}

void DeviceCommunicator::all_gather(View buffer, std::span<const Range> parts) {
    if (by_nccl() && device_.holds(buffer.data))
        return on_device("all-gather", buffer, [&] { group().all_gather(buffer, parts); });
    const View copy = copied(buffer, sent_);
    host_->all_gather(copy, parts);
    for (const Range part : parts) copy_back(copy, buffer, part);
}

void DeviceCommunicator::all_to_all(View send, std::span<const Range> send_parts, View recv,
                                    std::span<const Range> recv_parts) {
    if (by_nccl() && (device_.holds(send.data) || device_.holds(recv.data)))
        return on_device("all-to-all", send, [&] { group().all_to_all(send, send_parts, recv, recv_parts); });
    const View copy = room_for(recv, received_);
    host_->all_to_all(copied(send, sent_), send_parts, copy, recv_parts);
    for (const Range part : recv_parts) copy_back(copy, recv, part);
}

void DeviceCommunicator::reduce_scatter(View all, std::span<const Range> parts, View mine, Reduce op) {
    if (by_nccl() && device_.holds(all.data))
        return on_device("reduce-scatter", all, [&] { group().reduce_scatter(all, parts, mine, op); });
    const View copy = room_for(mine, received_);
    host_->reduce_scatter(copied(all, sent_), parts, copy, op);
    copy_back(copy, mine, {0, mine.count()});
}

void DeviceCommunicator::barrier() {
    if (group_ || !lines_.empty())
        on_device("barrier", {nullptr, DType::u8, Shape{0}},
                  [&] { group_ ? group_->finish() : device_.synchronize(); });
    host_->barrier();
}

// Each route has a group of two and a stream of its own: a message whose receiver is late holds up the
// messages behind it, and nothing else.
void DeviceCommunicator::connect(std::span<const Route> routes) {
    lines_.clear();
    if (!by_nccl() || !have_streams(routes)) return;
    const Buffer memory(device_, 1);
    const View byte = {memory.data(), DType::u8, Shape{1}};
    for (const Route& route : routes) {
        const bool sends = route.from == rank();
        if (!sends && route.to != rank()) continue;
        const Stream stream = message_stream(static_cast<int>(lines_.size()));
        Line line{route, stream, nullptr, device_.make_event(), device_.make_event()};
        NcclId id{};
        const View told{id.data(), DType::u8, Shape{static_cast<std::int64_t>(id.size())}};
        if (sends) {
            id = make_nccl_id();
            host_->send(told, route.to, route.tag);
        } else {
            host_->receive(told, route.from, route.tag);
        }
        // NCCL joins two ranks when the first message comes, and both wait meanwhile: here they meet.
        on_device(
            "connection", byte,
            [&] {
                line.group = make_nccl_group(device_, id, sends ? 0 : 1, 2);
                pass(line, byte, sends, *line.arrived);
                device_.synchronize();
            },
            &route);
        lines_.push_back(std::move(line));
    }
}

/// True if no rank has more routes than streams for them.
bool DeviceCommunicator::have_streams(std::span<const Route> routes) const {
    std::vector<int> ends(static_cast<std::size_t>(size()), 0);
    for (const Route& route : routes)
        for (const int end : {route.from, route.to})
            if (++ends[static_cast<std::size_t>(end)] > message_streams) return false;
    return true;
}

DeviceCommunicator::Line* DeviceCommunicator::line_of(View buffer, const Route& route) {
    const auto found = std::ranges::find(lines_, route, &Line::route);
    return found != lines_.end() && device_.holds(buffer.data) ? &*found : nullptr;
}

/// On the line's stream, after what this thread's stream has been given. `done`: where it is.
void DeviceCommunicator::pass(Line& line, View buffer, bool sends, DeviceEvent& done) {
    const OnStream beside(device_, line.stream, *line.begin);
    if (sends)
        line.group->send(buffer, 1);
    else
        line.group->receive(buffer, 0);
    done.record();
}

void DeviceCommunicator::send(View buffer, int to, int tag) {
    wait(post(buffer, to, tag));
}

Communicator::Ticket DeviceCommunicator::post(View buffer, int to, int tag) {
    std::size_t ticket = 0;
    while (ticket < posted_.size() && posted_[ticket].state != Posted::free) ++ticket;
    if (ticket == posted_.size()) posted_.emplace_back();
    Posted& message = posted_[ticket];
    if (Line* line = line_of(buffer, {rank(), to, tag})) {
        if (!message.left) message.left = device_.make_event();
        on_device(
            "send", buffer, [&] { pass(*line, buffer, true, *message.left); }, &line->route);
        message.state = Posted::on_stream;
    } else {
        message.ticket = host_->post(copied(buffer, message.copy), to, tag);
        message.state = Posted::by_host;
    }
    return static_cast<Ticket>(ticket);
}

void DeviceCommunicator::wait(Ticket ticket) {
    Posted& message = posted_.at(static_cast<std::size_t>(ticket));
    if (std::exchange(message.state, Posted::free) == Posted::on_stream)
        message.left->follow();
    else
        host_->wait(message.ticket);
}

void DeviceCommunicator::receive(View buffer, int from, int tag) {
    if (Line* line = line_of(buffer, {from, rank(), tag})) {
        on_device(
            "receive", buffer, [&] { pass(*line, buffer, false, *line->arrived); }, &line->route);
        return line->arrived->follow();
    }
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
