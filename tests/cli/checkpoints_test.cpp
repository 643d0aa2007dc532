// When a run saves, validates and stops, what it keeps, and what can be done with what it leaves.
#include <cmath>

#include "support/catch.hpp"
#include "support/runs.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

// The weight goes to 1 as 1 - 0.9^k, one update an epoch; validation wants it to be 0.5.
Run past_the_best(const TempDir& folder) {
    write_samples(folder / "valid.h5", {Shape{1}, {1, 1, 1}, {0.5, 0.5, 0.5}}, {}, {DType::f32});
    return Run(folder / "run", single_weight(folder / "train.h5"))
        .with({{"data.valid", folder / "valid.h5"}, {"train.epochs", "15"}});
}

}  // namespace

TEST_CASE("checkpoint.every and keep, eval_every in steps, and the end of the run", "[cli-checkpoints]") {
    const TempDir folder;
    write_samples(folder / "data.h5", clusters(40, Shape{4}, 4));
    const Run run(folder / "run", {{"data.train", folder / "data.h5"},
                                   {"data.valid", folder / "data.h5"},
                                   {"model.width", "8"},
                                   {"train.batch", "8"},
                                   {"train.max_steps", "7"},
                                   {"train.eval_every", "3 steps"},
                                   {"checkpoint.every", "2 steps"},
                                   {"checkpoint.keep", "2"}});
    const Checkpoint end = run.finish(2);
    REQUIRE(run.saved_steps() == std::vector<std::int64_t>{6, 7});
    REQUIRE(run.column("valid", "step") == std::vector<double>{3, 6, 7});
    REQUIRE(run.column("step", "step") == std::vector<double>{1, 2, 3, 4, 5, 6, 7});
    REQUIRE(run.column("step", "epoch") == std::vector<double>{1, 1, 1, 1, 1, 2, 2});
    REQUIRE(run.column("step", "samples") == std::vector<double>{8, 16, 24, 32, 40, 48, 56});
    REQUIRE(end.position.at("epoch") == 1);
    REQUIRE(end.position.at("step_in_epoch") == 2);
    REQUIRE(end.position.at("updates") == 7);
    REQUIRE(end.position.at("samples") == 56);

    const Event over = run.events("end").at(0);
    REQUIRE(over.texts.at("reason") == "max_steps");
    REQUIRE(over["steps"] == 7);
    int step_checkpoints = 0;
    for (const Event& saved : run.events("checkpoint")) {
        REQUIRE(saved["seconds"] >= 0);
        REQUIRE(saved["bytes"] > 0);
        step_checkpoints += saved.texts.at("path").find("step-") != std::string::npos ? 1 : 0;
    }
    REQUIRE(step_checkpoints == 4);  // 2, 4, 6 and the end

    SECTION("never still saves at the end") {
        const Run rare =
            run.at(folder / "rare").with({{"checkpoint.every", "never"}, {"train.eval_every", "never"}});
        rare.finish(0);
        REQUIRE(rare.saved_steps() == std::vector<std::int64_t>{7});
    }
    SECTION("by default once an epoch") {
        const Run usual = Run(folder / "usual", {{"data.train", folder / "data.h5"},
                                                 {"model.width", "8"},
                                                 {"train.batch", "8"},
                                                 {"train.epochs", "5"}});
        usual.finish(0);
        REQUIRE(usual.saved_steps() == std::vector<std::int64_t>{15, 20, 25});
        REQUIRE(usual.events("end").at(0).texts.at("reason") == "completed");
        REQUIRE_FALSE(std::filesystem::exists(usual.best_path()));
    }
}

TEST_CASE("best.h5 is the best validation, and early stopping ends at the same epoch on 1 and 2 ranks",
          "[cli-checkpoints]") {
    const TempDir folder;
    const Run run = past_the_best(folder);
    const auto loss_after = [](int updates) { return std::pow(0.5 - std::pow(0.9, updates), 2); };
    for (const int ranks : {1, 2}) {
        const Run here = run.at(folder / std::to_string(ranks)).with({{"train.early_stop", "3"}});
        const Result result = here.expect(0, ranks);
        const std::vector<double> valid = here.column("valid", "loss");
        REQUIRE(valid.size() == 10);  // the best is the seventh: 1 - 0.9^7 = 0.522
        for (int k = 1; k <= 10; ++k)
            REQUIRE(valid[static_cast<std::size_t>(k - 1)] == Approx(loss_after(k)).margin(1e-6));
        const Event end = here.events("end").at(0);
        REQUIRE(end.texts.at("reason") == "early_stop");
        REQUIRE(end["steps"] == 10);
        REQUIRE(end["best"] == Approx(loss_after(7)).margin(1e-6));

        const Checkpoint best = read_checkpoint(here.best_path());
        REQUIRE(best.position.at("updates") == 7);
        REQUIRE(best.position.at("epoch") == 7);
        REQUIRE(best.position.at("best_step") == 7);
        REQUIRE(best.position.at("has_best") == 1);
        REQUIRE(best.position.at("best") == end["best"]);
        REQUIRE(best.weights.at("0.linear.weight").at(0) == Approx(1 - std::pow(0.9, 7)).margin(1e-6));
        const Checkpoint last = here.last();
        REQUIRE(last.position.at("updates") == 10);
        REQUIRE(last.position.at("best_step") == 7);
        REQUIRE(last.position.at("bad_evals") == 3);

        // Stopped for good: starting again does nothing.
        const Result again = here.expect(0, ranks);
        REQUIRE_THAT(again.err, contains("nothing to do"));
        REQUIRE(here.column("step", "step").size() == 10);
    }
}

