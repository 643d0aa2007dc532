// What is computed does not depend on how many ranks compute it: gradients, dropout, BatchNorm, final
// weights.
#include <cmath>

#include "support/catch.hpp"
#include "support/small_models.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

SmallModel cnn() {
    SmallModel model = small_cnn();
    model.keys.emplace_back("model.dropout", "0.2");
    return model;
}

Keys only(const Checkpoint& checkpoint, const std::string& part) {
    Keys found;
    for (const auto& [name, values] : checkpoint.weights)
        if (name.find(part) != std::string::npos)
            found.emplace_back(name,
                               std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4));
    return found;
}

}  // namespace

TEST_CASE("case 5: the gradient norm is that of the whole batch, however it is cut", "[cli-ranks]") {
    const TempDir folder;
    const std::string precision = GENERATE("fp32", "bf16", "fp16");
    const SmallModel plain = {
        "mlp", Shape{6}, {{"model.width", "16"}, {"train.precision", precision}, {"scaler.init", "256"}}};
    // In 16 bits each cut of the batch rounds its activations' gradients alike, but weights then drift apart
    // by bits.
    const double tolerance = precision == "fp32" ? 1e-5 : precision == "fp16" ? 2e-3 : 2e-2;
    const auto norms = [&](int ranks, const std::string& lanes) {
        const Run run = small_run(folder, plain, {{"train.lanes", lanes}})
                            .at(folder / (std::to_string(ranks) + "x" + lanes));
        run.finish(ranks);
        return run.column("step", "grad_norm");
    };
    const std::vector<double> whole = norms(0, "1"), one_rank = norms(0, "4"), two_ranks = norms(2, "4");
    REQUIRE(whole.size() == 7);
    for (std::size_t i = 0; i < whole.size(); ++i) {
        REQUIRE(whole[i] > 0.01);
        REQUIRE(one_rank[i] == Approx(whole[i]).epsilon(i == 0 ? 1e-6 : tolerance));
        REQUIRE(two_ranks[i] == Approx(whole[i]).epsilon(i == 0 ? 1e-6 : tolerance));
    }
}

TEST_CASE("case 6: the groups of weight decay stand in the start-up log", "[cli-ranks]") {
    const TempDir folder;
    const Run run = small_run(folder, small_mlp(),
                              {{"train.max_steps", "1"}, {"optim.name", "adamw"}, {"optim.momentum", "0"}});
    const Result result = run.expect(0);
    const std::size_t with = result.err.find("weight decay on:"), without = result.err.find("not on:");
    REQUIRE(with < without);
    REQUIRE(without != std::string::npos);
    const std::string decaying = result.err.substr(with, without - with);
    const std::string fixed = result.err.substr(without, result.err.find('\n', without) - without);
    for (const char* name : {"fc1.weight", "fc2.weight", "head.weight"})
        REQUIRE_THAT(decaying, contains(name));
    for (const char* name : {"fc1.bias", "norm1.weight", "norm2.bias", "head.bias"})
        REQUIRE_THAT(fixed, contains(name));
    REQUIRE(decaying.find("bias") == std::string::npos);
    REQUIRE(decaying.find("norm") == std::string::npos);
}

TEST_CASE("case 7: dropout depends on the sample's position, not on rank or lane", "[cli-ranks]") {
    const TempDir folder;
    const SmallModel dropping = {"mlp", Shape{6}, {{"model.width", "16"}, {"model.dropout", "0.5"}}};
    const Run run = small_run(folder, dropping);
    const auto weights = [&](int ranks, const Keys& keys) {
        return run.with(keys).at(folder / "case7").with({{"run.resume", "none"}}).finish(ranks).weights;
    };
    const Tensors one = weights(0, {{"train.reduction", "reproducible"}});
    REQUIRE(same_bits(one, weights(2, {{"train.reduction", "reproducible"}})));
    REQUIRE(same_bits(one, weights(4, {{"train.reduction", "reproducible"}})));
    REQUIRE(largest_difference(one, weights(0, {{"train.lanes", "1"}})) < 1e-5);
    REQUIRE(largest_difference(one, weights(2, {{"train.lanes", "5"}})) < 1e-5);
    REQUIRE(largest_difference(one, weights(3, {})) < 1e-5);
    REQUIRE(largest_difference(one, weights(0, {{"run.seed", "3"}})) > 1e-3);
}

TEST_CASE("case 8: validation while training equals evaluation of the saved file on one rank",
          "[cli-ranks]") {
    const TempDir folder;
    const Run run = small_run(folder, small_mlp(), {{"train.lanes", "4"}});
    Keys statistics;
    for (const int ranks : {1, 2, 3, 4}) {
        const Run here = run.at(folder / std::to_string(ranks)).with({{"train.reduction", "reproducible"}});
        const Checkpoint end = here.finish(ranks);
        const Event valid = here.events("valid").back();
        REQUIRE(valid["step"] == 7);
        const Event eval = evaluate(0, here.checkpoint_path(7), folder / "mlp-valid.h5");
        REQUIRE(eval["count"] == 31);
        REQUIRE(eval["count"] == valid["count"]);
        REQUIRE(eval["accuracy"] == valid["accuracy"]);
        REQUIRE(eval["loss"] == Approx(valid["loss"]).epsilon(1e-6));
        if (ranks == 1) statistics = only(end, "running_");
        REQUIRE(statistics.size() == 4);
        REQUIRE(only(end, "running_") == statistics);
    }
    SECTION("in the fast mode as well") {
        const Run fast = run.at(folder / "fast");
        fast.finish(3);
        const Event valid = fast.events("valid").back(),
                    eval = evaluate(0, fast.checkpoint_path(7), folder / "mlp-valid.h5");
        REQUIRE(eval["accuracy"] == valid["accuracy"]);
        REQUIRE(eval["loss"] == Approx(valid["loss"]).epsilon(1e-6));
    }
}

