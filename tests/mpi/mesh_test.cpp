// Models over several ranks, without files around them: what the ranks hold between them is one model.
#include <mpi.h>

#include <cstring>
#include <memory>
#include <stdexcept>

#include "comm/mpi_communicator.hpp"
#include "support/catch.hpp"
#include "support/tensors.hpp"
#include "trireme/comm/agree.hpp"
#include "trireme/comm/mesh.hpp"
#include "trireme/nn/model.hpp"
#include "trireme/train/step.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

/// One rank's part of a model, its arena, and the step; the same seed everywhere.
struct Part {
    Part(Mesh& mesh, const std::vector<std::string>& layers, LossOptions loss, Shape sample,
         std::int64_t outputs, std::int64_t batch, std::int64_t lane_count)
        : device(make_device("cpu")),
          lanes(lane_count),
          mine(part_of({0, lane_count}, mesh.data().size(), mesh.data().rank())),
          pipeline(mesh.pipeline(), PipelineSchedule::one_f_one_b, 1, mine.size()),
          model(description(layers), loss, sample, outputs, options(mesh, layers, sample, outputs, batch)),
          state(mesh.data(), *device, model.table(),
                {.arena = {.state_names = {"momentum"}}, .reducer = {.lanes = lanes, .my_lanes = mine}}),
          arena(state.arena),
          runner(*device, model, *state.weights, 1, 1, pipeline.slots()),
          optimizer(make_optimizer(sgd())),
          update(*optimizer, model.table(), sgd(), &mesh.model()),
          sums(model.table(), mesh.pipeline(), state.sharding.pieces().updated),
          step({.world = mesh.world(),
                .norms = mesh.model(),
                .pipeline = pipeline,
                .runner = runner,
                .state = state,
                .update = update,
                .sums = sums},
               lanes, {.reports = mesh.tensor().rank() == 0}) {
        model.initialize(runner.ops(), arena.weights, 3);
    }

    static ModelDescription description(const std::vector<std::string>& layers) {
        return {layers, "", "kaiming"};
    }
    static OptimizerOptions sgd() { return {.name = "sgd", .momentum = 0.9}; }
    ModelOptions options(Mesh& mesh, const std::vector<std::string>& layers, const Shape& sample,
                         std::int64_t outputs, std::int64_t batch) const {
        ModelOptions made{.max_samples = batch, .group = TensorGroup(mesh.tensor())};
        const auto costs = layer_costs(description(layers), sample, outputs, made);
        made.chunks = {
            cut_into_stages(costs, pipeline.shape().stages())[static_cast<std::size_t>(pipeline.stage(0))]};
        return made;
    }

    const Parameter& parameter(const std::string& name) const {
        for (const Parameter& p : model.table().all())
            if (p.name == name) return p;
        throw std::runtime_error("no parameter " + name);
    }
    std::vector<float> values(const Column& column, const std::string& name) const {
        const View view = column.of(parameter(name));
        return {view.as<float>(), view.as<float>() + view.count()};
    }
    StepResult train(View x, View y, std::int64_t batch, std::int64_t done) {
        std::vector<LaneBatch> batches;
        for (std::int64_t lane = mine.begin; lane < mine.end; ++lane) {
            LaneBatch b;
            b.lane = lane;
            b.positions = part_of({0, batch}, lanes, lane);
            b.first_in_batch = b.positions.begin;
            b.batch_samples = batch;
            b.x = rows_of(x, b.positions);
            b.y = rows_of(y, b.positions);
            batches.push_back(b);
        }
        return step.run(batches, {.lr = 0.1, .updates = done, .attempt = done, .batch_samples = batch});
    }
    static View rows_of(View all, Range rows) {
        const std::int64_t width = all.count() / all.shape[0];
        Shape shape = all.shape;
        shape[0] = rows.size();
        return {
            static_cast<char*>(all.data) + static_cast<std::size_t>(rows.begin * width) * size_of(all.dtype),
            all.dtype, shape};
    }

    std::unique_ptr<Device> device;
    std::int64_t lanes;
    Range mine;
    Pipeline pipeline;
    Model model;
    TrainingState state;
    Arena& arena;
    LaneRunner runner;
    std::unique_ptr<Optimizer> optimizer;
    UpdatePass update;
    GradientSums sums;
    TrainStep step;
};

}  // namespace

