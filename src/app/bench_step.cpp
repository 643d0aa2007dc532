#include "app/bench_step.hpp"

#include <memory>
#include <vector>

#include "app/bench_rates.hpp"
#include "app/text.hpp"
#include "train/experiment.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/comm/agree.hpp"
#include "trireme/train/step.hpp"

namespace trireme::app {
namespace {

/// Random images and labels for the lanes of one rank.
class Batches {
public:
    Batches(Runtime& runtime, Ops& ops, const BenchModel& model, const StepBench& bench, Range my_lanes,
            std::int64_t all_lanes)
        : x_(runtime.device,
             static_cast<std::size_t>(my_lanes.size() * bench.samples * model.sample.count()) * 4),
          labels_(static_cast<std::size_t>(my_lanes.size() * bench.samples)) {
        const std::int64_t per_lane = bench.samples * model.sample.count();
        ops.fill_uniform(RandomStream(1, Purpose::init, 1), 0, 0, 1,
                         view_of(x_.as<float>(), Shape{my_lanes.size() * per_lane}));
        for (std::size_t i = 0; i < labels_.size(); ++i)
            labels_[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) % model.classes);
        for (std::int64_t lane = my_lanes.begin; lane < my_lanes.end; ++lane) {
            const std::int64_t i = lane - my_lanes.begin;
            LaneBatch batch;
            batch.lane = lane;
            batch.positions = {lane * bench.samples, (lane + 1) * bench.samples};
            batch.first_in_batch = batch.positions.begin;
            batch.batch_samples = all_lanes * bench.samples;
            batch.x = view_of(x_.as<float>() + i * per_lane, model.sample.batched(bench.samples));
            batch.y = view_of(labels_.data() + i * bench.samples, Shape{bench.samples});
            lanes_.push_back(batch);
        }
    }
    std::span<const LaneBatch> lanes() const { return lanes_; }

private:
    Buffer x_;
    std::vector<std::int32_t> labels_;
    std::vector<LaneBatch> lanes_;
};

std::string row_time(double seconds) {
    return seconds < 0.01 ? fixed(1e6 * seconds, 1) + " us" : fixed(1e3 * seconds, 2) + " ms";
}

}  // namespace

BenchModel bench_model(const StepBench& bench) {
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
    } else {
        model.sample = bench.input;
        model.classes = bench.classes;
        model.layers = preset_layers(bench.model, model.sample, {});
    }
    return model;
}

void bench_step(Runtime& runtime, const Config& config, const StepBench& bench) {
    Communicator& world = runtime.mesh.world();
    const BenchModel shape = bench_model(bench);
    const std::int64_t all_lanes = bench.lanes * world.size();
    const Range my_lanes = part_of({0, all_lanes}, world.size(), world.rank());

    const Model model(ModelDescription{shape.layers, "cross_entropy", "kaiming"}, {}, shape.sample,
                      shape.classes, bench.samples);
    const auto optimizer = make_optimizer(optimizer_options(config));
    Arena arena(runtime.device, model.table(), optimizer->state_names());
    const LaneThreads threads = choose_threads(config, runtime.threads, my_lanes);
    LaneRunner runner(runtime.device, model, arena.weights, threads.workers, threads.threads);
    const bool overlap = config.parallel.overlap == "on";
    const auto reducer =
        make_reducer(world, runtime.device, model.table(), arena,
                     {.lanes = all_lanes,
                      .my_lanes = my_lanes,
                      .workers = threads.workers,
                      .reproducible = config.train.reduction == "reproducible",
                      .overlap = overlap,
                      .bucket_bytes = static_cast<std::int64_t>(config.parallel.bucket_mb * (1 << 20))});
    TrainStep step(world, runner, arena, *optimizer, *reducer, all_lanes, {config.train.clip_norm, 1});
    Ops& ops = runner.ops();
    model.initialize(ops, arena.weights, 1);
    const Batches batches(runtime, ops, shape, bench, my_lanes, all_lanes);

    std::int64_t updates = 0;
    const double measured = seconds_of(
        world,
        [&] {
            step.run(batches.lanes(), {.lr = 1e-5,
                                       .updates = updates,
                                       .attempt = updates,
                                       .batch_samples = all_lanes * bench.samples});
            ++updates;
        },
        6.0);

    // The limits: each product and convolution alone, everything else at the rate of a copy or of an
    // all-reduce.
    const Work work = model.work(bench.samples);
    double products = 0;
    for (const Work::Gemm& gemm : work.gemms) products += product_seconds(runtime, ops, gemm);
    for (const Work::Conv& conv : work.convs) products += product_seconds(runtime, ops, conv);
    const double sweep = sweep_seconds(runtime, ops, work);
    const double copy = copy_rate(runtime, ops);
    const auto lanes = static_cast<double>(bench.lanes);
    const double moved = lanes * work.bytes / copy;
    // Gradient in; weight and every moment in and out.
    const auto words = static_cast<double>(1 + 2 * (1 + optimizer->state_names().size()));
    const double update = 4 * words * static_cast<double>(model.table().weight_count()) / copy;
    const UpdatePass pass(*optimizer, model.table());
    const double update_alone =
        seconds_of(world, [&] { pass.apply(ops, arena, {.lr = 1e-9, .step = ++updates}, true); });
    const double reduction = world.size() > 1 ? reduce_seconds(runtime, model.table().arena_size()) : 0;
    const double roofline = lanes * products + moved + update + reduction;
    if (world.rank() != 0) return;

    Table table("<>>");
    table.add({"", "at the limit", "measured alone"});
    table.add({"products and convolutions", row_time(lanes * products), row_time(lanes * sweep)});
    table.add({"activations, norms (" + bytes_text(lanes * work.bytes) + ")", row_time(moved), ""});
    table.add({"optimizer (" + bytes_text(update * copy) + ")", row_time(update), row_time(update_alone)});
    table.add({"reduction (" + bytes_text(4.0 * static_cast<double>(model.table().arena_size())) + ")",
               row_time(reduction), row_time(reduction)});
    table.add({"step", row_time(roofline), row_time(measured)});
    print("step of " + bench.model + ", " + std::to_string(bench.samples) + " samples a lane, " +
          std::to_string(bench.lanes) + " lane" + (bench.lanes > 1 ? "s" : "") + " a rank, " +
          std::to_string(world.size()) + " rank" + (world.size() > 1 ? "s" : "") + " x " +
          std::to_string(threads.threads) + " thread" + (threads.threads > 1 ? "s" : "") + ", copy at " +
          fixed(copy / 1e9, 1) + " GB/s\n" + table.text() + "  ratio to the roofline " +
          fixed(measured / roofline, 3) + ", rest " +
          row_time(measured - lanes * sweep - update_alone - reduction) + ", " +
          grouped(static_cast<std::int64_t>(static_cast<double>(all_lanes * bench.samples) / measured)) +
          " samples/s\n");
}

}  // namespace trireme::app
