#pragma once
// Real ranks whose calls are counted: what forecasts of traffic are held against. Groups that are split off
// the world count on their own, what is split off those counts with them.

#include <memory>
#include <utility>

#include "trireme/comm/traffic.hpp"

namespace trireme::testing {

class CountingCommunicator final : public Communicator {
public:
    explicit CountingCommunicator(Communicator& real) : real_(real) {}
    CountingCommunicator(std::unique_ptr<Communicator> real, std::shared_ptr<Traffic> traffic)
        : owned_(std::move(real)),
          real_(*owned_),
          traffic_(traffic ? traffic : std::make_shared<Traffic>()),
          of_world_(false) {}

    int rank() const override { return real_.rank(); }
    int size() const override { return real_.size(); }
    std::string backend() const override { return real_.backend(); }
    void all_reduce(View buffer, Reduce op) override {
        traffic_->add(Verb::all_reduce, buffer.bytes());
        real_.all_reduce(buffer, op);
    }
    void broadcast(View buffer, int root) override {
        traffic_->add(Verb::broadcast, buffer.bytes());
        real_.broadcast(buffer, root);
    }
    void all_gather(View mine, View all) override {
        traffic_->add(Verb::all_gather, all.bytes());
        real_.all_gather(mine, all);
    }
    void all_gather(View buffer, std::span<const Range> parts) override {
        traffic_->add(Verb::all_gather, bytes_of(buffer, parts));
        real_.all_gather(buffer, parts);
    }
    void all_to_all(View send, std::span<const Range> send_parts, View recv,
                    std::span<const Range> recv_parts) override {
        traffic_->add(Verb::all_to_all, bytes_of(send, send_parts));
        real_.all_to_all(send, send_parts, recv, recv_parts);
    }
    void reduce_scatter(View all, std::span<const Range> parts, View mine, Reduce op) override {
        traffic_->add(Verb::reduce_scatter, bytes_of(all, parts));
        real_.reduce_scatter(all, parts, mine, op);
    }
    void barrier() override {
        traffic_->add(Verb::barrier, 0);
        real_.barrier();
    }
    void send(View buffer, int to, int tag) override {
        traffic_->add(Verb::send, buffer.bytes());
        real_.send(buffer, to, tag);
    }
    void receive(View buffer, int from, int tag) override {
        traffic_->add(Verb::receive, buffer.bytes());
        real_.receive(buffer, from, tag);
    }
    Ticket post(View buffer, int to, int tag) override {
        traffic_->add(Verb::send, buffer.bytes());
        return real_.post(buffer, to, tag);
    }
    void wait(Ticket ticket) override { real_.wait(ticket); }
    std::unique_ptr<Communicator> split(int colour, int key) override {
        return std::make_unique<CountingCommunicator>(real_.split(colour, key),
                                                      of_world_ ? nullptr : traffic_);
    }

    Traffic& traffic() { return *traffic_; }

private:
    std::unique_ptr<Communicator> owned_;
    Communicator& real_;
    std::shared_ptr<Traffic> traffic_ = std::make_shared<Traffic>();
    bool of_world_ = true;
};

}  // namespace trireme::testing
