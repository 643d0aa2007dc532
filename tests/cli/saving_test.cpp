// Checkpoints written while training goes on: the same files, and errors that end the run.
#include <sys/resource.h>

#include <chrono>
#include <thread>

#include "support/catch.hpp"
#include "support/runs.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

namespace fs = std::filesystem;

Run saving_run(const TempDir& folder) {
    write_samples(folder / "data.h5", clusters(96, Shape{8}, 4));
    return Run(folder / "run", {{"data.train", folder / "data.h5"},
                                {"data.valid", folder / "data.h5"},
                                {"model.width", "32"},
                                {"model.depth", "2"},
                                {"train.batch", "12"},
                                {"train.epochs", "2"},
                                {"train.eval_every", "3 steps"},
                                {"train.ema", "0.9"},
                                {"checkpoint.every", "3 steps"},
                                {"checkpoint.keep", "99"},
                                {"run.threads", "1"}});
}

/// Waits until the run has saved a step; then does something to its directory.
template <class Action>
Result disturbed(const Run& run, int ranks, Action action) {
    Process job = run.start(ranks);
    while (job.running() && run.newest_step() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    action();
    return job.wait();
}

}  // namespace

TEST_CASE("checkpoints written behind are those written at once", "[cli-saving]") {
    const TempDir folder;
    const Run plain = saving_run(folder);
    const struct {
        int ranks;
        Keys keys;
    } cases[] = {{0, {}},
                 {2, {}},
                 {2, {{"parallel.zero", "3"}}},
                 {2, {{"parallel.tensor", "2"}}},
                 {2, {{"parallel.pipeline", "2"}, {"train.lanes", "4"}}},
                 {0, {{"run.devices", "2"}}},
                 {2, {{"run.devices", "2"}, {"parallel.zero", "2"}}}};
    int number = 0;
    for (const auto& [ranks, keys] : cases) {
        const std::string name = std::to_string(number++);
        INFO("case " << name);
        const Run at_once =
            plain.at(folder / (name + "-once")).with(keys).with({{"checkpoint.async", "false"}});
        const Run behind = plain.at(folder / (name + "-behind")).with(keys);
        for (const Run* run : {&at_once, &behind}) {
            run->expect(0, ranks);
            REQUIRE(run->saved_steps() == std::vector<std::int64_t>{3, 6, 9, 12, 15, 16});
            for (const Event& saved : run->events("checkpoint")) REQUIRE(saved["stall_seconds"] >= 0);
        }
        for (const std::int64_t step : at_once.saved_steps()) {
            const Checkpoint a = at_once.checkpoint(step), b = behind.checkpoint(step);
            REQUIRE(same_bits(a.weights, b.weights));
            REQUIRE(same_bits(a.states, b.states));
            REQUIRE(a.position == b.position);
        }
        REQUIRE(same_bits(read_checkpoint(at_once.best_path()).weights,
                          read_checkpoint(behind.best_path()).weights));
        for (const Event& saved : at_once.events("checkpoint"))
            REQUIRE(saved["stall_seconds"] == saved["seconds"]);
    }
}

TEST_CASE("a checkpoint that cannot be written ends the run with its name, on all ranks", "[cli-saving]") {
    const TempDir folder;
    const Run base = saving_run(folder).with({{"train.epochs", "100000"}, {"checkpoint.every", "5 steps"}});
    for (const std::string async : {"true", "false"}) {
        const Run run = base.at(folder / ("gone-" + async)).with({{"checkpoint.async", async}});
        const Result result = disturbed(run, 2, [&] {
            fs::rename(run.dir() / "checkpoints", run.dir() / "earlier");
            write_file(run.dir() / "checkpoints", "no folder");
        });
        INFO(result.err);
        REQUIRE(result.status == 1);
        REQUIRE(result.seconds < 20);
        REQUIRE_THAT(result.err, contains((run.dir() / "checkpoints").string()));
        REQUIRE_THAT(result.err, contains("could not be saved"));
        REQUIRE(result.err.find("could not be saved") == result.err.rfind("could not be saved"));
        fs::remove(run.dir() / "checkpoints");
        fs::rename(run.dir() / "earlier", run.dir() / "checkpoints");
        run.with({{"train.max_steps", "20"}}).expect(0, 2);  // what was saved before is whole
    }
}

TEST_CASE("a run directory whose checkpoints are removed goes on with new ones", "[cli-saving]") {
    const TempDir folder;
    const Run run = saving_run(folder).with({{"train.epochs", "60"}, {"checkpoint.keep", "2"}});
    const Result result = disturbed(run, 2, [&] {
        std::error_code ignored;
        fs::remove_all(run.dir() / "checkpoints", ignored);
    });
    INFO(result.err);
    // A file that goes while it is being written is an error like any other; else the folder is made again.
    REQUIRE((result.status == 0 || result.status == 1));
    if (result.status == 1) REQUIRE_THAT(result.err, contains("could not be saved"));
    run.expect(0, 2);
    REQUIRE(run.saved_steps().back() == 480);
}

TEST_CASE("a disk that fills up ends the run, and what was saved stays", "[cli-saving]") {
    const TempDir folder;
    const Run run = saving_run(folder).with({{"model.width", "1400"}, {"checkpoint.every", "8 steps"}});
    run.expect(0, 2);
    const std::int64_t saved = run.saved_steps().back();
    rlimit usual{};
    getrlimit(RLIMIT_FSIZE, &usual);
    const rlimit limit{20000000, usual.rlim_max};  // of 32 MB; MPI's own files are smaller
    setrlimit(RLIMIT_FSIZE, &limit);
    const Result result = run.with({{"train.epochs", "4"}}).train(2);
    setrlimit(RLIMIT_FSIZE, &usual);
    INFO(result.err);
    REQUIRE(result.status == 1);
    REQUIRE_THAT(result.err, contains("could not be saved"));
    REQUIRE_THAT(result.err, contains("File too large"));
    REQUIRE(run.saved_steps().back() == saved);
    run.with({{"train.epochs", "4"}}).expect(0, 2);
}
