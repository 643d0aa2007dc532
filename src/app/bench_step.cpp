#include "app/bench_step.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "app/bench_rates.hpp"
#include "app/text.hpp"
#include "train/experiment.hpp"
#include "trireme/base/clock.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/base/recorder.hpp"
#include "trireme/comm/agree.hpp"
#include "trireme/ops/timed_ops.hpp"
#include "trireme/train/step.hpp"

namespace trireme::app {
namespace {

/// Random images and labels for the lanes of one rank.
class Batches {
public:
    Batches(Runtime& runtime, Ops& ops, const BenchModel& model, const StepBench& bench, Range my_lanes,
            std::int64_t all_lanes)
        : x_(runtime.device,
             static_cast<std::size_t>(my_lanes.size() * bench.samples * model.sample.count()) * 4) {
        const Shape target = model.tokens ? model.sample : Shape{};
        const std::int64_t per_lane = bench.samples * model.sample.count();
        if (model.tokens)
            x_ = classes(runtime.device, my_lanes.size() * per_lane, 7, model.classes);
        else
            ops.fill_uniform(RandomStream(1, Purpose::init, 1), 0, 0, 1,
                             view_of(x_.as<float>(), Shape{my_lanes.size() * per_lane}));
        labels_ = classes(runtime.device, my_lanes.size() * bench.samples * target.count(), 1, model.classes);
        for (std::int64_t lane = my_lanes.begin; lane < my_lanes.end; ++lane) {
            const std::int64_t i = lane - my_lanes.begin;
            LaneBatch batch;
            batch.lane = lane;
            batch.positions = {lane * bench.samples, (lane + 1) * bench.samples};
            batch.first_in_batch = batch.positions.begin;
            batch.batch_samples = all_lanes * bench.samples;
            batch.x = {x_.as<float>() + i * per_lane, model.tokens ? DType::i32 : DType::f32,
                       model.sample.batched(bench.samples)};
            const Shape targets = target.batched(bench.samples);
            batch.y = view_of(labels_.as<std::int32_t>() + i * targets.count(), targets);
            lanes_.push_back(batch);
        }
    }
    std::span<const LaneBatch> lanes() const { return lanes_; }

private:
    /// Multiples of a number, modulo the classes.
    static Buffer classes(Device& device, std::int64_t count, std::int64_t factor, std::int64_t classes) {
        std::vector<std::int32_t> values(static_cast<std::size_t>(count));
        for (std::int64_t i = 0; i < count; ++i)
            values[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i * factor % classes);
        Buffer buffer(device, values.size() * sizeof(std::int32_t));
        device.copy_from_host(buffer.data(), values.data(), buffer.bytes());
        return buffer;
    }

    Buffer x_, labels_;
    std::vector<LaneBatch> lanes_;
};

std::string row_time(double seconds) {
    return seconds < 0.01 ? fixed(1e6 * seconds, 1) + " us" : fixed(1e3 * seconds, 2) + " ms";
}

/// Seconds of the parts of one step.
struct Parts {
    double products = 0, others = 0, updates = 0, reduction = 0, stages = 0, step = 0, rest = 0;
};

/// The step itself, taken apart: medians over repetitions, of the slowest rank.
class StepMeasurement {
public:
    StepMeasurement(Runtime& runtime, const Config& config, const Model& model, Pipeline& pipeline,
                    Range my_lanes, std::int64_t all_lanes)
        : world_(runtime.mesh.world()),
          threads_(choose_threads(config, runtime.threads, my_lanes)),
          optimizer_(make_optimizer(optimizer_options(config))),
          state_(runtime.mesh.data(), runtime.device, model.table(),
                 state_options(runtime, config, all_lanes, my_lanes)),
          update_(*optimizer_, model.table(), optimizer_options(config),
                  &update_ranks(runtime.mesh, state_.sharding), state_.sharding.pieces().updated),
          runner_(runtime.device, model, *state_.weights, threads_.workers, threads_.threads,
                  pipeline.slots(),
                  [this](std::unique_ptr<Ops> ops) {
                      return make_timed_ops(std::move(ops), times_.emplace_back());
                  }),
          sums_(model.table(), runtime.mesh.pipeline(), state_.sharding.pieces().updated),
          step_({.world = world_,
                 .norms = update_ranks(runtime.mesh, state_.sharding),
                 .pipeline = pipeline,
                 .runner = runner_,
                 .state = state_,
                 .update = update_,
                 .sums = sums_},
                all_lanes,
                {.clip_norm = config.train.clip_norm,
                 .reports = runtime.mesh.tensor().rank() == 0,
                 .may_skip = scaler_options(config).enabled,
                 .average_decay = config.train.ema,
                 .graphs = records_steps(runtime, config, model)}) {
        model.initialize(runner_.ops(), state_.arena.weights, 1);
        runner_.use(WeightKind::current);
    }

