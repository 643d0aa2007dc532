#include "train/assembly.hpp"

#include <algorithm>
#include <numeric>
#include <string>

#include "train/weight_source.hpp"
#include "trireme/base/error.hpp"

namespace trireme {
namespace {

Error misfit(const std::string& message) {
    return Error(Status::bad_data, message, Scope::all_ranks);
}

/// The set that a key names; where the pattern itself is at fault, the message begins with the key.
DatasetLayout open_set(Communicator& world, const Config& config, const std::string& key,
                       const std::string& pattern) {
    try {
        return open_dataset(world, pattern, dataset_options(config));
    } catch (const Error& error) {
        const std::string text = error.what();
        throw Error(error.status(), text.starts_with(pattern) ? key + "=" + text : text, error.scope());
    }
}

/// What does not fit a run that goes on may have been meant for a new one.
template <class Check>
void require_fit(const std::optional<ResumePoint>& resume, const Check& check) {
    try {
        check();
    } catch (const Error& error) {
        if (!resume || error.status() != Status::bad_data) throw;
        throw Error(error.status(),
                    std::string(error.what()) + "; this goes on from " + resume->source +
                        ": another run.dir, or run.resume=none, begins a new run",
                    error.scope());
    }
}

std::vector<std::string> layers_of(const Config& config, const Assembly& parts) {
    return model_description(config, parts.train_set.sample).layers;
}

/// Returns classes of the labels, or values of a target. `first`: what a fresh run starts from, where that is
/// not random weights.
std::int64_t open_data(Runtime& runtime, const Config& config, const std::optional<ResumePoint>& resume,
                       Assembly& parts, std::optional<WeightSource>& first) {
    Communicator& world = runtime.mesh.world();
    const std::string train = "data.train=" + config.data.train, valid = "data.valid=" + config.data.valid;
    DatasetLayout& set = parts.train_set;
    set = open_set(world, config, "data.train", config.data.train);
    require_fit(resume, [&] { check_compatible(set, resume ? resume->meta.sample : set.sample, train); });
    check_kind(config, set);
    std::int64_t outputs = count_outputs(world, config, set);
    if (resume) {
        outputs = std::max(outputs, resume->meta.outputs);
        require_fit(resume, [&] { check_targets(config, set, outputs); });
        parts.normalization = {resume->meta.input_shift, resume->meta.input_scale};
    } else if (!config.run.init_from.empty()) {
        first = read_weight_source(world, config.run.init_from, layers_of(config, parts));
        if (loss_from(config.model.loss) == LossKind::cross_entropy)
            outputs = std::max(outputs, first->outputs);
        parts.normalization = normalization_for(runtime, config, *first, set);
    } else {
        parts.normalization = make_normalization(world, set, config.data.normalize);
    }
    if (outputs < 1) throw misfit(train + ": no sample counts: every label is train.ignore_index");
    if (config.data.valid.empty()) return outputs;

    parts.valid_set = open_set(world, config, "data.valid", config.data.valid);
    check_compatible(parts.valid_set, set.sample, valid);
    check_kind(config, parts.valid_set);
    check_targets(config, parts.valid_set, outputs);
    return outputs;
}

void plan_steps(const Config& config, Assembly& parts) {
    EpochPlan& plan = parts.plan;
    plan = {parts.train_set.rows(), config.train.batch, config.train.lanes, config.data.drop_last};
    parts.valid_plan = {parts.valid_set.rows(), plan.batch, plan.lanes, false};
    if (plan.steps() == 0)
        throw usage_error("data.drop_last=true leaves no step: the " + std::to_string(plan.samples) +
                          " samples of data.train are fewer than train.batch=" + std::to_string(plan.batch));
}

void check_samples(const Config& config, const std::optional<ResumePoint>& resume, const Assembly& parts) {
    const EpochPlan& plan = parts.plan;
    if (resume && resume->meta.position.step_in_epoch > 0 && resume->meta.samples != plan.samples)
        throw misfit("data.train=" + config.data.train + ": the epoch was begun with " +
                     std::to_string(resume->meta.samples) + " samples, but here are " +
                     std::to_string(plan.samples) +
                     "; go on with the same data, or from a checkpoint at the end of an epoch");
}

Range lanes_of_rank(Runtime& runtime, const Config& config) {
    return part_of({0, config.train.lanes}, runtime.mesh.data().size(), runtime.mesh.data().rank());
}

/// Deals the layers to the stages of the pipeline.
void deal_layers(const Config& config, std::int64_t outputs, const ModelOptions& options, Assembly& parts) {
    const Shape& sample = parts.train_set.sample;
    const std::vector<double> costs =
        layer_costs(model_description(config, sample), sample, outputs, options);
    parts.stages = cut_into_stages(costs, parts.pipeline->shape().stages());
    for (const Range& stage : parts.stages)
        parts.stage_costs.push_back(
            std::accumulate(costs.begin() + stage.begin, costs.begin() + stage.end, 0.0));
}

/// Labels that the training set has not.
void check_valid_labels(Runtime& runtime, const Config& config, std::int64_t outputs, const Assembly& parts) {
    if (parts.valid_set.rows() > 0 && parts.model->loss().kind == LossKind::cross_entropy) {
        const std::int64_t found = count_outputs(runtime.mesh.world(), config, parts.valid_set);
        if (found > parts.model->outputs())
            throw misfit("data.valid=" + config.data.valid + ": there is the label " +
                         std::to_string(found - 1) + ", but the training set has " + std::to_string(outputs) +
                         " classes");
    }
}

/// Weights, moments, average and position: those of the checkpoint, or the first ones.
void set_state(Runtime& runtime, const Config& config, const std::optional<ResumePoint>& resume,
               const std::optional<WeightSource>& first, Assembly& parts) {
    Arena& arena = parts.state->arena;
    if (resume) {
        require_fit(resume, [&] {
            load_checkpoint(runtime.mesh.world(), resume->source, parts.model->table(), arena,
                            Part::training);
        });
        parts.position = resume->meta.position;
        parts.position.scaler = parts.scaler->resume(parts.position.scaler, resume->scaled);
        if (arena.average && !resume->meta.has_average)
            runtime.log.info("train.ema: the average starts from the weights of " + resume->source);
        if (!config.run.init_from.empty())
            runtime.log.info("run.init_from=" + config.run.init_from + " is not read again: the run goes on");
    } else {
        Ops& ops = parts.runner->ops();
        if (first) {
            load_weights(runtime.mesh.world(), runtime.device, ops, *first, layers_of(config, parts),
                         parts.model->table(), arena);
            runtime.log.info("a new run from the weights of " + first->path);
        } else {
            parts.model->initialize(ops, arena.weights, config.run.seed);
        }
        if (arena.average)
            for (const Column::Piece& piece : arena.average->pieces())
                ops.copy(arena.weights.range(piece.range), arena.average->range(piece.range));
        parts.position.scaler = parts.scaler->start();
    }
    parts.runner->use(WeightKind::current);
}

void build_loaders(Runtime& runtime, const Config& config, Range my_lanes, Assembly& parts) {
    const int node_ranks = runtime.session.local_size();
    const std::int64_t outputs = parts.model->outputs();
    LoaderOptions options =
        loader_options(config, parts.plan, parts.normalization, my_lanes, outputs, node_ranks);
    set_augmentation(options, config);
    parts.train_loader = std::make_unique<Loader>(parts.train_set, options, &runtime.device);
    if (parts.valid_set.rows() == 0) return;
    options = loader_options(config, parts.valid_plan, parts.normalization, my_lanes, outputs, node_ranks);
    options.shuffle = Shuffle::none;
    parts.valid_loader = std::make_unique<Loader>(parts.valid_set, options, &runtime.device);
}

}  // namespace

void build_model(Runtime& runtime, const Config& config, std::int64_t outputs, Assembly& parts) {
    plan_steps(config, parts);
    const int ranks = runtime.mesh.data().size();
    const std::int64_t most_lanes = part_of({0, config.train.lanes}, ranks, 0).size();
    parts.pipeline = std::make_unique<Pipeline>(
        make_pipeline(runtime.mesh.pipeline(), config,
                      config.parallel.zero > 1 ? most_lanes : lanes_of_rank(runtime, config).size()));
    const std::int64_t largest = std::max(parts.plan.largest_lane(), parts.valid_plan.largest_lane());
    ModelOptions options{.max_samples = largest,
                         .compute = compute_type(config),
                         .group = TensorGroup(runtime.mesh.tensor()),
                         .sequence = config.parallel.sequence};
    deal_layers(config, outputs, options, parts);
    options.chunks = chunks_of(*parts.pipeline, parts.stages);
    parts.model = std::make_unique<Model>(model_description(config, parts.train_set.sample),
                                          loss_options(config), parts.train_set.sample, outputs, options);
    parts.optimizer = make_optimizer(optimizer_options(config));
    parts.schedule = make_schedule(config, parts.plan.steps());
    parts.scaler.emplace(scaler_options(config));
}

void build_step(Runtime& runtime, const Config& config, Assembly& parts) {
    const Range my_lanes = lanes_of_rank(runtime, config);
    const ParameterTable& table = parts.model->table();
    const LaneThreads threads = choose_threads(config, runtime.threads, my_lanes);
    TrainingStateOptions options = training_state_options(runtime, config, *parts.optimizer);
    options.reducer.lanes = parts.plan.lanes;
    options.reducer.my_lanes = my_lanes;
    options.reducer.workers = threads.workers;
    parts.state = std::make_unique<TrainingState>(runtime.mesh.data(), runtime.device, table, options);
    parts.runner = std::make_unique<LaneRunner>(runtime.device, *parts.model, *parts.state->weights,
                                                threads.workers, threads.threads, parts.pipeline->slots());

    const Sharding& sharding = parts.state->sharding;
    Communicator& norms = update_ranks(runtime.mesh, sharding);
    parts.update =
        std::make_unique<UpdatePass>(*parts.optimizer, table, optimizer_options(config),
                                     norms.size() > 1 ? &norms : nullptr, sharding.pieces().updated);
    parts.sums = std::make_unique<GradientSums>(table, runtime.mesh.pipeline(), sharding.pieces().updated);
    parts.step =
        std::make_unique<TrainStep>(StepParts{.world = runtime.mesh.world(),
                                              .norms = norms,
                                              .pipeline = *parts.pipeline,
                                              .runner = *parts.runner,
                                              .state = *parts.state,
                                              .update = *parts.update,
                                              .sums = *parts.sums},
                                    parts.plan.lanes,
                                    StepOptions{.clip_norm = config.train.clip_norm,
                                                .seed = config.run.seed,
                                                .reports = runtime.mesh.tensor().rank() == 0,
                                                .may_skip = parts.scaler->enabled(),
                                                .average_decay = config.train.ema,
                                                .graphs = records_steps(runtime, config, *parts.model)});
}

Assembly assemble(Runtime& runtime, Config& config, const std::optional<ResumePoint>& resume) {
    Assembly parts;
    const int ranks = runtime.mesh.data().size();
    config.train.lanes = choose_lanes(config, ranks);
    if (config.train.lanes > config.train.batch)
        runtime.log.warning("train.lanes=" + std::to_string(config.train.lanes) +
                            " is more than train.batch=" + std::to_string(config.train.batch) +
                            ": some lanes are always empty");
    if (config.train.lanes < ranks)
        runtime.log.warning(std::to_string(ranks - config.train.lanes) + " of " + std::to_string(ranks) +
                            " ranks are idle: train.lanes=" + std::to_string(config.train.lanes) +
                            (resume ? ", with which the run began" : ""));

    std::optional<WeightSource> first;
    const std::int64_t outputs = open_data(runtime, config, resume, parts, first);
    build_model(runtime, config, outputs, parts);
    check_samples(config, resume, parts);
    check_valid_labels(runtime, config, outputs, parts);
    build_step(runtime, config, parts);
    set_state(runtime, config, resume, first, parts);
    build_loaders(runtime, config, lanes_of_rank(runtime, config), parts);
    return parts;
}

}  // namespace trireme
