#include "trireme/comm/traffic.hpp"

#include <utility>

namespace trireme {

std::string_view name_of(Verb verb) {
    constexpr std::array<std::string_view, verbs> names = {"all_reduce", "broadcast",      "all_gather",
                                                           "all_to_all", "reduce_scatter", "barrier",
                                                           "send",       "receive"};
    return names[static_cast<std::size_t>(verb)];
}

void Traffic::add(Verb verb, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    Calls& calls = table_[static_cast<std::size_t>(verb)];
    ++calls.calls;
    calls.bytes += static_cast<std::int64_t>(bytes);
}

Traffic::Table Traffic::table() const {
    const std::lock_guard lock(mutex_);
    return table_;
}

void Traffic::clear() {
    const std::lock_guard lock(mutex_);
    table_ = {};
}

std::size_t bytes_of(View buffer, std::span<const Range> parts) {
    std::int64_t elements = 0;
    for (const Range part : parts) elements += part.size();
    return static_cast<std::size_t>(elements) * size_of(buffer.dtype);
}

double sent_bytes(Verb verb, std::int64_t bytes, int ranks) {
    const double share = static_cast<double>(ranks - 1) / ranks, all = static_cast<double>(bytes);
    switch (verb) {
        case Verb::all_reduce:
            return 2 * share * all;
        case Verb::broadcast:
        case Verb::all_gather:
        case Verb::all_to_all:
        case Verb::reduce_scatter:
            return share * all;
        case Verb::send:
            return all;
        case Verb::barrier:
        case Verb::receive:
            break;
    }
    return 0;
}

MetaCommunicator::MetaCommunicator(int rank, int size, std::vector<std::vector<int>> colours)
    : rank_(rank), size_(size), colours_(std::move(colours)) {}

void MetaCommunicator::all_reduce(View buffer, Reduce) {
    traffic_->add(Verb::all_reduce, buffer.bytes());
}
void MetaCommunicator::broadcast(View buffer, int) {
    traffic_->add(Verb::broadcast, buffer.bytes());
}
void MetaCommunicator::all_gather(View, View all) {
    traffic_->add(Verb::all_gather, all.bytes());
}
void MetaCommunicator::all_gather(View buffer, std::span<const Range> parts) {
    traffic_->add(Verb::all_gather, bytes_of(buffer, parts));
}
void MetaCommunicator::all_to_all(View send, std::span<const Range> send_parts, View,
                                  std::span<const Range>) {
    traffic_->add(Verb::all_to_all, bytes_of(send, send_parts));
}
void MetaCommunicator::reduce_scatter(View all, std::span<const Range> parts, View, Reduce) {
    traffic_->add(Verb::reduce_scatter, bytes_of(all, parts));
}
void MetaCommunicator::barrier() {
    traffic_->add(Verb::barrier, 0);
}
void MetaCommunicator::send(View buffer, int, int) {
    traffic_->add(Verb::send, buffer.bytes());
}
void MetaCommunicator::receive(View buffer, int, int) {
    traffic_->add(Verb::receive, buffer.bytes());
}
Communicator::Ticket MetaCommunicator::post(View buffer, int to, int tag) {
    send(buffer, to, tag);
    return 0;
}

std::unique_ptr<Communicator> MetaCommunicator::split(int colour, int) {
    int rank = rank_, size = size_;
    if (splits_ < colours_.size()) {
        rank = size = 0;
        for (int q = 0; q < size_; ++q) {
            if (colours_[splits_][static_cast<std::size_t>(q)] != colour) continue;
            ++size;
            if (q < rank_) ++rank;
        }
    }
    ++splits_;
    auto part = std::make_unique<MetaCommunicator>(rank, size);
    part->traffic_ = traffic_;
    return part;
}

}  // namespace trireme
