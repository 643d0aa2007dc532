// Runs with a training state that is sharded over the data-parallel ranks: saved and resumed in any other
// way, validated with the average, in every precision.
#include "support/catch.hpp"
#include "support/exports.hpp"
#include "support/meshes.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

// Buckets of so few bytes that models as small as these have many.
Keys zero(const std::string& stage, const std::string& overlap = "off", const std::string& mb = "0.004") {
    return {{"parallel.zero", stage}, {"parallel.overlap", overlap}, {"parallel.bucket_mb", mb}};
}

Run like(const Run& run, const TempDir& folder, const std::string& name) {
    return run.at(folder / name);
}

}  // namespace

TEST_CASE("the bits of the first weights do not depend on the sharding", "[cli-zero_runs]") {
    const TempDir folder;
    const Run run =
        tiny_gpt(folder).with({{"train.max_steps", "1"}, {"optim.lr", "0"}, {"optim.weight_decay", "0"}});
    const Tensors one = run.finish(0).weights;
    for (const std::string stage : {"1", "2", "3"}) {
        const Run here = like(run, folder, stage).with(zero(stage));
        CHECK_THAT(here.expect(0, 3).err,
                   contains("parallel.zero=" + stage + ": the state is sharded over 3 ranks"));
        REQUIRE(same_bits(here.last().weights, one));
    }
}

TEST_CASE("a sharded state starts from the weights of a file", "[cli-zero_runs]") {
    const TempDir folder;
    const Run run =
        tiny_gpt(folder).with({{"train.max_steps", "1"}, {"optim.lr", "0"}, {"optim.weight_decay", "0"}});
    const Tensors saved = run.finish(0).weights;
    export_to(run.dir(), folder / "weights.safetensors");
    for (const std::filesystem::path& file :
         {run.checkpoint_path(1), folder.path() / "weights.safetensors"}) {
        const Run here =
            run.at(folder / "from")
                .with(zero("3"))
                .with({{"run.init_from", file.string()}, {"run.seed", "5"}, {"run.resume", "none"}});
        REQUIRE(same_bits(here.finish(3).weights, saved));
    }
}

TEST_CASE("a sharded state is saved whole and goes on in any other way", "[cli-zero_runs]") {
    const TempDir folder;
    const Run run = tiny_gpt(folder).with({{"optim.name", "adamw"},
                                           {"optim.eps", "0.001"},
                                           {"optim.lr", "0.003"},
                                           {"train.lanes", "5"},
                                           {"train.ema", "0.8"}});
    const Checkpoint one = run.finish(0);
    const Run cut = like(run, folder, "cut");
    const auto to = [&](const char* steps, int ranks, const Keys& keys) {
        cut.with({{"train.max_steps", steps}}).with(keys).expect(0, ranks);
    };
    to("1", 2, zero("3"));
    to("2", 3, zero("1", "on"));
    to("3", 4, zero("2"));
    to("4", 1, zero("3"));  // one rank alone has everything
    to("5", 3, zero("3", "on", "0.01"));
    to("6", 4, {{"parallel.zero", "2"}, {"parallel.tensor", "2"}});
    to("7", 4, {{"parallel.zero", "3"}, {"parallel.pipeline", "2"}});
    to("8", 2, zero("0"));
    to("10", 4, zero("3", "on"));
    REQUIRE(cut.column("step", "step").size() == 10);
    REQUIRE(largest_difference(cut.last().weights, one.weights) < 1e-4);
    REQUIRE(largest_difference(cut.last().states, one.states) < 1e-4);
    REQUIRE(cut.column("step", "loss")[9] == Approx(run.column("step", "loss")[9]).epsilon(1e-4));
    for (const int ranks : {1, 2}) {
        const Event eval = evaluate(ranks, cut.checkpoint_path(10), folder / "data/valid-*.h5");
        REQUIRE(eval["loss"] == Approx(cut.column("valid", "loss").back()).epsilon(1e-5));
        const Event average =
            evaluate(ranks, cut.checkpoint_path(10), folder / "data/valid-*.h5", {"--train.eval_ema=true"});
        REQUIRE(average["loss"] !=
                Approx(eval["loss"]).epsilon(1e-5));  // the average came along, and is another
    }
}