TEST_CASE("reproducible runs end with the same bits on 1, 2, 3 and 4 ranks", "[cli-ranks]") {
    const TempDir folder;
    for (const SmallModel& model : {small_mlp(), cnn()}) {
        const Run run =
            small_run(folder, model, {{"train.reduction", "reproducible"}, {"train.clip_norm", "0.5"}});
        const Checkpoint one = run.at(folder / (model.name + "-0")).finish(0);
        REQUIRE(all_finite(one.weights));
        for (const int ranks : {1, 2, 3, 4}) {
            const Run here = run.at(folder / (model.name + "-" + std::to_string(ranks)));
            const Checkpoint end = here.finish(ranks);
            INFO(model.name << " on " << ranks << " ranks");
            REQUIRE(same_bits(end.weights, one.weights));
            REQUIRE(same_bits(end.states, one.states));
            REQUIRE(end.position == one.position);
            REQUIRE(here.column("step", "loss") ==
                    run.at(folder / (model.name + "-0")).column("step", "loss"));
        }
        // Lanes side by side.
        const Run crowded = run.at(folder / (model.name + "-threads")).with({{"run.threads", "3"}});
        REQUIRE(same_bits(crowded.finish(0).weights, one.weights));
    }
}

TEST_CASE("reproducible adamw runs end with the same bits, moments included", "[cli-ranks]") {
    const TempDir folder;
    const Run run = small_run(folder, small_mlp(),
                              {{"train.reduction", "reproducible"},
                               {"optim.name", "adamw"},
                               {"optim.momentum", "0"},
                               {"optim.lr", "0.01"},
                               {"data.normalize", "standard"}});
    const Checkpoint one = run.at(folder / "one").finish(0), two = run.at(folder / "two").finish(2),
                     four = run.at(folder / "four").finish(4);
    REQUIRE(one.states.size() == 20);  // m and v of ten weights
    REQUIRE(same_bits(one.weights, two.weights));
    REQUIRE(same_bits(one.weights, four.weights));
    REQUIRE(same_bits(one.states, two.states));
    REQUIRE(same_bits(one.states, four.states));
}

TEST_CASE("fast runs end with the same weights to 1e-5 on 1, 2, 3 and 4 ranks", "[cli-ranks]") {
    const TempDir folder;
    for (const SmallModel& model : {small_mlp(), cnn()}) {
        // BatchNorm takes its statistics over a lane, so the lanes are given.
        const Run run = small_run(folder, model, {{"train.lanes", "4"}});
        const Checkpoint one = run.at(folder / (model.name + "-1")).finish(0);
        for (const int ranks : {2, 3, 4}) {
            INFO(model.name << " on " << ranks << " ranks");
            const Checkpoint end = run.at(folder / (model.name + "-" + std::to_string(ranks))).finish(ranks);
            REQUIRE(largest_difference(end.weights, one.weights) < 1e-5);
            REQUIRE(end.position.at("updates") == 7);
        }
    }
}

TEST_CASE("reducing tiny buckets while backward goes on changes nothing", "[cli-ranks]") {
    const TempDir folder;
    const Run run = small_run(folder, small_mlp(), {{"train.lanes", "5"}});
    for (const int ranks : {2, 3}) {
        const std::string on = std::to_string(ranks);
        const Tensors plain =
            run.at(folder / ("plain" + on)).with({{"parallel.overlap", "off"}}).finish(ranks).weights;
        const Tensors cut = run.at(folder / ("cut" + on))
                                .with({{"parallel.overlap", "on"}, {"parallel.bucket_mb", "0.0001"}})
                                .finish(ranks)
                                .weights;
        if (ranks == 2) REQUIRE(same_bits(cut, plain));  // a sum of two has one order only
        REQUIRE(largest_difference(cut, plain) < 1e-6);
    }
    // Ranks without a lane, and batches with fewer samples than lanes.
    const Run idle = run.at(folder / "idle")
                         .with({{"parallel.overlap", "on"},
                                {"parallel.bucket_mb", "0.0001"},
                                {"train.lanes", "2"},
                                {"model.batchnorm", "false"}});
    const Result result = idle.expect(0, 3);
    REQUIRE_THAT(result.err, contains("1 of 3 ranks are idle"));
    const Run busy = idle.at(folder / "busy");
    REQUIRE(largest_difference(idle.last().weights, busy.finish(0).weights) < 1e-6);
}
