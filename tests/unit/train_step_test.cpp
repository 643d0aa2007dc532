// The step itself, without files around it: what it computes and that it allocates nothing once it is warm.
#include <mpi.h>

#include <cmath>

#include "comm/mpi_communicator.hpp"
#include "support/allocations.hpp"
#include "support/data_files.hpp"
#include "support/lanes.hpp"
#include "support/process.hpp"
#include "trireme/base/error.hpp"
#include "trireme/io/hdf5.hpp"
#include "trireme/train/step.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

/// A training set of random images in a file, and everything between it and the update.
struct Training {
    Training(const std::vector<std::string>& layers, bool reproducible, int workers, double clip,
             std::int64_t lanes, DType compute = DType::f32)
        : comm(MPI_COMM_SELF, false),
          rig(layers, {1, 8, 8}, 4, 16, {}, "kaiming", "cpu", compute),
          state(comm, *rig.device, rig.model.table(),
                {.arena = {.state_names = {"m", "v"}, .compute = compute, .average = compute != DType::f32},
                 .reducer = {.lanes = lanes,
                             .my_lanes = {0, lanes},
                             .workers = workers,
                             .reproducible = reproducible}}),
          arena(state.arena) {
        const std::string path = (folder.path() / "train-0.h5").string();
        io::File file(path, io::Access::create);
        std::vector<float> x;
        for (const double value : random_values(48 * 64, 3)) x.push_back(static_cast<float>(value));
        const std::vector<std::int32_t> y = random_labels(48, 4, 4);
        file.create("/x", DType::f32, {48, 1, 8, 8}).write_rows({0, 48}, DType::f32, x.data());
        file.create("/y", DType::i32, {48}).write_rows({0, 48}, DType::i32, y.data());
        file.close();

        const EpochPlan plan{48, 16, lanes, false};
        loader = std::make_unique<Loader>(open_dataset(comm, path),
                                          LoaderOptions{.plan = plan, .my_lanes = {0, lanes}, .classes = 4});
        runner = std::make_unique<LaneRunner>(*rig.device, rig.model, *state.weights, workers, 1);
        const OptimizerOptions options{.name = "adamw", .weight_decay = 0.01};
        optimizer = make_optimizer(options);
        update = std::make_unique<UpdatePass>(*optimizer, rig.model.table(), options);
        sums = std::make_unique<GradientSums>(rig.model.table(), comm, state.sharding.pieces().updated);
        step = std::make_unique<TrainStep>(
            StepParts{comm, comm, stages, *runner, state, *update, *sums}, lanes,
            StepOptions{.clip_norm = clip, .may_skip = compute == DType::f16, .average_decay = 0.9});
        rig.model.initialize(*rig.ops, arena.weights, 1);
        runner->use(WeightKind::current);
        loader->start(0, 0);
    }

    StepResult next(double scale = 1) {
        const StepResult result =
            step->run(loader->next_step(),
                      {.lr = 1e-3, .updates = done, .attempt = done, .batch_samples = 16, .scale = scale});
        ++done;
        return result;
    }

    TempDir folder;
    MpiCommunicator comm;
    Rig rig;
    TrainingState state;
    Arena& arena;
    std::unique_ptr<Loader> loader;
    std::unique_ptr<LaneRunner> runner;
    std::unique_ptr<Optimizer> optimizer;
    std::unique_ptr<UpdatePass> update;
    Pipeline stages;
    std::unique_ptr<GradientSums> sums;
    std::unique_ptr<TrainStep> step;
    std::int64_t done = 0;
};

/// The 16-bit copy of the weights, as numbers.
std::vector<float> rounded_copy(const Arena& arena) {
    const View low = arena.low->whole();
    std::vector<float> values;
    for (std::int64_t i = 0; i < low.count(); ++i)
        values.push_back(static_cast<float>(value_of(low.dtype, static_cast<std::uint16_t*>(low.data)[i])));
    return values;
}

const std::vector<std::string> mlp = {"flatten", "linear out=32", "relu", "dropout p=0.2",
                                      "linear out=classes"};
const std::vector<std::string> cnn = {
    "conv out=4 kernel=3 padding=1", "batchnorm", "relu", "maxpool kernel=2", "residual",
    "conv out=4 kernel=3 padding=1", "gelu",      "end",  "flatten",          "linear out=classes"};

}  // namespace