    Parts run(std::span<const LaneBatch> lanes, std::int64_t batch_samples) {
        for (int warm = 0; warm < 3; ++warm) one(lanes, batch_samples);
        world_.barrier();
        const double estimate = all_reduce_value(world_, one(lanes, batch_samples).step, Reduce::max);
        const int repetitions = std::clamp(static_cast<int>(5.0 / estimate), 9, 2000);
        std::vector<Parts> all;
        for (int i = 0; i < repetitions; ++i) all.push_back(one(lanes, batch_samples));
        const auto median = [&](double Parts::*part) {
            std::nth_element(all.begin(), all.begin() + repetitions / 2, all.end(),
                             [&](const Parts& x, const Parts& y) { return x.*part < y.*part; });
            return all_reduce_value(world_, all[static_cast<std::size_t>(repetitions / 2)].*part,
                                    Reduce::max);
        };
        return {median(&Parts::products),  median(&Parts::others), median(&Parts::updates),
                median(&Parts::reduction), median(&Parts::stages), median(&Parts::step),
                median(&Parts::rest)};
    }

    Ops& ops() { return runner_.ops(); }
    const LaneThreads& threads() const { return threads_; }
    /// Bytes that the optimizer moves for each weight: the gradient in; weight, moments and average in and
    /// out; the rounded copy out. Where ranks share the work, each one's share.
    double update_bytes() const {
        const Arena& arena = state_.arena;
        const std::size_t columns = 1 + arena.states.size() + (arena.average ? 1 : 0);
        const int sharers = state_.sharding.stage() > 0 ? state_.sharding.ranks() : 1;
        return static_cast<double>(4 * (1 + 2 * columns) + (arena.low ? size_of(arena.low->dtype()) : 0)) /
               sharers;
    }

private:
    TrainingStateOptions state_options(Runtime& runtime, const Config& config, std::int64_t all_lanes,
                                       Range my_lanes) const {
        TrainingStateOptions options = training_state_options(runtime, config, *optimizer_);
        options.reducer.lanes = all_lanes;
        options.reducer.my_lanes = my_lanes;
        options.reducer.workers = threads_.workers;
        return options;
    }
    /// Seconds that this rank has spent on communication that nothing hid.
    static double exposed() {
        const ActivityTimes times = Recorder::times_here();
        return at(times, Activity::communication) + at(times, Activity::waiting);
    }
    Parts one(std::span<const LaneBatch> lanes, std::int64_t batch_samples) {
        for (OpTimes& times : times_) times = {};
        const double before = exposed();
        const Stopwatch watch;
        const StepResult result = step_.run(
            lanes, {.lr = 1e-5, .updates = updates_, .attempt = updates_, .batch_samples = batch_samples});
        ++updates_;
        Parts parts{.reduction = exposed() - before - result.pipeline_seconds,
                    .stages = result.pipeline_seconds,
                    .step = watch.seconds()};
        for (const OpTimes& times : times_) {  // workers run side by side
            parts.products += times.products / threads_.workers;
            parts.others += times.others / threads_.workers;
            parts.updates += times.updates / threads_.workers;
        }
        parts.rest = parts.step - parts.products - parts.updates - parts.reduction - parts.stages;
        return parts;
    }