TEST_CASE("case 18: the bias of a layer with split inputs is added once", "[mpi][mesh]") {
    MpiCommunicator world(MPI_COMM_WORLD, false), self(MPI_COMM_SELF, false);
    const std::vector<std::string> layers = {"linear out=8 name=a", "linear out=3 name=b"};
    Mesh split_mesh(world, world.size(), 1), whole_mesh(self, 1, 1);
    const LossOptions loss{.kind = LossKind::mse};
    Part split(split_mesh, layers, loss, {5}, 3, 4, 1), whole(whole_mesh, layers, loss, {5}, 3, 4, 1);
    if (world.size() > 1) {
        const Parameter& weight = split.parameter("b.weight");
        REQUIRE(weight.slice.has_value());
        REQUIRE(weight.slice->axis == 1);  // a part of its inputs on each rank
    }
    for (Part* part : {&split, &whole}) {
        float* bias = part->arena.weights.of(part->parameter("b.bias")).as<float>();
        for (int i = 0; i < 3; ++i) bias[i] = 100.0F * static_cast<float>(i + 1);
    }
    const Values inputs = random_values(4 * 5, 1), targets = random_values(4 * 3, 2);
    std::vector<float> x(inputs.begin(), inputs.end()), y(targets.begin(), targets.end());
    const View in = view_of(x.data(), Shape{4, 5}), to = view_of(y.data(), Shape{4, 3});
    LaneBatch batch;
    batch.positions = {0, 4};
    batch.batch_samples = 4;
    std::vector<std::vector<float>> outputs;
    for (Part* part : {&split, &whole}) {
        LaneContext lane = part->runner.context(0, batch);
        const View out = part->model.forward(lane, in);
        outputs.emplace_back(out.as<float>(), out.as<float>() + out.count());
    }
    for (std::size_t i = 0; i < outputs[1].size(); ++i) {
        CHECK(outputs[0][i] == Approx(outputs[1][i]).epsilon(1e-6));
        CHECK(outputs[0][i] == Approx(100 * static_cast<double>(i % 3 + 1)).margin(20));
    }
    const StepResult a = split.train(in, to, 4, 0), b = whole.train(in, to, 4, 0);
    CHECK(a.loss == Approx(b.loss).epsilon(1e-6));
    CHECK(a.gradient_norm == Approx(b.gradient_norm).epsilon(1e-6));
    const auto d_split = split.values(split.arena.gradients, "b.bias"),
               d_whole = whole.values(whole.arena.gradients, "b.bias");
    for (std::size_t i = 0; i < 3; ++i) CHECK(d_split[i] == Approx(d_whole[i]).epsilon(1e-6));
}

TEST_CASE("case 20: tied weights on two stages stay one weight", "[mpi][mesh]") {
    MpiCommunicator world(MPI_COMM_WORLD, false), self(MPI_COMM_SELF, false);
    if (world.size() % 2 != 0) return;  // two stages, and as many replicas as there are pairs
    const std::vector<std::string> layers = {"embedding dim=6 name=tokens", "layernorm",
                                             "linear out=6 name=between", "relu",
                                             "linear out=classes tied=tokens bias=false name=head"};
    constexpr std::int64_t batch = 6, context = 4, tokens = 9;
    Mesh staged_mesh(world, 1, 2), whole_mesh(self, 1, 1);
    Part staged(staged_mesh, layers, {}, {context}, tokens, batch, 3),
        whole(whole_mesh, layers, {}, {context}, tokens, batch, 3);
    const Parameter& tied = staged.parameter("tokens.weight");
    REQUIRE(tied.held);
    REQUIRE(tied.counted == staged.pipeline.first(0));

    std::vector<std::int32_t> x = random_labels(batch * context, tokens, 5),
                              y = random_labels(batch * context, tokens, 6);
    const View in = view_of(x.data(), Shape{batch, context}), to = view_of(y.data(), Shape{batch, context});
    for (std::int64_t k = 0; k < 5; ++k) {
        const StepResult a = staged.train(in, to, batch, k), b = whole.train(in, to, batch, k);
        CHECK(a.loss == Approx(b.loss).epsilon(1e-6));
        CHECK(a.gradient_norm == Approx(b.gradient_norm).epsilon(1e-5));
        // The gradient of both uses, on both stages.
        const auto here = staged.values(staged.arena.gradients, "tokens.weight"),
                   one = whole.values(whole.arena.gradients, "tokens.weight");
        for (std::size_t i = 0; i < one.size(); ++i) CHECK(here[i] == Approx(one[i]).margin(1e-6));
        // Every copy in the world, bit by bit.
        std::vector<float> mine = staged.values(staged.arena.weights, "tokens.weight");
        std::vector<float> first = mine;
        world.broadcast(view_of(first.data(), Shape{static_cast<std::int64_t>(first.size())}), 0);
        CHECK(std::memcmp(mine.data(), first.data(), mine.size() * sizeof(float)) == 0);
    }
}
