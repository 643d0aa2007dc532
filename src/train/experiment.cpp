#include "train/experiment.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/comm/agree.hpp"

namespace trireme {

LossOptions loss_options(const Config& config) {
    return {.kind = loss_from(config.model.loss),
            .label_smoothing = static_cast<float>(config.train.label_smoothing),
            .ignore_index = static_cast<std::int32_t>(config.train.ignore_index)};
}

OptimizerOptions optimizer_options(const Config& config) {
    const std::vector<double> usual = {0.9, config.optim.name == "lion" ? 0.99 : 0.999};
    const std::vector<double>& betas = config.optim.betas.empty() ? usual : config.optim.betas;
    std::vector<ParameterRule> rules;
    for (const std::string& line : config.optim.rules) rules.push_back(parse_rule(line));
    return {.name = config.optim.name,
            .lr = config.optim.lr,
            .beta1 = betas[0],
            .beta2 = betas[1],
            .eps = config.optim.eps,
            .amsgrad = config.optim.amsgrad,
            .momentum = config.optim.momentum,
            .dampening = config.optim.dampening,
            .nesterov = config.optim.nesterov,
            .trust = config.optim.trust,
            .weight_decay = config.optim.weight_decay,
            .rules = std::move(rules)};
}

ScalerOptions scaler_options(const Config& config) {
    return {.enabled = config.train.precision == "fp16",
            .init = config.scaler.init,
            .growth = config.scaler.growth,
            .backoff = config.scaler.backoff,
            .interval = config.scaler.interval,
            .least = config.scaler.min,
            .most_skips = config.scaler.max_skips};
}

bool overlaps(Runtime& runtime, const Config& config) {
    if (config.parallel.overlap != "auto") return config.parallel.overlap == "on";
    if (runtime.device.has_streams()) return runtime.mesh.data().on_streams();
    // All ranks or none, since those that do reduce in a group of their own; nodes may differ in their cores.
    return all_reduce_value(runtime.mesh.world(), runtime.threads, Reduce::min) > 1;
}

TrainingStateOptions training_state_options(Runtime& runtime, const Config& config,
                                            const Optimizer& optimizer) {
    return {.stage = static_cast<int>(config.parallel.zero),
            .bucket_bytes = static_cast<std::int64_t>(config.parallel.bucket_mb * (1 << 20)),
            .overlap = overlaps(runtime, config),
            .eval_average = config.train.eval_ema,
            .arena = {.state_names = optimizer.state_names(),
                      .compute = compute_type(config),
                      .average = config.train.ema > 0},
            .reducer = {.reproducible = config.train.reduction == "reproducible",
                        .wire = config.parallel.reduce_dtype == "bf16" ? DType::bf16 : DType::f32}};
}

DType compute_type(const Config& config) {
    return config.train.precision == "bf16"   ? DType::bf16
           : config.train.precision == "fp16" ? DType::f16
                                              : DType::f32;
}

DatasetOptions dataset_options(const Config& config) {
    return {
        .x = config.data.x, .y = config.data.y, .kind = config.data.kind, .context = config.model.context};
}

Config config_of(const std::string& checkpoint, const CheckpointMeta& meta) {
    try {
        return config_from_text(meta.config, checkpoint + ":/config");
    } catch (const Error& error) {
        throw Error(Status::bad_data, error.what(), Scope::all_ranks);
    }
}

ModelDescription model_description(const Config& config, const Shape& sample) {
    ModelDescription description{
        .layers = config.model.layers, .loss = config.model.loss, .init = config.model.init};
    if (!description.layers.empty()) return description;
    PresetOptions preset{.widths = config.model.width,
                         .channels = config.model.channels,
                         .activation = config.model.activation,
                         .dropout = config.model.dropout,
                         .batchnorm = config.model.batchnorm,
                         .layers = config.model.blocks,
                         .d_model = config.model.d_model,
                         .heads = config.model.heads,
                         .kv_heads = config.model.kv_heads,
                         .ffn = config.model.ffn,
                         .vocab = config.model.vocab,
                         .patch = config.model.patch,
                         .norm = config.model.norm,
                         .ffn_kind = config.model.ffn_kind,
                         .positions = config.model.positions,
                         .tied = config.model.tied};
    if (preset.widths.size() == 1)
        preset.widths.assign(static_cast<std::size_t>(config.model.depth), preset.widths[0]);
    description.layers = preset_layers(config.model.arch, sample, preset);
    return description;
}

Schedule make_schedule(const Config& config, std::int64_t steps_per_epoch) {
    ScheduleOptions options{.name = config.schedule.name, .min_lr = config.schedule.min_lr};
    options.base_lr =
        config.optim.lr * lr_scale(config.optim.scale_lr, config.train.batch, config.optim.base_batch);
    options.horizon = config.schedule.steps > 0 ? config.schedule.steps
                      : config.train.epochs > 0 ? config.train.epochs * steps_per_epoch
                                                : config.train.max_steps;
    options.warmup = config.schedule.warmup_steps > 0
                         ? config.schedule.warmup_steps
                         : std::llround(config.schedule.warmup_epochs * static_cast<double>(steps_per_epoch));
    options.step_size = config.schedule.step_size > 0 ? config.schedule.step_size
                                                      : std::max<std::int64_t>(1, options.horizon / 3);
    options.gamma = config.schedule.gamma;
    options.power = config.schedule.power;
    options.cycle =
        config.schedule.cycle > 0 ? config.schedule.cycle : std::max<std::int64_t>(1, options.horizon);
    options.cycle_factor = config.schedule.cycle_factor;
    options.start_factor = config.schedule.start_factor;
    options.final_factor = config.schedule.final_factor;
    options.patience = config.schedule.patience;
    options.threshold = config.schedule.threshold;
    options.cooldown = config.schedule.cooldown;
    return Schedule(options);
}

std::int64_t choose_lanes(const Config& config, int ranks) {
    if (config.train.lanes > 0) return config.train.lanes;
    // A pipeline needs several lanes on their way at once: with four for each stage, a fifth of the time is
    // lost to filling and emptying it. More lanes than samples would not help.
    const std::int64_t in_flight =
        config.parallel.pipeline > 1
            ? std::clamp<std::int64_t>(config.train.batch / ranks, 1, 4 * config.parallel.pipeline)
            : 1;
    const std::int64_t base = config.train.reduction == "reproducible" ? 8 : ranks * in_flight;
    if (config.train.lane_batch <= 0) return base;
    // The smallest multiple of the base whose largest lane holds at most lane_batch samples.
    const std::int64_t needed = (config.train.batch + config.train.lane_batch - 1) / config.train.lane_batch;
    return base * std::max<std::int64_t>(1, (needed + base - 1) / base);
}

LaneThreads choose_threads(const Config& config, int rank_threads, Range my_lanes) {
    if (config.train.reduction != "reproducible")
        return {1, config.train.lane_threads > 0 ? config.train.lane_threads : rank_threads};
    const int threads = config.train.lane_threads > 0 ? config.train.lane_threads : 1;
    const auto side_by_side = std::min<std::int64_t>(my_lanes.size(), rank_threads / threads);
    return {static_cast<int>(std::max<std::int64_t>(1, side_by_side)), threads};
}

Pipeline make_pipeline(Communicator& ranks, const Config& config, std::int64_t lanes) {
    const PipelineSchedule schedule = pipeline_schedule_from(config.parallel.schedule);
    const bool interleaved = schedule == PipelineSchedule::interleaved && ranks.size() > 1;
    const std::int64_t chunks = !interleaved ? 1 : config.parallel.chunks > 0 ? config.parallel.chunks : 2;
    return Pipeline(ranks, schedule, static_cast<int>(chunks), lanes);
}

Communicator& update_ranks(Mesh& mesh, const Sharding& sharding) {
    return sharding.stage() > 0 ? mesh.world() : mesh.model();
}

namespace {

/// Why steps are not the same each time, on all ranks; empty: they are.
std::string obstacle_to_recording(Runtime& runtime, const Config& config, const Model& model) {
    if (!runtime.device.has_streams()) return "the device is a CPU";
    if (model.random()) return "dropout draws other numbers in every step";
    if (config.train.lanes > 0 && config.train.lanes < runtime.mesh.data().size())
        return "ranks without lanes would record other steps than the rest";
    Communicator& world = runtime.mesh.world();
    return world.size() > 1 && !world.on_streams() ? "collectives go through " + world.backend() : "";
}

/// What NCCL's guide warns of: possible, but not done unasked before hardware has shown it.
bool doubtful_to_record(Runtime& runtime) {
    Mesh& mesh = runtime.mesh;
    return runtime.session.devices() > 1 || mesh.pipeline().size() > 1 ||
           (mesh.tensor().size() > 1 && mesh.data().size() > 1);
}

}  // namespace

bool records_steps(Runtime& runtime, const Config& config, const Model& model) {
    if (config.run.cuda_graph == "off") return false;
    const std::string obstacle = obstacle_to_recording(runtime, config, model);
    const bool asked = config.run.cuda_graph == "on";
    if (asked && !obstacle.empty())
        throw usage_error("run.cuda_graph=on: " + obstacle + "; expected auto or off");
    return obstacle.empty() && (asked || !doubtful_to_record(runtime));
}

std::vector<Range> chunks_of(const Pipeline& pipeline, const std::vector<Range>& stages) {
    std::vector<Range> chunks;
    for (int chunk = 0; chunk < pipeline.chunks(); ++chunk)
        chunks.push_back(stages[static_cast<std::size_t>(pipeline.stage(chunk))]);
    return chunks;
}

LoaderOptions loader_options(const Config& config, const EpochPlan& plan, const Normalization& normalization,
                             Range my_lanes, std::int64_t outputs, int ranks_on_node) {
    const bool classes = loss_from(config.model.loss) == LossKind::cross_entropy;
    return {.plan = plan,
            .my_lanes = my_lanes,
            .shuffle = shuffle_from(config.data.shuffle),
            .seed = config.run.seed,
            .chunk = config.data.chunk,
            .class_labels = classes,
            .classes = classes ? outputs : 0,
            .unit_targets = loss_from(config.model.loss) == LossKind::bce,
            .ignore_index = config.train.ignore_index,
            .normalization = normalization,
            .cache = config.data.cache,
            .prefetch = config.data.prefetch,
            .ranks_on_node = ranks_on_node};
}

void set_augmentation(LoaderOptions& options, const Config& config) {
    if (config.data.augment == "none") return;
    for (const std::string& word : split(config.data.augment, ' ')) {
        const auto pixels = word.starts_with("crop=") ? parse_int(word.substr(5)) : std::nullopt;
        if (word == "flip" && !options.flip)
            options.flip = true;
        else if (pixels && *pixels >= 1 && *pixels <= 64 && options.crop == 0)
            options.crop = static_cast<int>(*pixels);
        else if (!word.empty())
            throw usage_error("data.augment=" + config.data.augment +
                              ": expected none, or `crop=<1 to 64 pixels>` and `flip`");
    }
}

std::int64_t count_outputs(Communicator& comm, const Config& config, const DatasetLayout& layout) {
    if (loss_from(config.model.loss) == LossKind::cross_entropy)
        return count_classes(comm, layout, config.train.ignore_index);
    return layout.target.count();
}

void check_kind(const Config& config, const DatasetLayout& layout) {
    const std::string first = model_description(config, layout.sample).layers.front();
    const bool embeds = LayerSpec(first, 0).kind() == "embedding";
    const std::string model =
        config.model.layers.empty() ? "model.arch=" + config.model.arch : "layer = " + first;
    const std::string held =
        ", but " + layout.shards.front().path + " holds " + (layout.is_tokens() ? "tokens" : "samples");
    if (!layout.is_tokens()) {
        if (embeds) throw usage_error(model + " takes tokens" + held);
        return;
    }
    if (config.data.normalize != "none")
        throw usage_error("data.normalize=" + config.data.normalize + ": expected none" + held);
    if (config.data.augment != "none")
        throw usage_error("data.augment=" + config.data.augment + ": expected none" + held);
    if (config.model.loss != "cross_entropy")
        throw usage_error("model.loss=" + config.model.loss + ": expected cross_entropy" + held);
    if (!embeds) throw usage_error(model + " takes samples" + held + "; expected gpt, or an embedding first");
}

void check_compatible(const DatasetLayout& layout, const Shape& sample, const std::string& what) {
    if (layout.rows() == 0)
        throw Error(Status::bad_data,
                    what + ": there are no samples in " + layout.shards.front().path +
                        (layout.shards.size() > 1 ? " and the other files" : ""),
                    Scope::all_ranks);
    if (!(layout.sample == sample))
        throw Error(Status::bad_data,
                    layout.shards.front().path + ": " + layout.x_name + ": expected samples of " +
                        sample.text() + " as the model was made for, found " + layout.sample.text(),
                    Scope::all_ranks);
}

void check_targets(const Config& config, const DatasetLayout& layout, std::int64_t outputs) {
    if (loss_from(config.model.loss) == LossKind::cross_entropy || layout.target.count() == outputs) return;
    throw Error(Status::bad_data,
                layout.shards.front().path + ":" + layout.y_name + ": expected " + std::to_string(outputs) +
                    " numbers a sample as the model was made for, found " +
                    std::to_string(layout.target.count()),
                Scope::all_ranks);
}

}  // namespace trireme
