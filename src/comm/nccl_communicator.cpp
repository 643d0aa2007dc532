#include "comm/nccl_communicator.hpp"

#include <string>
#include <utility>

#include "comm/operation.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"

namespace trireme {
namespace {

NcclId common_id(Communicator& host) {
    NcclId id{};
    if (host.rank() == 0) id = make_nccl_id();
    host.broadcast({id.data(), DType::u8, Shape{static_cast<std::int64_t>(id.size())}}, 0);
    return id;
}

}  // namespace

NcclCommunicator::NcclCommunicator(Device& device, std::unique_ptr<Communicator> host)
    : device_(device),
      host_(std::move(host)),
      group_(make_nccl_group(device, common_id(*host_), host_->rank(), host_->size())) {}

/// What NCCL says knows neither the verb nor the group.
template <class Action>
void NcclCommunicator::on_device(const char* verb, View buffer, const Action& action) const {
    const Span span = operation(*this, verb, buffer.bytes());
    try {
        action();
    } catch (const Error& error) {
        throw Error(error.status(),
                    std::string("NCCL ") + verb + " of " + bytes_text(static_cast<double>(buffer.bytes())) +
                        " among " + std::to_string(size()) + " ranks failed: " + error.what(),
                    error.scope());
    }
}

void NcclCommunicator::all_reduce(View buffer, Reduce op) {
    sequence_ = one_more(sequence_, "all-reduce", buffer);
    if (!group_->reaches(buffer.data)) return host_->all_reduce(buffer, op);
    on_device("all-reduce", buffer, [&] { group_->all_reduce(buffer, op); });
}

void NcclCommunicator::broadcast(View buffer, int root) {
    sequence_ = one_more(sequence_, "broadcast", buffer);
    if (!group_->reaches(buffer.data)) return host_->broadcast(buffer, root);
    on_device("broadcast", buffer, [&] { group_->broadcast(buffer, root); });
}

void NcclCommunicator::all_gather(View mine, View all) {
    if (!group_->reaches(all.data)) return host_->all_gather(mine, all);
    on_device("all-gather", all, [&] { group_->all_gather(mine, all); });
}

void NcclCommunicator::all_gather(View buffer, std::span<const Range> parts) {
    if (!group_->reaches(buffer.data)) return host_->all_gather(buffer, parts);
    on_device("all-gather", buffer, [&] { group_->all_gather(buffer, parts); });
}

void NcclCommunicator::all_to_all(View send, std::span<const Range> send_parts, View recv,
                                  std::span<const Range> recv_parts) {
    if (!group_->reaches(send.data) && !group_->reaches(recv.data))
        return host_->all_to_all(send, send_parts, recv, recv_parts);
    on_device("all-to-all", send, [&] { group_->all_to_all(send, send_parts, recv, recv_parts); });
}

void NcclCommunicator::reduce_scatter(View all, std::span<const Range> parts, View mine, Reduce op) {
    if (!group_->reaches(all.data)) return host_->reduce_scatter(all, parts, mine, op);
    on_device("reduce-scatter", all, [&] { group_->reduce_scatter(all, parts, mine, op); });
}

void NcclCommunicator::barrier() {
    on_device("barrier", {nullptr, DType::u8, Shape{0}}, [&] { group_->finish(); });
    host_->barrier();
}

/// The buffer, or what the device has of it in host memory.
View NcclCommunicator::staged(View buffer, std::vector<std::byte>& copy) const {
    if (!group_->reaches(buffer.data)) return buffer;
    if (copy.size() < buffer.bytes()) copy.resize(buffer.bytes());
    return {copy.data(), buffer.dtype, buffer.shape};
}

void NcclCommunicator::send(View buffer, int to, int tag) {
    wait(post(buffer, to, tag));
}

Communicator::Ticket NcclCommunicator::post(View buffer, int to, int tag) {
    std::size_t ticket = 0;
    while (ticket < posted_.size() && posted_[ticket].ticket >= 0) ++ticket;
    if (ticket == posted_.size()) posted_.emplace_back();
    Posted& message = posted_[ticket];
    const View from = staged(buffer, message.copy);
    if (from.data != buffer.data) device_.copy_to_host(from.data, buffer.data, buffer.bytes());
    message.ticket = host_->post(from, to, tag);
    return static_cast<Ticket>(ticket);
}

void NcclCommunicator::wait(Ticket ticket) {
    host_->wait(std::exchange(posted_.at(static_cast<std::size_t>(ticket)).ticket, -1));
}

void NcclCommunicator::receive(View buffer, int from, int tag) {
    const View to = staged(buffer, received_);
    host_->receive(to, from, tag);
    if (to.data != buffer.data) device_.copy_from_host(buffer.data, to.data, buffer.bytes());
}

std::unique_ptr<Communicator> NcclCommunicator::split(int colour, int key) {
    return std::make_unique<NcclCommunicator>(device_, host_->split(colour, key));
}

}  // namespace trireme
