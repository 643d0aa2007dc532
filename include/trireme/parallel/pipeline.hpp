// Pipeline parallelism: the model's layers are dealt to stages, one after another; lanes pass through them as
// micro-batches. With several chunks a rank has several stages: stage s is chunk s / ranks of rank s mod
// ranks (Narayanan et al. 2021).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/range.hpp"
#include "trireme/comm/communicator.hpp"
#include "trireme/tensor/view.hpp"

namespace trireme {

/// gpipe: all lanes forward, then all backward (Huang et al. 2019). one_f_one_b: backward as soon as
/// possible, so that few lanes are in flight (Narayanan et al. 2019). interleaved: the same with several
/// chunks.
enum class PipelineSchedule { gpipe, one_f_one_b, interleaved };
/// @throws Error (bad_usage) on other names than gpipe, 1f1b, interleaved.
PipelineSchedule pipeline_schedule_from(const std::string& name);

/// One lane forward, or backward, through one chunk.
struct PipelineAction {
    std::int64_t lane = 0;  ///< from 0, of this replica's
    int chunk = 0;
    bool backward = false;
    friend bool operator==(const PipelineAction&, const PipelineAction&) = default;
};

struct PipelineShape {
    PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
    int ranks = 1, chunks = 1;
    std::int64_t lanes = 1;
    int stages() const { return ranks * chunks; }
    int rank_of(int stage) const { return stage % ranks; }
};

/// What each rank does, in order; [rank]. Every order is one that can be executed: whoever waits for a
/// message will get it.
std::vector<std::vector<PipelineAction>> pipeline_actions(const PipelineShape& shape);

/// Lanes whose activations are kept at the same time, at most.
int lanes_in_flight(std::span<const PipelineAction> actions);

/// The part of the ranks' time in a step in which they wait for their neighbours, where lane l takes
/// forward[stage] and backward[stage] seconds (any unit) and messages take none.
double bubble_fraction(const PipelineShape& shape, std::span<const double> forward,
                       std::span<const double> backward);

/// Cuts layers of these costs into stages that follow each other, so that the most expensive stage is as
/// cheap as possible; [stage]. With fewer layers than stages, some in the middle are empty. @throws Error
/// (bad_usage) on fewer than two layers for more than one stage.
std::vector<Range> cut_into_stages(std::span<const double> costs, int stages);

/// A rank's place in a pipeline and its messages to the stages before and after.
class Pipeline {
public:
    /// One rank with all layers.
    Pipeline() = default;
    /// `ranks`: the stages of one replica, kept by reference. `lanes`: those of this replica.
    Pipeline(Communicator& ranks, PipelineSchedule schedule, int chunks, std::int64_t lanes);

    const PipelineShape& shape() const { return shape_; }
    int chunks() const { return shape_.chunks; }
    int rank() const { return comm_ != nullptr ? comm_->rank() : 0; }
    int stage(int chunk) const { return chunk * shape_.ranks + rank(); }
    bool first(int chunk) const { return stage(chunk) == 0; }
    bool last(int chunk) const { return stage(chunk) == shape_.stages() - 1; }

    /// What this rank does in a training step, and in a forward pass alone, with so many lanes.
    std::vector<PipelineAction> actions_of(std::int64_t lanes) const;
    std::vector<PipelineAction> forward_actions_of(std::int64_t lanes) const;
    /// Before the first message of a training step, or of a pass forward alone: the samples of each of its
    /// lanes, the same on all ranks. Collective.
    void begin(bool training, std::span<const std::int64_t> samples);

    /// Lanes that need a workspace of their own. In a training step lane l may use number l mod slots().
    int slots() const { return static_cast<int>(sent_.size()); }

    // Messages of a chunk. What is sent stays in use until settle() of the slot that it belongs to. On
    // streams (Communicator::connect) the host waits for nothing, and what the stream is given next comes
    // after it.
    void receive_activation(int chunk, View x);
    void send_activation(int chunk, int slot, View y);
    void receive_gradient(int chunk, View dy);
    void send_gradient(int chunk, int slot, View dx);
    /// Before the slot's memory is used again: until what was sent from it has left.
    void settle(int slot);
    void settle_all();

    /// Seconds that the host spent waiting for messages since the last call of this.
    double take_waited_seconds();

private:
    // A message's tag: its way alone, since both ends go through the lanes and chunks of one way in the same
    // order. By the host it has another one, which no route has.
    enum Way { forward, backward, ways };
    int tag_of(Way way) const { return by_host_ ? ways + way : way; }
    void receive(int from_stage, Way way, View buffer);
    void send(int to_stage, int slot, Way way, View buffer);
    std::vector<Route> routes() const;

    PipelineShape shape_;
    Communicator* comm_ = nullptr;
    std::vector<Communicator::Ticket> sent_{-1};  ///< by slot; -1: nothing on its way
    double waited_ = 0;
    std::vector<std::vector<std::int64_t>> known_;  ///< what begin() has been told so far
    std::vector<std::int64_t> told_;                ///< kept so that a steady step allocates nothing
    bool connected_ = false, by_host_ = false;
};

}  // namespace trireme
