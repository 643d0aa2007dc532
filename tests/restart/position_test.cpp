// Runs that stop and go on: to the very sample and bit, at the right place, also on another number of ranks.
#include <chrono>

#include "support/catch.hpp"
#include "support/runs.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

namespace fs = std::filesystem;

// 35 samples in batches of 12: three steps an epoch, the last one short. Dropout, BatchNorm, moments, a
// schedule. It validates after every step, as a run does that is stopped there.
Run whole_run(const TempDir& folder) {
    write_samples(folder / "data.h5", clusters(35, Shape{6}, 5));
    write_samples(folder / "valid.h5", clusters(13, Shape{6}, 5, 2));
    return Run(folder / "whole", {{"data.train", folder / "data.h5"},
                                  {"data.valid", folder / "valid.h5"},
                                  {"data.normalize", "standard"},
                                  {"model.width", "12"},
                                  {"model.dropout", "0.3"},
                                  {"model.batchnorm", "true"},
                                  {"train.batch", "12"},
                                  {"train.epochs", "4"},
                                  {"train.reduction", "reproducible"},
                                  {"optim.name", "adamw"},
                                  {"optim.lr", "0.02"},
                                  {"optim.weight_decay", "0.1"},
                                  {"schedule.name", "cosine"},
                                  {"schedule.warmup_steps", "4"},
                                  {"train.eval_every", "1 steps"},
                                  {"checkpoint.keep", "20"},
                                  {"run.trace_samples", "true"},
                                  {"run.threads", "1"}});
}

void require_same_end(const Run& resumed, const Run& whole) {
    const Checkpoint a = resumed.last(), b = whole.last();
    REQUIRE(same_bits(a.weights, b.weights));
    REQUIRE(same_bits(a.states, b.states));
    REQUIRE(a.position == b.position);
    REQUIRE(resumed.trace() == whole.trace());
    for (const char* key : {"step", "epoch", "loss", "lr", "grad_norm", "samples"})
        REQUIRE(resumed.column("step", key) == whole.column("step", key));
    for (const char* key : {"step", "epoch", "loss", "accuracy", "count"})
        REQUIRE(resumed.column("valid", key) == whole.column("valid", key));
    const Checkpoint best = read_checkpoint(resumed.best_path()),
                     expected = read_checkpoint(whole.best_path());
    REQUIRE(same_bits(best.weights, expected.weights));
}

Run stopped_at(const Run& run, int steps) {
    return run.with({{"train.max_steps", std::to_string(steps)}});
}

}  // namespace

TEST_CASE("a run goes on to the same end in the middle of an epoch, on other numbers of ranks",
          "[restart-position]") {
    const TempDir folder;
    const Run whole = whole_run(folder);
    whole.expect(0, 0);
    REQUIRE(whole.column("step", "step").size() == 12);

    SECTION("saved by 2 ranks, resumed by 3") {
        const Run run = whole.at(folder / "cut");
        stopped_at(run, 5).expect(0, 2);
        REQUIRE(run.saved_steps().back() == 5);
        run.expect(0, 3);
        REQUIRE(run.events("start").back()["step"] == 5);
        REQUIRE_THAT(run.events("start").back().texts.at("resumed_from"), contains("step-00000005.h5"));
        REQUIRE(run.events("start").back()["ranks"] == 3);
        require_same_end(run, whole);
    }
    SECTION("4, then 1, then 2") {
        const Run run = whole.at(folder / "cut");
        stopped_at(run, 1).expect(0, 4);
        stopped_at(run, 8).expect(0, 0);
        run.expect(0, 2);
        require_same_end(run, whole);
    }
    SECTION("from a checkpoint given by path, into another directory") {
        const Run first = whole.at(folder / "first"), second = whole.at(folder / "second");
        stopped_at(first, 7).expect(0, 2);
        const std::string metrics = read_file(first.dir() / "metrics.jsonl");
        second.with({{"run.resume", first.checkpoint_path(7)}}).expect(0, 2);
        REQUIRE(same_bits(second.last().weights, whole.last().weights));
        REQUIRE(second.column("step", "step").front() == 8);
        REQUIRE(read_file(first.dir() / "metrics.jsonl") == metrics);
    }
    SECTION("from an earlier checkpoint of its own directory") {
        const Run run = whole.at(folder / "back");
        run.expect(0, 0);
        run.with({{"run.resume", run.checkpoint_path(6)}}).expect(0, 2);
        require_same_end(run, whole);
    }
}

