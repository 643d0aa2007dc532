// Whole trainings on GPUs, beside the same ones on the CPU: with a GPU for each rank, or the emulation's.
#include <cmath>
#include <cstdlib>

#include "support/catch.hpp"
#include "support/meshes.hpp"
#include "support/small_models.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

/// With fewer GPUs than ranks they share them, with their collectives through host memory.
bool sharing() {
    return std::getenv("TRIREME_TEST_SHARE_GPU") != nullptr;
}

/// Ten steps.
Run run_of(const TempDir& folder, const SmallModel& model, const Keys& more = {}) {
    const Keys keys = {{"train.max_steps", "10"},
                       {"train.epochs", "3"},
                       {"optim.lr", "0.05"},
                       {"run.device", "cuda"},
                       {"run.share_gpu", sharing() ? "true" : "false"}};
    return small_run(folder, model, keys).with(more);
}

const Keys on_cpu = {{"run.device", "cpu"}};

/// Both run; losses agree to 1e-5 at first and to `later` in all ten steps.
void require_alike(const Run& run, int ranks, double first, double later) {
    const std::string dir = run.dir().string() + std::to_string(ranks);
    const Run gpu = run.at(dir), cpu = run.with(on_cpu).at(dir + "-cpu");
    const Result result = gpu.expect(0, ranks);
    REQUIRE_THAT(result.err, contains(" on cuda"));
    cpu.expect(0, ranks);
    const std::vector<double> found = gpu.column("step", "loss"), wanted = cpu.column("step", "loss");
    REQUIRE(found.size() == 10);
    REQUIRE(found.front() == Approx(wanted.front()).epsilon(first));
    for (std::size_t i = 0; i < found.size(); ++i) REQUIRE(found[i] == Approx(wanted[i]).epsilon(later));
    REQUIRE(gpu.column("valid", "loss").back() == Approx(cpu.column("valid", "loss").back()).epsilon(later));
    REQUIRE(gpu.column("valid", "accuracy").size() == cpu.column("valid", "accuracy").size());
}

}  // namespace

TEST_CASE("a training on GPUs is that on CPUs: fp32", "[cuda-runs]") {
    const TempDir folder;
    const int ranks = GENERATE(0, 2, 4);
    INFO(ranks << " ranks");
    require_alike(run_of(folder, small_mlp()), ranks, 1e-5, 1e-4);
    require_alike(run_of(folder, small_cnn()), ranks, 1e-5, 1e-4);
}

TEST_CASE("a training on GPUs is that on CPUs: clipping, lanes, averages, small buckets", "[cuda-runs]") {
    const TempDir folder;
    const Keys more = {{"train.clip_norm", "0.5"},
                       {"train.lanes", "6"},  // several for each rank: gradients add up
                       {"train.ema", "0.9"},
                       {"train.eval_ema", "true"},
                       {"parallel.bucket_mb", "0.001"}};
    for (const int ranks : {0, 2}) require_alike(run_of(folder, small_cnn(), more), ranks, 1e-5, 1e-4);
}

TEST_CASE("a training on GPUs is near that on CPUs: 16 bits", "[cuda-runs]") {
    const TempDir folder;
    const std::string precision = GENERATE("bf16", "fp16");
    const Keys more = {{"train.precision", precision}, {"scaler.init", "1024"}};
    INFO(precision);
    for (const int ranks : {0, 2}) {
        // A value that is rounded the other way changes all that come after it in such small models.
        require_alike(run_of(folder, small_mlp(), more), ranks, 1e-5, 5e-2);
        require_alike(run_of(folder, small_cnn(), more), ranks, 1e-5, 5e-2);
    }
}

TEST_CASE("an overflow on a GPU is skipped by all ranks, and its parameter named", "[cuda-runs]") {
    const TempDir folder;
    const Run run = run_of(folder, small_mlp(), {{"train.precision", "fp16"}, {"scaler.init", "1e9"}});
    run.expect(0, 2);
    REQUIRE(run.column("step", "skipped").back() > 0);
    const Run stuck = run.with({{"scaler.min", "1e9"}, {"scaler.max_skips", "2"}}).at(folder / "stuck");
    REQUIRE_THAT(stuck.expect(1, 2).err, contains("head."));
}

TEST_CASE("the same bits on any number of GPUs, and where ranks share one", "[cuda-runs]") {
    const TempDir folder;
    const Run run = run_of(folder, small_mlp(), {{"train.reduction", "reproducible"}});
    const auto weights = [&](int ranks, const Keys& more = {}) {
        return run.with(more)
            .at(folder / ("on" + std::to_string(ranks) + std::to_string(more.size())))
            .finish(ranks);
    };
    const Checkpoint one = weights(0);
    for (const int ranks : {2, 3, 4}) REQUIRE(same_bits(one.weights, weights(ranks).weights));
    REQUIRE(same_bits(one.states, weights(2, {{"run.devices", "2"}}).states));
}