    Communicator& world_;
    LaneThreads threads_;
    std::deque<OpTimes> times_;
    std::unique_ptr<Optimizer> optimizer_;
    TrainingState state_;
    UpdatePass update_;
    LaneRunner runner_;
    GradientSums sums_;
    TrainStep step_;
    std::int64_t updates_ = 0;
};

/// What this machine could do at best: each product and convolution alone, everything else at the rate of a
/// copy or of an all-reduce. The slowest rank's. `update_bytes`: what the optimizer moves for each weight.
Parts limits_of(Runtime& runtime, Ops& ops, const Model& model, const StepBench& bench, double update_bytes,
                double copy) {
    const Work work = model.work(bench.samples);
    const auto lanes = static_cast<double>(bench.lanes);
    // Other stages of a pipeline have other products: those that have the same measure together.
    Communicator& world = runtime.mesh.world();
    const auto alike = world.split(runtime.mesh.pipeline().rank(), world.rank());
    Parts limit;
    for (const Work::Gemm& gemm : work.gemms)
        limit.products += lanes * product_seconds(*alike, runtime, ops, gemm, work.compute);
    for (const Work::Conv& conv : work.convs)
        limit.products += lanes * product_seconds(*alike, runtime, ops, conv, work.compute);
    for (const Work::AttentionPass& pass : work.attentions)
        limit.products += lanes * product_seconds(*alike, runtime, ops, pass, work.compute);
    limit.others = lanes * work.bytes / copy;
    limit.updates = update_bytes * static_cast<double>(model.table().local_weight_count()) / copy;
    if (runtime.mesh.data().size() > 1)
        limit.reduction = reduce_seconds(runtime.mesh.data(), runtime, model.table().arena_size());
    for (double Parts::*part : {&Parts::products, &Parts::others, &Parts::updates, &Parts::reduction})
        limit.*part = all_reduce_value(world, limit.*part, Reduce::max);
    limit.step = limit.products + limit.others + limit.updates + limit.reduction;
    return limit;
}

}  // namespace

BenchModel bench_model(const StepBench& bench, const Config& config) {
    BenchModel model;
    if (bench.model.starts_with("mlp:")) {
        PresetOptions options;
        std::vector<std::int64_t> sizes;
        for (const std::string& part : split(bench.model.substr(4), '-'))
            sizes.push_back(parse_int(part).value_or(0));
        for (const std::int64_t size : sizes)
            if (size < 1 || sizes.size() < 2)
                throw usage_error("--model=" + bench.model + ": expected sizes as in mlp:784-512-512-10");
        model.sample = {sizes.front()};
        model.classes = sizes.back();
        options.widths.assign(sizes.begin() + 1, sizes.end() - 1);
        model.layers = preset_layers("mlp", model.sample, options);
    } else if (bench.model == "gpt") {
        Config described = config;
        described.model.arch = "gpt";
        model.sample = {config.model.context};
        model.classes = config.model.vocab > 0 ? config.model.vocab : 256;
        model.layers = model_description(described, model.sample).layers;
        model.tokens = true;
    } else {
        model.sample = bench.input;
        model.classes = bench.classes;
        model.layers = preset_layers(bench.model, model.sample, {});
    }
    return model;
}

void bench_step(Runtime& runtime, const Config& config, const StepBench& bench) {
    Communicator& world = runtime.mesh.world();
    const BenchModel shape = bench_model(bench, config);
    Communicator& data = runtime.mesh.data();
    const std::int64_t all_lanes = bench.lanes * data.size(), batch = all_lanes * bench.samples;
    const Range my_lanes = part_of({0, all_lanes}, data.size(), data.rank());
    const ModelDescription description{shape.layers, "cross_entropy", "kaiming"};
    ModelOptions options{.max_samples = bench.samples,
                         .compute = compute_type(config),
                         .group = TensorGroup(runtime.mesh.tensor())};
    Pipeline pipeline = make_pipeline(runtime.mesh.pipeline(), config, my_lanes.size());
    options.chunks =
        chunks_of(pipeline, cut_into_stages(layer_costs(description, shape.sample, shape.classes, options),
                                            pipeline.shape().stages()));
    const Model model(description, {}, shape.sample, shape.classes, options);

    StepMeasurement measurement(runtime, config, model, pipeline, my_lanes, all_lanes);
    Ops& ops = measurement.ops();
    const Batches batches(runtime, ops, shape, bench, my_lanes, all_lanes);
    const Parts found = measurement.run(batches.lanes(), batch);
    const double copy = copy_rate(runtime, ops);
    const Parts limit = limits_of(runtime, ops, model, bench, measurement.update_bytes(), copy);
    if (world.rank() != 0) return;

    // Where verbs return before they are done, the host knows the time of whole steps alone.
    const bool apart = runtime.device.host_memory();
    const auto part_time = [apart](double seconds) { return apart ? row_time(seconds) : ""; };
    Table table("<>>");
    table.add({"", "at the limit", "in the step"});
    table.add({"products and convolutions", row_time(limit.products), part_time(found.products)});
    table.add({"other layers, loss (" + bytes_text(limit.others * copy) + ")", row_time(limit.others),
               part_time(found.others)});
    table.add({"optimizer (" + bytes_text(limit.updates * copy) + ")", row_time(limit.updates),
               part_time(found.updates)});
    table.add({"reduction (" + bytes_text(4.0 * static_cast<double>(model.table().arena_size())) + ")",
               row_time(limit.reduction), part_time(found.reduction)});
    if (pipeline.shape().stages() > 1) {
        const bool seen = !runtime.mesh.pipeline().on_streams();
        table.add({"waiting for other stages", "", seen ? row_time(found.stages) : ""});
    }
    table.add({"step", row_time(limit.step), row_time(found.step)});
    print("step of " + bench.model + ", " + config.train.precision + ", " +
          count_text(bench.samples, "sample") + " a lane, " + count_text(bench.lanes, "lane") + " a rank, " +
          count_text(world.size(), "rank") + " x " + count_text(measurement.threads().threads, "thread") +
          ", copy at " + fixed(copy / 1e9, 1) + " GB/s\n" + table.text() + "  ratio to the limit " +
          fixed(found.step / limit.step, 3) +
          (apart ? "; neither product nor optimizer nor reduction: " + row_time(found.rest) : "") + "; " +
          grouped(static_cast<std::int64_t>(static_cast<double>(batch) / found.step)) + " samples/s\n");
}

}  // namespace trireme::app
