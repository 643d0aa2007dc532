// Sweeps: many trainings on parts of the communicator, on the same directory by several jobs, again and
// again.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "support/catch.hpp"
#include "support/runs.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

Run small_sweep(const TempDir& folder, const Keys& keys) {
    write_samples(folder / "train.h5", clusters(48, Shape{6}, 3));
    write_samples(folder / "valid.h5", clusters(20, Shape{6}, 3, 2));
    return Run(folder / "sweep", {{"data.train", folder / "train.h5"},
                                  {"data.valid", folder / "valid.h5"},
                                  {"model.width", "8"},
                                  {"train.batch", "16"},
                                  {"train.epochs", "4"},
                                  {"optim.name", "sgd"},
                                  {"run.threads", "1"}})
        .with(keys);
}

Result sweep(const Run& run, int ranks, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = run.arguments(more);
    arguments.front() = "sweep";
    return trireme::testing::trireme(ranks, arguments);
}

std::vector<std::string> lines_of(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
}

std::string text_of(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

}  // namespace

TEST_CASE("a grid is trained on groups of ranks, once, and its best configuration runs again",
          "[cli-sweep]") {
    const TempDir folder;
    const Run run = small_sweep(folder, {{"sweep.param", "optim.lr choice 0.3, 0.00001"},
                                         {"sweep.param", "model.activation choice relu, tanh"},
                                         {"sweep.ranks_per_trial", "2"}});
    const Result first = sweep(run, 4);
    INFO(first.err << first.out);
    REQUIRE(first.status == 0);
    const auto csv = lines_of(run.dir() / "results.csv");
    REQUIRE(csv.size() == 5);
    CHECK(csv[0] == "trial,optim.lr,model.activation,accuracy,epochs,steps,seconds,state");
    CHECK_THAT(csv[1], contains(",0.3,"));  // the rate that learns is first
    CHECK_THAT(csv[4], contains(",0.00001,"));
    for (std::size_t i = 1; i < csv.size(); ++i) CHECK_THAT(csv[i], contains(",4,12,"));
    for (const char* trial : {"00000", "00001", "00002", "00003"}) {
        const Run here(run.dir() / "trials" / trial, {});
        CHECK(here.column("step", "step").size() == 12);
        CHECK_FALSE(text_of(here.dir() / "config.ini").find("[sweep]") != std::string::npos);
    }
    CHECK_THAT(first.out, contains("best.ini"));
    REQUIRE(trireme::testing::trireme(0, {"train", (run.dir() / "best.ini").string()}).status == 0);
    CHECK(read_checkpoint(run.dir() / "best/checkpoints/step-00000012.h5").weights.size() == 6);

    // Again: nothing is left to do, and nothing is done twice.
    const auto before = text_of(run.dir() / "trials/00000/metrics.jsonl");
    REQUIRE(sweep(run, 2).status == 0);
    CHECK(text_of(run.dir() / "trials/00000/metrics.jsonl") == before);
    // Another sweep does not mix with this one.
    CHECK(sweep(run.with({{"sweep.seed", "9"}}), 2).status == 2);
}

TEST_CASE("a trial that fails is a result, not the end", "[cli-sweep]") {
    const TempDir folder;
    const Run run = small_sweep(folder, {{"sweep.param", "optim.lr choice 0.1, 1e30"}});
    const Result result = sweep(run, 2);
    INFO(result.err);
    REQUIRE(result.status == 0);
    const auto csv = lines_of(run.dir() / "results.csv");
    REQUIRE(csv.size() == 3);
    CHECK_THAT(csv[1], contains(",0.1,"));
    CHECK_THAT(csv[2], contains("failed: "));
    CHECK_THAT(csv[2], contains("diverged"));
}