TEST_CASE("a state that is spread over GPUs, and layers split over them", "[cuda-runs]") {
    const TempDir folder;
    SECTION("zero") {
        const Run whole = run_of(folder, small_cnn());
        const Tensors wanted = whole.finish(2).weights;
        for (const char* zero : {"1", "2", "3"}) {
            const Run spread = whole.with({{"parallel.zero", zero}, {"parallel.bucket_mb", "0.001"}})
                                   .at(folder / (std::string("zero") + zero));
            REQUIRE(largest_difference(spread.finish(2).weights, wanted) < 1e-5);
        }
    }
    SECTION("a transformer on 2x2x1 and 1x2x2") {
        const Run run = tiny_gpt(folder).with({{"run.device", "cuda"},
                                               {"run.share_gpu", sharing() ? "true" : "false"},
                                               {"train.max_steps", "3"},
                                               {"model.dropout", "0"},
                                               {"optim.name", "sgd"},
                                               {"optim.lr", "0.1"}});
        const Tensors wanted = run.with(on_cpu).at(folder / "cpu").finish(0).weights;
        const Keys split = {{"parallel.tensor", "2"}, {"parallel.sequence", "true"}};
        REQUIRE(largest_difference(run.with(split).at(folder / "2x2x1").finish(4).weights, wanted) < 1e-4);
        const Run staged = run.with({{"parallel.tensor", "2"}, {"parallel.pipeline", "2"}});
        REQUIRE(largest_difference(staged.at(folder / "1x2x2").finish(4).weights, wanted) < 1e-4);
    }
}

TEST_CASE("stages on GPUs of their own, in every order, recorded or not", "[cuda-runs]") {
    const TempDir folder;
    const std::string schedule = GENERATE("gpipe", "1f1b", "interleaved");
    INFO(schedule);
    const Run run = run_of(folder, small_cnn(),
                           {{"parallel.pipeline", "2"},
                            {"parallel.schedule", schedule},
                            {"train.lanes", "4"},
                            {"train.epochs", "4"},
                            {"train.max_steps", "16"}});
    const Run whole = run.with(on_cpu).with({{"parallel.pipeline", "1"}, {"parallel.schedule", "1f1b"}});
    const Run plain = run.with({{"run.cuda_graph", "off"}}).at(folder / "plain");
    const Tensors weights = plain.finish(2).weights;
    REQUIRE(largest_difference(weights, whole.at(folder / "whole").finish(0).weights) < 1e-4);
    if (sharing()) return;  // not without NCCL
    REQUIRE_FALSE(plain.events("end").back().has("pipeline_bubble"));
    const Run threads = plain.with({{"run.devices", "2"}}).at(folder / "threads");
    REQUIRE(same_bits(threads.finish(0).weights, weights));
    // What is recorded cannot wait for the host: all messages go from device to device.
    const Run recorded = run.with({{"run.cuda_graph", "on"}}).at(folder / "recorded");
    REQUIRE(same_bits(recorded.finish(2).weights, weights));
}

TEST_CASE("a run goes on from a GPU's checkpoint on a CPU, and the other way round", "[cuda-runs]") {
    const TempDir folder;
    const bool behind = GENERATE(true, false);
    INFO("checkpoint.async=" << behind);
    const Run whole = run_of(folder, small_cnn(),
                             {{"checkpoint.async", behind ? "true" : "false"},
                              {"train.lanes", "2"},  // of BatchNorm
                              {"schedule.name", "cosine"},
                              {"schedule.steps", "10"}});
    const Tensors wanted = whole.with(on_cpu).at(folder / "whole").finish(0).weights;
    const Keys half = {{"train.max_steps", "5"}};
    for (const bool gpu_first : {true, false}) {
        const Run run = whole.at(folder / (gpu_first ? "gpu first" : "cpu first"));
        const Run first = gpu_first ? run : run.with(on_cpu), then = gpu_first ? run.with(on_cpu) : run;
        first.with(half).expect(0, gpu_first ? 2 : 0);
        REQUIRE_THAT(then.expect(0, gpu_first ? 0 : 2).err, contains("resumed from"));
        REQUIRE(run.column("step", "loss").size() == 10);
        REQUIRE(largest_difference(run.last().weights, wanted) < 1e-4);
        REQUIRE(run.last().position.at("updates") == 10);
    }
}

