// Everything between a configuration and the first step, put together in the order in which one part needs
// another.
#pragma once

#include <memory>
#include <optional>

#include "train/experiment.hpp"
#include "train/resume.hpp"
#include "trireme/checkpoint/position.hpp"
#include "trireme/data/loader.hpp"
#include "trireme/parallel/training_state.hpp"
#include "trireme/train/step.hpp"

namespace trireme {

struct Assembly {
    DatasetLayout train_set, valid_set;  ///< valid_set has no rows where there is none
    Normalization normalization;
    EpochPlan plan, valid_plan;
    std::unique_ptr<Pipeline> pipeline;
    std::vector<Range> stages;        ///< layers of each stage of the pipeline
    std::vector<double> stage_costs;  ///< their estimated costs
    std::unique_ptr<Model> model;
    std::unique_ptr<Optimizer> optimizer;
    std::optional<Schedule> schedule;
    std::optional<Scaler> scaler;
    std::unique_ptr<TrainingState> state;
    std::unique_ptr<UpdatePass> update;
    std::unique_ptr<LaneRunner> runner;
    std::unique_ptr<GradientSums> sums;
    std::unique_ptr<TrainStep> step;
    std::unique_ptr<Loader> train_loader, valid_loader;  ///< valid_loader absent where there is no set
    Position position;                                   ///< where training starts
};

/// Opens the data, builds the model, loads the checkpoint or draws the first weights. Sets config.train.lanes
/// where it was left to auto. Collective; changes no file. @throws Error (all ranks) where anything does not
/// fit.
Assembly assemble(Runtime& runtime, Config& config, const std::optional<ResumePoint>& resume);

// Two parts of this that need no data but their layouts (parts.train_set, parts.valid_set), on any mesh.

/// Lanes, steps, stages and the model, of which nothing is allocated yet. Collective.
void build_model(Runtime& runtime, const Config& config, std::int64_t outputs, Assembly& parts);
/// Then all that is allocated for a training step, and the step itself. Collective.
void build_step(Runtime& runtime, const Config& config, Assembly& parts);

}  // namespace trireme
