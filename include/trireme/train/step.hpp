// One training step, and one evaluation step, over the lanes of this rank.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "trireme/data/loader.hpp"
#include "trireme/nn/model.hpp"
#include "trireme/optim/optimizer.hpp"
#include "trireme/parallel/gradient_sums.hpp"
#include "trireme/parallel/pipeline.hpp"
#include "trireme/parallel/training_state.hpp"
#include "trireme/train/crew.hpp"

namespace trireme {

/// What runs lanes: as many workers as lanes run side by side, each with its ops, workspace and thread.
class LaneRunner {
public:
    /// What each worker's ops are wrapped in, for measurements.
    using Wrap = std::function<std::unique_ptr<Ops>(std::unique_ptr<Ops>)>;

    /// Layers compute with `weights`, which are kept by reference. `slots`: lanes of each worker that are in
    /// flight at the same time, each with a workspace.
    LaneRunner(Device& device, const Model& model, LaneWeights& weights, int workers, int threads_per_lane,
               int slots = 1, const Wrap& wrap = {});

    Device& device() { return device_; }

    /// As LaneWeights::use.
    void use(WeightKind kind) { weights_.use(ops(), kind); }

    int workers() const { return static_cast<int>(workers_.size()); }
    Ops& ops(int worker = 0) { return *workers_[static_cast<std::size_t>(worker)].ops; }
    int slots() const { return static_cast<int>(workers_.front().workspaces.size()); }
    /// A context for one lane of `batch`, run by `worker` in one of its workspaces.
    LaneContext context(int worker, const LaneBatch& batch, int slot = 0);
    /// Runs action(worker) for every worker, side by side, and waits. @throws the first error.
    void run(const std::function<void(int)>& action) { crew_.run(action); }
    const Model& model() const { return model_; }
    LaneWeights& weights() { return weights_; }

private:
    struct Worker {
        std::unique_ptr<Ops> ops;
        std::vector<Buffer> workspaces;  ///< one per slot
    };
    Device& device_;
    const Model& model_;
    LaneWeights& weights_;
    std::vector<Worker> workers_;
    Crew crew_;
};

/// What any rank may wish of all at a step's end: to stop, to save, to end for an error.
inline constexpr int wishes = 3;

/// Sums over samples, reduced over all ranks: one slot per lane, so that adding them up gives the same bits
/// on any number of ranks. A device adds to them by itself; the host fetches all at once.
class LaneSums {
public:
    LaneSums(Device& device, std::int64_t lanes);

    static constexpr int extras = wishes + 2;  ///< small numbers that ride along, summed over the ranks

    void clear();
    /// Drops this rank's sums, not the extras.
    void drop();
    std::int64_t lanes() const { return lanes_; }
    /// In device memory.
    LossSums of_lane(std::int64_t lane);
    double* norm() { return sums_.as<double>() + 3 * lanes_; }
    /// What the device has added up by now, once it is done. Returns the norm.
    double fetch();
    double& extra(int i) { return values_[values_.size() - extras + static_cast<std::size_t>(i)]; }
    /// One all-reduce of what was fetched, and of the extras. Afterwards loss(), count(), correct() are those
    /// of all lanes.
    void reduce(Communicator& comm);

    double loss() const { return total(0); }
    double count() const { return total(1); }
    double correct() const { return total(2); }

private:
    double total(int which) const;
    Device& device_;
    std::int64_t lanes_;
    Buffer sums_;                           ///< [lanes, 3], then the norm
    std::vector<double> fetched_, values_;  ///< the same; [lanes, 3], then the extras
};

class StepGraphs;

struct StepOptions {
    double clip_norm = 0;  ///< 0: off
    std::uint64_t seed = 1;
    bool reports = true;       ///< this rank's lane sums count: one rank of each tensor group
    bool may_skip = false;     ///< a step whose gradient is not finite is skipped; otherwise it is an error
    double average_decay = 0;  ///< of the moving average, where the arena keeps one
    bool graphs =
        false;  ///< record what the device is given, and replay it: where that is the same in every step
};

/// What a step needs to know about where it stands.
struct StepRequest {
    double lr = 0;
    std::int64_t updates = 0;  ///< applied before this one
    std::int64_t attempt = 0;  ///< steps before this one: the dropout key
    std::int64_t batch_samples = 0;
    double scale = 1;         ///< on the loss, for the backward pass only
    bool flags[wishes] = {};  ///< this rank's: any rank's is everybody's
    /// Of whatever has to be the same on all ranks; ranks that differ are told apart by `in_words`.
    std::uint32_t fingerprint = 0;
    std::function<std::string()> in_words{};
};

struct StepResult {
    double loss = 0;  ///< mean over the samples that count
    double count = 0, correct = 0;
    double gradient_norm = 0;  ///< global, unscaled, before clipping
    bool skipped = false;      ///< inf or NaN on any rank: no weight, moment or statistic has changed
    std::string
        culprit;  ///< then: the first parameter, in the order of backward, whose gradient is not finite
    bool flags[wishes] = {};
    double lanes_seconds = 0;     ///< of all lanes, forward and backward,
    double pipeline_seconds = 0;  ///< and what of it this rank waited for the stages before and after
};

/// The ranks and parts that a step is made of; everything is kept by reference.
struct StepParts {
    Communicator& world;  ///< all ranks
    Communicator& norms;  ///< those whose updates make up one update of the model
    Pipeline& pipeline;
    LaneRunner& runner;
    TrainingState& state;
    UpdatePass& update;
    GradientSums& sums;
};

class TrainStep {
public:
    /// `lanes`: V.
    TrainStep(const StepParts& parts, std::int64_t lanes, StepOptions options);
    ~TrainStep();

    /// Lanes, reduce, unscale, finite check, clip, update, share. `lanes`: this rank's lanes of the step, in
    /// order. Collective. @throws Error (failed, all ranks) when loss or gradient is not finite and may not
    /// be skipped.
    StepResult run(std::span<const LaneBatch> lanes, const StepRequest& request);

private:
    float gradient_limit() const;
    double summed(double share);
    std::string culprit();
    double compute_gradients(std::span<const LaneBatch> lanes, const StepRequest& request);
    void run_lanes(std::span<const LaneBatch> lanes, const StepRequest& request);
    void forward(int worker, const LaneBatch& batch, const PipelineAction& action);
    void backward(int worker, const LaneBatch& batch, const PipelineAction& action,
                  const StepRequest& request, bool last);
    void visit(int worker, const LaneBatch& batch, const PipelineAction& action);
    LaneContext context(int worker, const LaneBatch& batch, const PipelineAction& action);
    int slot_of(const PipelineAction& action) const {
        return static_cast<int>(action.lane % parts_.runner.slots());
    }

    StepParts parts_;
    StepOptions options_;
    LaneSums sums_;
    std::unique_ptr<StepGraphs> graphs_;  ///< absent: every step anew
    std::int64_t attempt_ = 0;
    std::vector<std::vector<PipelineAction>>
        actions_;  ///< of each worker; lanes from this rank's first one on
    /// A lane of this step has left its gradients; by worker, chunk and way: several chunks' are there at
    /// different times, and BatchNorm's statistics from the forward pass on.
    std::vector<std::uint8_t> filled_;
    std::vector<std::int64_t> samples_;  ///< of the lanes; kept so that a steady step allocates nothing
};

/// Forward only, dropout off, running statistics; sums go to the lane's slot, on the ranks of the last stage.
/// Collective where weights are sharded.
void evaluate_lanes(LaneRunner& runner, Pipeline& pipeline, std::span<const LaneBatch> lanes, LaneSums& sums);

}  // namespace trireme