TEST_CASE("a fast run goes on to the same end as well", "[restart-position]") {
    const TempDir folder;
    const Run whole = whole_run(folder).with({{"train.reduction", "fast"},
                                              {"train.lanes", "4"},
                                              {"model.batchnorm", "false"},
                                              {"optim.name", "sgd"},
                                              {"optim.momentum", "0.9"}});
    whole.expect(0, 0);
    const Run run = whole.at(folder / "cut"), same = whole.at(folder / "same");
    stopped_at(run, 5).expect(0, 2);
    run.with({{"train.lanes", "auto"}}).expect(0, 3);  // the lanes are those of the checkpoint
    REQUIRE(run.events("start").back()["lanes"] == 4);
    REQUIRE(run.trace() == whole.trace());
    REQUIRE(largest_difference(run.last().weights, whole.last().weights) < 1e-5);
    stopped_at(same, 5).expect(0, 0);
    same.expect(0, 0);
    require_same_end(same, whole);
}

TEST_CASE("case 13: a run stopped at an epoch's end does the rest, and a finished one has nothing to do",
          "[restart-position]") {
    const TempDir folder;
    const Run whole = whole_run(folder).with({{"train.epochs", "2"}, {"train.eval_every", "1 epoch"}});
    whole.expect(0, 0);
    const Run run = whole.at(folder / "cut");
    stopped_at(run, 3).expect(0, 2);
    REQUIRE(run.last().position.at("epoch") == 1);
    REQUIRE(run.last().position.at("step_in_epoch") == 0);
    run.expect(0, 2);
    REQUIRE(run.column("step", "step") == std::vector<double>{1, 2, 3, 4, 5, 6});
    REQUIRE(run.column("step", "epoch") == std::vector<double>{1, 1, 1, 2, 2, 2});
    REQUIRE(run.column("valid", "step") == std::vector<double>{3, 6});
    require_same_end(run, whole);

    const fs::path last = run.checkpoint_path(6);
    const std::string content = read_file(last), metrics = read_file(run.dir() / "metrics.jsonl");
    const auto time = fs::last_write_time(last);
    for (const int ranks : {0, 2}) {
        const Result again = run.expect(0, ranks);
        REQUIRE_THAT(again.err, contains("nothing to do"));
        REQUIRE(read_file(last) == content);
        REQUIRE(fs::last_write_time(last) == time);
        REQUIRE(read_file(run.dir() / "metrics.jsonl") == metrics);
    }
    SECTION("more epochs are something to do") {
        run.with({{"train.epochs", "3"}}).expect(0, 2);
        REQUIRE(run.column("step", "step").size() == 9);
    }
}

TEST_CASE("case 15: a damaged newest checkpoint is named and the one before is taken", "[restart-position]") {
    const TempDir folder;
    const Run whole = whole_run(folder);
    whole.expect(0, 0);
    const Run run = whole.at(folder / "cut");
    for (const int steps : {2, 9, 10}) stopped_at(run, steps).expect(0, 0);
    // The times of the files do not matter.
    fs::last_write_time(run.checkpoint_path(2), fs::file_time_type::clock::now() + std::chrono::hours(2));
    fs::last_write_time(run.checkpoint_path(9), fs::file_time_type::clock::now() + std::chrono::hours(1));
    SECTION("whole") {
        run.expect(0, 2);
        REQUIRE(run.events("start").back()["step"] == 10);
    }
    SECTION("truncated") {
        truncate_file(run.checkpoint_path(10), 0.7);
        const Result result = run.expect(0, 2);
        REQUIRE_THAT(result.err, contains(run.checkpoint_path(10)));
        REQUIRE(run.events("start").back()["step"] == 9);
        // The steps after it are done again, and stand in the metrics once.
        require_same_end(run, whole);
    }
    SECTION("empty, and something else of its name") {
        write_file(run.checkpoint_path(10), "");
        write_file(run.checkpoint_path(11), "no checkpoint at all");
        const Result result = run.expect(0, 2);
        REQUIRE_THAT(result.err, contains(run.checkpoint_path(10)));
        REQUIRE_THAT(result.err, contains(run.checkpoint_path(11)));
        REQUIRE(run.events("start").back()["step"] == 9);
        require_same_end(run, whole);
    }
}