TEST_CASE("what a GPU's weights say is the same on a CPU", "[cuda-runs]") {
    const TempDir folder;
    const Run run = run_of(folder, small_mlp());
    run.expect(0, 2);
    const std::string valid = folder / "mlp-valid.h5";
    const std::string share = sharing() ? "--run.share_gpu=true" : "--run.share_gpu=false";
    const Event gpu = evaluate(2, run.best_path(), valid, {"--run.device=cuda", share}),
                cpu = evaluate(0, run.best_path(), valid, {"--run.device=cpu"});
    REQUIRE(gpu["loss"] == Approx(cpu["loss"]).epsilon(1e-5));
    REQUIRE(gpu["count"] == 31);
    // Many batches one after another without a wait: buffers are used again and again.
    const std::string train = folder / "mlp.h5";
    const auto loss_on = [&](const std::string& device) {
        return evaluate(0, run.best_path(), train,
                        {"--train.batch=4", "--data.prefetch=1", "--run.device=" + device})["loss"];
    };
    REQUIRE(loss_on("cuda") == Approx(loss_on("cpu")).epsilon(1e-5));
    const auto predicted = [&](const std::string& device) {
        const std::string output = folder / (device + ".h5");
        const Result result = trireme::testing::trireme(0, {"predict", run.best_path(), "--data=" + valid,
                                                            "--output=" + output, "--run.device=" + device});
        INFO(result.err);
        REQUIRE(result.status == 0);
        return read_values(output, "/output");
    };
    const std::vector<double> a = predicted("cuda"), b = predicted("cpu");
    REQUIRE(a.size() == 31 * 5);
    for (std::size_t i = 0; i < a.size(); ++i) REQUIRE(a[i] == Approx(b[i]).margin(1e-5));
}

TEST_CASE("steps that are recorded and replayed have the bits of those that are not", "[cuda-runs]") {
    const TempDir folder;
    const Run run = run_of(folder, small_cnn(), {{"train.max_steps", "16"}, {"train.epochs", "4"}});
    for (const int ranks : {0, 2}) {
        if (ranks > 0 && sharing()) continue;  // not without NCCL
        const auto weights = [&](const std::string& graphs, const Keys& more = {}) {
            const Run here = run.with({{"run.cuda_graph", graphs}})
                                 .with(more)
                                 .at(folder / (graphs + std::to_string(ranks) + std::to_string(more.size())));
            return here.finish(ranks).weights;
        };
        REQUIRE(same_bits(weights("on"), weights("off")));
        if (ranks == 0) continue;
        const Keys zero = {{"parallel.zero", "3"}, {"parallel.bucket_mb", "0.001"}};
        REQUIRE(same_bits(weights("on", zero), weights("off", zero)));
        // Weights that are whole in the windows at the end of a validation are old in the steps after it.
        const Keys few_units = {{"parallel.zero", "3"}};
        REQUIRE(same_bits(weights("on", few_units), weights("off", few_units)));
    }
    const auto refused = [&](const Keys& keys, int ranks) {
        return run.with({{"run.cuda_graph", "on"}}).with(keys).at(folder / "refused").expect(2, ranks).err;
    };
    REQUIRE_THAT(refused({{"run.device", "cpu"}}, 0), contains("run.cuda_graph=on: the device is a CPU"));
    REQUIRE_THAT(refused({{"model.dropout", "0.5"}, {"model.arch", "mlp"}, {"data.augment", "none"}}, 0),
                 contains("run.cuda_graph=on: dropout"));
    REQUIRE_THAT(refused({{"train.lanes", "1"}}, 2), contains("run.cuda_graph=on: ranks without lanes"));
}

TEST_CASE("what recorded steps use stays, whatever other lanes ask for later", "[cuda-runs]") {
    // Lanes of other sizes, in the last batch of an epoch and in validation, want more scratch memory.
    const TempDir folder;
    const Run run = run_of(folder, small_mlp(),
                           {{"model.dropout", "0"},
                            {"model.batchnorm", "false"},
                            {"model.width", "13, 11"},
                            {"train.max_steps", "24"},
                            {"train.epochs", "4"},
                            {"train.batch", "13"},
                            {"data.prefetch", "1"}});
    const auto weights = [&](const std::string& graphs) {
        return run.with({{"run.cuda_graph", graphs}}).at(folder / graphs).finish(0).weights;
    };
    REQUIRE(same_bits(weights("on"), weights("off")));
}

TEST_CASE("a profiler is told what the ranks do, as ranges of NVTX", "[cuda-runs]") {
    const char* listener = std::getenv("TRIREME_NVTX_LISTENER");
    if (listener == nullptr) {
        WARN("skipped: there is no listener in the place of a profiler");
        return;
    }
    const TempDir folder;
    const Run run = run_of(folder, small_mlp(), {{"train.max_steps", "2"}});
    Options options;
    options.env = {{"NVTX_INJECTION64_PATH", listener}, {"NVTX_LISTENER_FILE", folder / "ranges"}};
    const Result result = trireme::testing::trireme(2, run.arguments(), options);
    INFO(result.err);
    REQUIRE(result.status == 0);
    int ranks = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
        if (entry.path().stem() != "ranges") continue;
        ++ranks;
        const std::string text = read_file(entry.path());
        for (const char* range :
             {"+forward of lane", "+backward of lane", "+all-reduce", "+update", "+preparing lane"})
            REQUIRE_THAT(text, contains(range));
        REQUIRE(count_of(text, "\n+") > 20);
        REQUIRE(std::abs(count_of(text, "\n+") - count_of(text, "\n-")) <=
                2);  // that of the listening itself
    }
    REQUIRE(ranks == 2);
}
