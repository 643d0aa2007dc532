// A rank that is killed takes the job with it within seconds; the next start goes on from the last whole
// checkpoint and reaches the end that it would have had.
#include <signal.h>

#include <chrono>
#include <random>
#include <thread>

#include "support/catch.hpp"
#include "support/runs.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

namespace fs = std::filesystem;

Run long_run(const TempDir& folder) {
    write_samples(folder / "data.h5", clusters(2003, Shape{6}, 5));
    return Run(folder / "whole", {{"data.train", folder / "data.h5"},
                                  {"data.valid", folder / "data.h5"},
                                  {"model.width", "8"},
                                  {"model.batchnorm", "true"},
                                  {"model.depth", "1"},
                                  {"model.dropout", "0.2"},
                                  {"train.batch", "12"},
                                  {"train.epochs", "6"},
                                  {"train.reduction", "reproducible"},
                                  {"train.lanes", "4"},
                                  {"optim.lr", "0.005"},
                                  {"checkpoint.every", "50 steps"},
                                  {"run.trace_samples", "true"},
                                  {"run.threads", "1"}});
}

// One that is dead and not yet collected by its parent has no program any more.
bool runs_still(pid_t pid) {
    std::error_code gone;
    return !fs::read_symlink("/proc/" + std::to_string(pid) + "/exe", gone).empty();
}

void kill_one(const Run& run, int ranks, int rank, std::int64_t after) {
    Process job = run.start(ranks);
    REQUIRE(run.wait_for_step(job, after));
    const std::map<int, pid_t> pids = job.ranks();
    ::kill(pids.at(rank), SIGKILL);
    const auto killed = std::chrono::steady_clock::now();
    const Result result = job.wait();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - killed;
    INFO(ranks << " ranks, rank " << rank << " killed\n" << result.err);
    REQUIRE(result.status != 0);
    REQUIRE(result.status != 75);
    REQUIRE(took.count() < 10);
    for (const auto& [other, pid] : pids) REQUIRE_FALSE(runs_still(pid));
}

void require_same_end(const Run& run, const Run& whole) {
    REQUIRE(same_bits(run.last().weights, whole.last().weights));
    REQUIRE(same_bits(run.last().states, whole.last().states));
    REQUIRE(run.last().position == whole.last().position);
    REQUIRE(run.trace() == whole.trace());
    REQUIRE(run.column("step", "loss") == whole.column("step", "loss"));
    REQUIRE(run.column("valid", "loss") == whole.column("valid", "loss"));
    for (const auto& entry : fs::directory_iterator(run.dir() / "checkpoints"))
        REQUIRE(entry.path().extension() == ".h5");  // no temporary file is left
}

}  // namespace

TEST_CASE("killing a rank ends the job, and the next start reaches the same bits", "[restart-kill]") {
    const TempDir folder;
    const Run whole = long_run(folder);
    whole.expect(0, 0);
    SECTION("the last of two, then the first of three") {
        const Run run = whole.at(folder / "killed");
        kill_one(run, 2, 1, 130);
        // What was ordered last may not have been written in time, but what was ordered before that was.
        const std::int64_t saved = run.saved_steps().back();
        REQUIRE(saved >= 50);
        kill_one(run, 3, 0, saved + 127);
        REQUIRE(run.saved_steps().back() >= saved + 50);
        run.expect(0, 2);
        REQUIRE(run.events("start").size() == 3);
        require_same_end(run, whole);
    }
    SECTION("before anything was saved") {
        const Run run = whole.at(folder / "early");
        kill_one(run, 2, 0, 3);
        run.expect(0, 2);
        require_same_end(run, whole);
    }
}

TEST_CASE("killing ranks while they save loses nothing that was saved", "[restart-kill]") {
    const TempDir folder;
    write_samples(folder / "data.h5", clusters(96, Shape{64}, 5));
    // 14 MB after each step, which itself takes a fraction of that time.
    const Run whole(folder / "whole", {{"data.train", folder / "data.h5"},
                                       {"model.width", "1000"},
                                       {"model.depth", "2"},
                                       {"train.batch", "8"},
                                       {"train.epochs", "4"},
                                       {"train.reduction", "reproducible"},
                                       {"train.lanes", "2"},
                                       {"checkpoint.every", "1 steps"},
                                       {"checkpoint.keep", "2"},
                                       {"run.threads", "1"}});
    whole.with({{"checkpoint.every", "never"}}).expect(0, 0);
    std::mt19937 random(7);
    for (const std::string async : {"true", "false"}) {
        const Run run = whole.at(folder / async).with({{"checkpoint.async", async}});
        for (int death = 0; death < 4; ++death) {
            const std::int64_t before = run.newest_step();
            Process job = run.start(2);
            while (job.running() && run.newest_step() == before)
                std::this_thread::sleep_for(std::chrono::milliseconds(2));
            std::this_thread::sleep_for(std::chrono::microseconds(random() % 150000));
            const std::map<int, pid_t> pids = job.ranks();
            if (const auto one = pids.find(static_cast<int>(random() % 2)); one != pids.end())
                ::kill(one->second, SIGKILL);
            const Result result = job.wait();
            INFO("async=" << async << ", death " << death << " after step " << before << "\n" << result.err);
            REQUIRE(result.status != 75);
            REQUIRE(run.newest_step() > before);
            for (const std::int64_t step : run.saved_steps()) REQUIRE_NOTHROW(run.checkpoint(step));
        }
        run.expect(0, 2);
        require_same_end(run, whole);
    }
}
