#include "trireme/train/evaluate.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "train/evaluate_set.hpp"
#include "train/experiment.hpp"
#include "train/run_directory.hpp"
#include "train/weight_source.hpp"
#include "trireme/base/error.hpp"
#include "trireme/checkpoint/checkpoint.hpp"
#include "trireme/comm/agree.hpp"
#include "trireme/io/hdf5.hpp"

namespace trireme {
namespace {

/// A model as a checkpoint describes it, its weights, and a data set for it.
struct SavedModel {
    SavedModel(Runtime& runtime, const Config& config, const std::string& checkpoint, const std::string& data,
               bool with_targets);

    CheckpointMeta meta;
    DatasetLayout set;
    EpochPlan plan;
    std::unique_ptr<Model> model;
    std::unique_ptr<Arena> arena;
    std::unique_ptr<WholeWeights> weights;
    std::unique_ptr<LaneRunner> runner;
    std::unique_ptr<Loader> loader;
};

/// What a checkpoint would say of weights that came without one.
CheckpointMeta meta_of(Runtime& runtime, const Config& config, const WeightSource& source,
                       const DatasetLayout& set) {
    const bool measured = config.data.normalize == "standard" && source.normalize != config.data.normalize;
    if (measured && config.data.train.empty())
        throw usage_error("data.normalize=standard: " + source.path +
                          " does not tell the statistics, and there is no data.train to take them from");
    const Normalization normalization = normalization_for(
        runtime, config, source,
        measured ? open_dataset(runtime.mesh.world(), config.data.train, dataset_options(config)) : set);
    CheckpointMeta meta;
    meta.input_shift = normalization.shift;
    meta.input_scale = normalization.scale;
    meta.sample = set.sample;
    meta.outputs = source.outputs;
    return meta;
}

SavedModel::SavedModel(Runtime& runtime, const Config& config, const std::string& checkpoint,
                       const std::string& data, bool with_targets) {
    Communicator& world = runtime.mesh.world();
    std::optional<WeightSource> source;  // of a file that holds nothing else
    if (!is_safetensors(checkpoint)) meta = read_checkpoint_meta(world, checkpoint);
    DatasetOptions wanted = dataset_options(config);
    if (!with_targets) wanted.y.clear();
    set = open_dataset(world, data, wanted);
    if (is_safetensors(checkpoint)) {
        source = read_weight_source(world, checkpoint, model_description(config, set.sample).layers);
        meta = meta_of(runtime, config, *source, set);
    }
    if (set.rows() > 0) check_compatible(set, meta.sample, data);
    check_kind(config, set);
    if (set.rows() > 0) check_targets(config, set, meta.outputs);
    const int ranks = world.size();
    plan = {set.rows(), config.train.batch, std::max<std::int64_t>(choose_lanes(config, ranks), ranks),
            false};
    const Range my_lanes = part_of({0, plan.lanes}, ranks, world.rank());

    model = std::make_unique<Model>(
        model_description(config, meta.sample), loss_options(config), meta.sample, meta.outputs,
        ModelOptions{.max_samples = plan.largest_lane(), .compute = compute_type(config)});
    arena = std::make_unique<Arena>(runtime.device, model->table(),
                                    ArenaOptions{.compute = compute_type(config)});
    const LaneThreads threads = choose_threads(config, runtime.threads, my_lanes);
    weights = std::make_unique<WholeWeights>(*arena);
    runner = std::make_unique<LaneRunner>(runtime.device, *model, *weights, threads.workers, threads.threads);
    if (source)
        load_weights(world, runtime.device, runner->ops(), *source,
                     model_description(config, meta.sample).layers, model->table(), *arena);
    else
        load_checkpoint(world, checkpoint, model->table(), *arena,
                        config.train.eval_ema ? Part::average : Part::weights);
    runner->use(WeightKind::current);

    LoaderOptions options = loader_options(config, plan, {meta.input_shift, meta.input_scale}, my_lanes,
                                           meta.outputs, runtime.session.local_size());
    options.shuffle = Shuffle::none;
    loader = std::make_unique<Loader>(set, options, &runtime.device);
}

/// Nothing else than what earlier predictions have left; an empty file holds nothing.
bool holds_predictions(const std::string& path) {
    if (std::filesystem::file_size(path) == 0) return true;
    try {
        const std::vector<std::string> names = io::File(path, io::Access::read).children("/");
        return !names.empty() && std::ranges::all_of(names, [](const std::string& name) {
            return name == "output" || name == "prediction";
        });
    } catch (const Error&) {  // no HDF5, or not whole
        return false;
    }
}

/// It may replace earlier predictions alone.
void check_output(const std::string& output, const std::string& checkpoint, const std::string& data) {
    namespace fs = std::filesystem;
    refuse_precious_output(output, checkpoint);
    for (const std::string& path : io::glob_paths(data))
        if (fs::exists(output) && fs::exists(path) && fs::equivalent(output, path))
            throw usage_error("--output=" + output + ": this is one of the files to predict for");
    if (fs::exists(output) && !holds_predictions(output))
        throw usage_error("--output=" + output +
                          ": there is such a file, and it holds something else than predictions");
}

}  // namespace

EvalResult evaluate_set(const EvaluationParts& parts, Loader& loader, const EpochPlan& plan) {
    LaneSums sums(parts.runner.device(), plan.lanes);
    loader.start(0, 0);
    for (std::int64_t step = 0; step < plan.steps(); ++step)
        evaluate_lanes(parts.runner, parts.pipeline, loader.next_step(), sums);
    sums.fetch();
    if (!parts.reports) sums.drop();
    sums.reduce(parts.ranks);
    EvalResult result;
    result.count = static_cast<std::int64_t>(sums.count());
    result.has_accuracy = parts.runner.model().loss().kind != LossKind::mse;
    const double count = std::max(1.0, sums.count());
    result.loss = sums.loss() / count;
    (result.has_accuracy ? result.accuracy : result.error) = sums.correct() / count;
    return result;
}

EvalResult evaluate_checkpoint(Runtime& runtime, const Config& config, const std::string& checkpoint,
                               const std::string& data) {
    SavedModel saved(runtime, config, checkpoint, data, true);
    Pipeline whole;
    return evaluate_set({runtime.mesh.world(), *saved.runner, whole}, *saved.loader, saved.plan);
}

std::int64_t predict_checkpoint(Runtime& runtime, const Config& config, const std::string& checkpoint,
                                const std::string& data, const std::string& output) {
    Communicator& world = runtime.mesh.world();
    agreed_by_one(world, [&] { check_output(output, checkpoint, data); });
    SavedModel saved(runtime, config, checkpoint, data, false);
    const std::int64_t rows = saved.set.rows(), width = saved.model->outputs();
    const Shape outputs_of_all =
        saved.model->output().batched(rows);  // [n, outputs], or [n, context, outputs]
    Shape predictions_of_all{rows};
    for (int axis = 1; axis + 1 < outputs_of_all.rank(); ++axis)
        predictions_of_all.push_back(outputs_of_all[axis]);
    const bool classes = saved.model->loss().kind == LossKind::cross_entropy;
    const std::string temporary = output + ".tmp";
    agreed_by_one(world, [&] {
        const std::filesystem::path folder = std::filesystem::path(output).parent_path();
        if (!folder.empty()) std::filesystem::create_directories(folder);
        io::File file(temporary, io::Access::create);
        file.create("/output", DType::f32, outputs_of_all);
        if (classes) file.create("/prediction", DType::i32, predictions_of_all);
        file.close();
    });
    {
        io::File file(temporary, io::Access::append, world);
        io::Dataset outputs = file.open("/output");
        std::optional<io::Dataset> predictions;
        if (classes) predictions = file.open("/prediction");
        std::vector<float> found;
        std::vector<std::int32_t> best;
        saved.loader->start(0, 0);
        for (std::int64_t step = 0; step < saved.plan.steps(); ++step) {
            for (const LaneBatch& batch : saved.loader->next_step()) {
                if (batch.samples() == 0) continue;
                LaneContext lane = saved.runner->context(0, batch);
                lane.training = false;
                const View out =
                    saved.model->forward(lane, batch.x);  // [n, outputs], or [n, context, outputs]
                found.resize(static_cast<std::size_t>(out.count()));
                runtime.device.copy_to_host(found.data(), out.data, out.bytes());
                outputs.write_rows(batch.positions, DType::f32, found.data());
                if (!classes) continue;
                best.clear();
                for (const float* row = found.data(); row < found.data() + out.count(); row += width)
                    best.push_back(static_cast<std::int32_t>(std::max_element(row, row + width) - row));
                predictions->write_rows(batch.positions, DType::i32, best.data());
            }
        }
        file.close();
    }
    world.barrier();
    agreed_by_one(world, [&] { std::filesystem::rename(temporary, output); });
    return rows;
}

}  // namespace trireme
