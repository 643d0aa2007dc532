#include "trireme/parallel/pipeline.hpp"

#include <algorithm>
#include <utility>

#include "trireme/base/clock.hpp"

namespace trireme {

Pipeline::Pipeline(Communicator& ranks, PipelineSchedule schedule, int chunks, std::int64_t lanes)
    : shape_{.schedule = schedule, .ranks = ranks.size(), .chunks = chunks, .lanes = lanes},
      comm_(&ranks),
      sent_(static_cast<std::size_t>(lanes_in_flight(actions_of(lanes))), -1) {}

// The first pass of a kind may load kernels and allocate memory, for which a device may wait until all that
// it has begun is done, messages included. It goes through the host, where no such wait closes a circle; and
// by the next one the other groups of the mesh have been made.
void Pipeline::begin(bool training, std::span<const std::int64_t> samples) {
    if (comm_ == nullptr || !comm_->on_streams()) return;
    told_.assign(samples.begin(), samples.end());
    told_.push_back(training ? 1 : 0);
    by_host_ = std::ranges::find(known_, told_) == known_.end();
    if (by_host_) return known_.push_back(told_);
    if (!std::exchange(connected_, true)) comm_->connect(routes());
}

/// Between neighbours, both ways. Every second pair comes first, so that most of them can meet at the same
/// time.
std::vector<Route> Pipeline::routes() const {
    const int ranks = shape_.ranks;
    const int pairs = ranks == 1 ? 0 : chunks() > 1 ? ranks : ranks - 1;  // chunks go round
    std::vector<Route> routes;
    for (const int first : {0, 1})
        for (int rank = first; rank < pairs; rank += 2) {
            const int next = (rank + 1) % ranks;
            routes.push_back({rank, next, forward});
            routes.push_back({next, rank, backward});
        }
    return routes;
}

std::vector<PipelineAction> Pipeline::actions_of(std::int64_t lanes) const {
    PipelineShape shape = shape_;
    shape.lanes = lanes;
    return pipeline_actions(shape)[static_cast<std::size_t>(rank())];
}

std::vector<PipelineAction> Pipeline::forward_actions_of(std::int64_t lanes) const {
    std::vector<PipelineAction> actions = actions_of(lanes);
    std::erase_if(actions, [](const PipelineAction& action) { return action.backward; });
    return actions;
}

void Pipeline::receive_activation(int chunk, View x) {
    receive(stage(chunk) - 1, forward, x);
}
void Pipeline::send_activation(int chunk, int slot, View y) {
    send(stage(chunk) + 1, slot, forward, y);
}
void Pipeline::receive_gradient(int chunk, View dy) {
    receive(stage(chunk) + 1, backward, dy);
}
void Pipeline::send_gradient(int chunk, int slot, View dx) {
    send(stage(chunk) - 1, slot, backward, dx);
}

void Pipeline::receive(int from_stage, Way way, View buffer) {
    const Stopwatch watch;
    comm_->receive(buffer, shape_.rank_of(from_stage), tag_of(way));
    waited_ += watch.seconds();
}

void Pipeline::send(int to_stage, int slot, Way way, View buffer) {
    settle(slot);
    sent_[static_cast<std::size_t>(slot)] = comm_->post(buffer, shape_.rank_of(to_stage), tag_of(way));
}

void Pipeline::settle(int slot) {
    if (comm_ == nullptr) return;
    Communicator::Ticket& ticket = sent_[static_cast<std::size_t>(slot)];
    if (ticket < 0) return;
    const Stopwatch watch;
    comm_->wait(ticket);
    waited_ += watch.seconds();
    ticket = -1;
}

void Pipeline::settle_all() {
    for (int slot = 0; slot < static_cast<int>(sent_.size()); ++slot) settle(slot);
}

double Pipeline::take_waited_seconds() {
    return std::exchange(waited_, 0);
}

}  // namespace trireme