TEST_CASE("early stopping counts on over an interruption", "[cli-checkpoints]") {
    const TempDir folder;
    const Run run = past_the_best(folder).with({{"train.early_stop", "3"}});
    for (const char* steps : {"4", "9"}) run.with({{"train.max_steps", steps}}).expect(0);
    run.with({{"train.max_steps", "15"}}).expect(0, 2);
    REQUIRE(run.events("end").back().texts.at("reason") == "early_stop");
    REQUIRE(run.events("end").back()["steps"] == 10);
    REQUIRE(read_checkpoint(run.best_path()).position.at("updates") == 7);
}

TEST_CASE("the validation at the end of a run is part of its last checkpoint", "[cli-checkpoints]") {
    const TempDir folder;
    const Run run = past_the_best(folder).with(
        {{"train.max_steps", "7"}, {"train.eval_every", "3 steps"}, {"checkpoint.every", "1 steps"}});
    const Checkpoint end = run.finish(2);
    REQUIRE(run.column("valid", "step") == std::vector<double>{3, 6, 7});
    REQUIRE(end.position.at("best_step") == 7);
    REQUIRE(end.position.at("best") == run.events("end")[0]["best"]);
    run.with({{"train.max_steps", "9"}}).expect(0, 2);
    REQUIRE(read_checkpoint(run.best_path()).position.at("updates") == 7);  // step 9 is worse
}

TEST_CASE("config.ini is complete and can be run again", "[cli-checkpoints]") {
    const TempDir folder;
    write_samples(folder / "data.h5", clusters(30, Shape{1, 6, 6}, 3));
    const Run run(folder / "run", {{"data.train", folder / "data.h5"},
                                   {"model.layer", "conv out=3 kernel=3 padding=1  # the first"},
                                   {"model.layer", "batchnorm"},
                                   {"model.layer", "relu"},
                                   {"model.layer", "flatten"},
                                   {"model.layer", "dropout p=0.3"},
                                   {"model.layer", "linear out=classes name=head"},
                                   {"model.init", "normal std=0.05"},
                                   {"train.batch", "7"},
                                   {"train.epochs", "2"},
                                   {"train.reduction", "reproducible"},
                                   {"optim.betas", "0.8, 0.95"},
                                   {"optim.lr", "0.003"},
                                   {"run.seed", "17"}});
    const Checkpoint first = run.finish(2);
    const std::string ini = run.dir() / "config.ini", again = folder / "again";
    REQUIRE(trireme::testing::trireme(0, {"train", ini, "--run.dir=" + again}).status == 0);
    const Checkpoint second = Run(again, {}).last();
    REQUIRE(same_bits(first.weights, second.weights));
    REQUIRE(same_bits(first.states, second.states));
    REQUIRE(first.weights.size() == 8);
    // Nothing but the directory differs.
    std::string a = read_file(ini), b = read_file(again + "/config.ini");
    const auto without = [](std::string text, const std::string& part) {
        const std::size_t at = text.find(part);
        REQUIRE(at != std::string::npos);
        return text.erase(at, part.size());
    };
    REQUIRE(without(a, "dir = " + run.dir().string()) == without(b, "dir = " + again));
}

TEST_CASE("checkpoints by the clock are agreed by all ranks", "[cli-checkpoints]") {
    const TempDir folder;
    write_samples(folder / "data.h5", clusters(20, Shape{4}, 3));
    // Shorter than any step: due after each of them.
    const Run run(folder / "run", {{"data.train", folder / "data.h5"},
                                   {"train.batch", "4"},
                                   {"train.epochs", "1"},
                                   {"checkpoint.every", "0.000000001 minutes"},
                                   {"checkpoint.keep", "9"}});
    run.expect(0, 3);
    REQUIRE(run.saved_steps() == std::vector<std::int64_t>{1, 2, 3, 4, 5});
}