TEST_CASE("a steady step allocates nothing", "[unit][train]") {
    if (!can_count_allocations()) {
        WARN("skipped: allocations are not counted under the address sanitizer");
        return;
    }
    const auto layers = GENERATE(0, 1) == 0 ? mlp : cnn;
    const auto reproducible = GENERATE(false, true);
    const auto clip = GENERATE(0.0, 1.0);
    const auto compute = GENERATE(DType::f32, DType::bf16, DType::f16);
    Training pipeline(layers, reproducible, reproducible ? 2 : 1, clip, 4, compute);
    for (int warm = 0; warm < 2; ++warm) pipeline.next();
    count_allocations();
    for (int steady = 0; steady < 7; ++steady) pipeline.next();
    const Allocations found = allocations();
    CHECK(found.ours == 0);
    CHECK(found.live == 0);
}

TEST_CASE("the counter counts", "[unit][train]") {
    if (!can_count_allocations()) {
        WARN("skipped: allocations are not counted under the address sanitizer");
        return;
    }
    count_allocations();
    const auto kept = std::make_unique<std::vector<int>>(100);
    CHECK(allocations().ours == 2);
    CHECK(allocations().live == 2);
}

TEST_CASE("lanes and workers change nothing but rounding", "[unit][train]") {
    Training whole(mlp, false, 1, 0.5, 1), lanes(mlp, false, 1, 0.5, 5), tree(mlp, true, 3, 0.5, 5);
    for (int i = 0; i < 4; ++i) {
        const StepResult a = whole.next(), b = lanes.next(), c = tree.next();
        CHECK(a.count == 16);
        CHECK(b.loss == Approx(a.loss).epsilon(1e-5));
        CHECK(c.loss == Approx(a.loss).epsilon(1e-5));
        CHECK(b.gradient_norm == Approx(a.gradient_norm).epsilon(1e-4));
        CHECK(c.gradient_norm == Approx(a.gradient_norm).epsilon(1e-4));
    }
}

TEST_CASE("a skipped step changes no weight, moment, statistic or average", "[unit][train]") {
    Training pipeline(cnn, false, 1, 0, 2, DType::f16);
    REQUIRE_FALSE(pipeline.next(1024).skipped);
    const auto state = [&] {
        std::vector<float> all;
        std::vector<const Column*> columns = {&pipeline.arena.weights, &*pipeline.arena.average};
        for (const Column& column : pipeline.arena.states) columns.push_back(&column);
        for (const Column* column : columns)
            for (const float value : column->whole().span<float>()) all.push_back(value);
        for (const float value : rounded_copy(pipeline.arena)) all.push_back(value);
        return all;
    };
    const std::vector<float> before = state();
    const StepResult result = pipeline.next(1e9);  // beyond float16 in the last layer's gradient
    REQUIRE(result.skipped);
    CHECK(std::isnan(result.gradient_norm));
    CHECK(std::isfinite(result.loss));
    CHECK(result.culprit == "9.linear.bias");  // the last parameter is the first that backward comes to
    CHECK(state() == before);
    REQUIRE_FALSE(pipeline.next(1024).skipped);
    CHECK(state() != before);
}

TEST_CASE("the rounded copy and the average follow each update", "[unit][train]") {
    const DType compute = GENERATE(DType::bf16, DType::f16);
    Training pipeline(cnn, false, 1, 0.5, 2, compute);
    std::vector<double> average(static_cast<std::size_t>(pipeline.arena.weights.whole().count()), 0.0);
    for (int k = 0; k < 3; ++k) {
        pipeline.next(8);
        const auto weights = pipeline.arena.weights.whole().span<float>();
        const std::vector<float> low = rounded_copy(pipeline.arena);
        for (const Parameter& p : pipeline.rig.model.table().all())
            for (auto i = static_cast<std::size_t>(p.place.begin); i < static_cast<std::size_t>(p.place.end);
                 ++i) {
                if (p.role == Role::weight)
                    REQUIRE(low[i] == static_cast<float>(rounded(compute, weights[i])));
                average[i] = p.role == Role::weight ? 0.9 * average[i] + 0.1 * weights[i] : weights[i];
                REQUIRE(pipeline.arena.average->whole().as<float>()[i] == Approx(average[i]).margin(1e-6));
            }
    }
}

TEST_CASE("a step that diverges says so before it spoils the weights", "[unit][train]") {
    Training pipeline(mlp, false, 1, 1.0, 2);
    pipeline.next();
    float& w = pipeline.arena.weights.whole().as<float>()[0];
    w = std::numeric_limits<float>::infinity();
    try {
        pipeline.next();
        FAIL("nothing was thrown");
    } catch (const Error& error) {
        CHECK(error.status() == Status::failed);
        CHECK(error.scope() == Scope::all_ranks);
        CHECK_THAT(error.what(), contains("diverged"));
    }
}