TEST_CASE("validation with the average of a sharded state", "[cli-zero_runs]") {
    const TempDir folder;
    const Run run = tiny_images(folder, {{"model.width", "24"},
                                         {"model.batchnorm", "true"},
                                         {"train.ema", "0.7"},
                                         {"train.eval_ema", "true"},
                                         {"train.eval_every", "2 steps"},
                                         {"train.lanes", "3"}});
    run.expect(0, 0);
    const auto losses = run.column("valid", "loss");
    REQUIRE(losses.size() == 5);
    for (const char* stage : {"1", "2", "3"}) {
        const Run here = like(run, folder, stage).with(zero(stage, "on"));
        here.expect(0, 3);
        REQUIRE(largest_difference(here.last().weights, run.last().weights) < 1e-5);
        const auto found = here.column("valid", "loss");
        REQUIRE(found.size() == losses.size());
        for (std::size_t i = 0; i < losses.size(); ++i) REQUIRE(found[i] == Approx(losses[i]).epsilon(1e-5));
        const Event eval = evaluate(2, here.checkpoint_path(10), folder / "valid.h5");
        REQUIRE(eval["loss"] == Approx(found.back()).epsilon(1e-5));
    }
}

TEST_CASE("precisions of a sharded state", "[cli-zero_runs]") {
    const TempDir folder;
    const Run run = tiny_gpt(folder).with({{"train.max_steps", "60"},
                                           {"model.dropout", "0"},
                                           {"optim.lr", "0.003"},
                                           {"scaler.init", "1e9"}});  // the first steps of fp16 overflow
    run.expect(0, 0);
    const double exact = run.column("valid", "loss").back();
    for (const char* precision : {"bf16", "fp16"}) {
        const Run alone = like(run, folder, precision).with({{"train.precision", precision}});
        alone.expect(0, 0);
        const auto skipped = alone.column("step", "skipped");
        REQUIRE((skipped.back() > 3) == (precision == std::string("fp16")));
        for (const char* stage : {"1", "2", "3"}) {
            const Run low = like(alone, folder, precision + std::string(stage)).with(zero(stage, "on"));
            low.expect(0, 2);
            REQUIRE(low.column("step", "skipped") == skipped);
            REQUIRE(low.column("step", "loss")[0] == Approx(alone.column("step", "loss")[0]).epsilon(1e-6));
            REQUIRE(low.column("valid", "loss").back() ==
                    Approx(alone.column("valid", "loss").back()).epsilon(0.01));
        }
    }
    const Run wire = like(run, folder, "wire").with(zero("2")).with({{"parallel.reduce_dtype", "bf16"}});
    wire.expect(0, 3);
    REQUIRE(wire.column("valid", "loss").back() == Approx(exact).epsilon(0.02));
}

TEST_CASE("what a sharded state does not go with is refused", "[cli-zero_runs]") {
    const TempDir folder;
    write_samples(folder / "train.h5", clusters(8, Shape{4}, 2));
    const Run run(folder / "run", {{"data.train", folder / "train.h5"}, {"train.max_steps", "1"}});
    const auto refused = [&](const Keys& keys) { return run.with(keys).expect(2, 2).err; };
    CHECK_THAT(refused({{"parallel.zero", "4"}}), contains("parallel.zero=4: expected 0, 1, 2 or 3"));
    CHECK_THAT(refused({{"parallel.zero", "-1"}}), contains("parallel.zero=-1"));
    CHECK_THAT(refused({{"parallel.zero", "1"}, {"train.reduction", "reproducible"}}),
               contains("train.reduction=reproducible") && contains("parallel.zero=1"));
}