TEST_CASE("successive halving spends its time on the best", "[cli-sweep]") {
    const TempDir folder;
    const Run run = small_sweep(folder, {{"sweep.param", "optim.lr loguniform 1e-6 1"},
                                         {"sweep.method", "random"},
                                         {"sweep.trials", "6"},
                                         {"sweep.halving", "2"},
                                         {"checkpoint.best", "loss"}});
    const Result result = sweep(run, 2);
    INFO(result.err);
    REQUIRE(result.status == 0);
    std::multiset<std::int64_t> epochs;
    for (int trial = 0; trial < 6; ++trial) {
        const Run here(run.dir() / "trials" / ("0000" + std::to_string(trial)), {});
        epochs.insert(static_cast<std::int64_t>(here.column("valid", "epoch").back()));
        // The horizon of the schedule is that of the whole run, and nothing was done twice.
        const auto steps = here.column("step", "step");
        for (std::size_t k = 0; k < steps.size(); ++k) CHECK(steps[k] == static_cast<double>(k + 1));
    }
    CHECK(epochs.count(4) >= 1);
    CHECK(epochs.count(1) >= 2);
    CHECK(epochs.count(1) + epochs.count(2) + epochs.count(4) == 6);
    const auto csv = lines_of(run.dir() / "results.csv");
    REQUIRE(csv.size() == 7);
    CHECK_THAT(csv[1], contains(",done"));
    CHECK_THAT(csv[6], contains(",stopped early"));
}

TEST_CASE("trials by index, as a Slurm array does, beside each other", "[cli-sweep]") {
    const TempDir folder;
    const Run run = small_sweep(folder, {{"sweep.param", "optim.lr choice 0.1, 0.2, 0.3"}});
    run.arguments();  // writes the file
    std::vector<Process> jobs;
    for (const char* index : {"0", "1", "2"}) {
        std::vector<std::string> arguments = run.arguments({"--index=" + std::string(index)});
        arguments.front() = "sweep";
        jobs.push_back(start_trireme(0, arguments));
    }
    for (Process& job : jobs) CHECK(job.wait().status == 0);
    CHECK(lines_of(run.dir() / "results.csv").size() == 4);
    CHECK(sweep(run, 0, {"--index=3"}).status == 2);
    CHECK(sweep(run, 0, {"--index=x"}).status == 2);
}

TEST_CASE("a sweep that was killed goes on", "[cli-sweep]") {
    const TempDir folder;
    const Run run =
        small_sweep(folder, {{"sweep.param", "optim.lr choice 0.1, 0.2, 0.3, 0.4"}, {"train.epochs", "40"}});
    std::vector<std::string> arguments = run.arguments();
    arguments.front() = "sweep";
    Process process = start_trireme(0, arguments);
    const Run second(run.dir() / "trials/00001", {});
    REQUIRE(second.wait_for_step(process, 5));
    process.kill(SIGKILL);
    process.wait();
    CHECK(lines_of(run.dir() / "results.csv").empty());
    REQUIRE(sweep(run, 2).status == 0);
    CHECK(lines_of(run.dir() / "results.csv").size() == 5);
    CHECK(Run(run.dir() / "trials/00000", {}).column("start", "step").size() == 1);  // it was finished before
}

TEST_CASE("sweeps that cannot work are refused before any trial", "[cli-sweep]") {
    const TempDir folder;
    const Run run = small_sweep(folder, {{"sweep.param", "train.batch choice 16, many"}});
    const auto refused = [&](const Run& wrong, int ranks) {
        const Result result = sweep(wrong, ranks);
        CHECK(result.status == 2);
        return result.err;
    };
    CHECK_THAT(refused(run, 0), contains("train.batch=many"));
    const Run fine = run.with({{"sweep.param", "train.batch choice 16, 8"}});
    CHECK_THAT(refused(fine.with({{"sweep.ranks_per_trial", "3"}}), 2), contains("ranks_per_trial=3"));
    CHECK_THAT(refused(fine.with({{"data.valid", ""}}), 0), contains("data.valid"));
    CHECK_THAT(
        refused(fine.with({{"sweep.halving", "2"}, {"train.epochs", "0"}, {"train.max_steps", "3"}}), 0),
        contains("train.epochs"));
    CHECK_FALSE(std::filesystem::exists(run.dir() / "trials"));
}
