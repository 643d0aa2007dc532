// From a configuration and its data to the parts of a run: what train, eval and predict have in common.
#pragma once

#include <memory>
#include <string>

#include "trireme/checkpoint/checkpoint.hpp"
#include "trireme/data/loader.hpp"
#include "trireme/nn/model.hpp"
#include "trireme/optim/optimizer.hpp"
#include "trireme/optim/scaler.hpp"
#include "trireme/optim/schedule.hpp"
#include "trireme/parallel/pipeline.hpp"
#include "trireme/parallel/sharding.hpp"
#include "trireme/parallel/training_state.hpp"
#include "trireme/train/config.hpp"
#include "trireme/train/runtime.hpp"

namespace trireme {

LossOptions loss_options(const Config& config);
OptimizerOptions optimizer_options(const Config& config);
ScalerOptions scaler_options(const Config& config);
/// parallel.overlap, the same on all ranks (collective); on its own wherever that costs nothing: on a device
/// collectives have a stream, unless they go through the host; on CPUs they need a core.
bool overlaps(Runtime& runtime, const Config& config);
/// All but this rank's lanes and workers.
TrainingStateOptions training_state_options(Runtime& runtime, const Config& config,
                                            const Optimizer& optimizer);
/// What layers compute in: train.precision.
DType compute_type(const Config& config);
/// What data sets are opened with.
DatasetOptions dataset_options(const Config& config);
/// What a checkpoint was trained with. @throws Error (bad_data, all ranks) where it does not tell.
Config config_of(const std::string& checkpoint, const CheckpointMeta& meta);
/// Presets are written out for samples of this shape.
ModelDescription model_description(const Config& config, const Shape& sample);
/// The horizon is schedule.steps, else epochs x steps per epoch, else max_steps.
Schedule make_schedule(const Config& config, std::int64_t steps_per_epoch);

/// V: train.lanes, or by the rule of DESIGN section 5. `ranks`: data-parallel ones.
std::int64_t choose_lanes(const Config& config, int ranks);
/// Lanes side by side on one rank and threads of each.
struct LaneThreads {
    int workers = 1, threads = 1;
};
LaneThreads choose_threads(const Config& config, int rank_threads, Range my_lanes);

/// A rank's place in the pipeline: parallel.schedule and chunks, for the lanes of its replica.
Pipeline make_pipeline(Communicator& ranks, const Config& config, std::int64_t lanes);

/// The ranks whose updates make up one update of the model: those of a replica, or all where each has a
/// share.
Communicator& update_ranks(Mesh& mesh, const Sharding& sharding);

/// run.cuda_graph: whether steps of this model are recorded and replayed. @throws Error (bad_usage) where
/// that is wanted and cannot be.
bool records_steps(Runtime& runtime, const Config& config, const Model& model);

/// This rank's chunks of the layers of all stages.
std::vector<Range> chunks_of(const Pipeline& pipeline, const std::vector<Range>& stages);

/// How the loader of one data set is set up. `outputs`: what labels must be below; `ranks_on_node`: for the
/// share of memory.
LoaderOptions loader_options(const Config& config, const EpochPlan& plan, const Normalization& normalization,
                             Range my_lanes, std::int64_t outputs, int ranks_on_node);

/// Reads data.augment: none, or crop=<pixels> and flip. @throws Error (bad_usage) on anything else.
void set_augmentation(LoaderOptions& options, const Config& config);

/// Classes in the labels, or values of one target. Collective.
std::int64_t count_outputs(Communicator& comm, const Config& config, const DatasetLayout& layout);

/// Token data go with models that begin with an embedding, samples with the others.
/// @throws Error (bad_usage) naming the key that stands against the set.
void check_kind(const Config& config, const DatasetLayout& layout);
/// @throws Error (bad_data, all ranks) when the samples of a set do not fit what the model was made for.
void check_compatible(const DatasetLayout& layout, const Shape& sample, const std::string& what);
/// The same for targets that are no class labels (labels are checked one by one).
void check_targets(const Config& config, const DatasetLayout& layout, std::int64_t outputs);

}  // namespace trireme
