// Case 17: a signal to one rank stops all ranks at the same step with a checkpoint, from which the run goes
// on to the very end that it would have had.
#include <signal.h>

#include "support/catch.hpp"
#include "support/runs.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

// Long enough for a signal to come in the middle, with few samples a step. Nothing is saved on the way.
Run long_run(const TempDir& folder, const std::string& reduction) {
    write_samples(folder / "data.h5", clusters(4001, Shape{6}, 5));
    return Run(folder / "whole", {{"data.train", folder / "data.h5"},
                                  {"model.width", "8"},
                                  {"model.depth", "1"},
                                  {"model.dropout", "0.2"},
                                  {"train.batch", "8"},
                                  {"train.epochs", "3"},
                                  {"train.reduction", reduction},
                                  {"train.lanes", "4"},
                                  {"optim.lr", "0.005"},
                                  {"checkpoint.every", "never"},
                                  {"run.trace_samples", "true"},
                                  {"run.threads", "1"}});
}

constexpr double all_steps = 3 * 501;

// Sends the signal to one rank; returns the step at which all have stopped.
std::int64_t interrupt(const Run& run, int ranks, int rank, int signal, std::int64_t after) {
    Process job = run.start(ranks);
    REQUIRE(run.wait_for_step(job, after));
    const std::map<int, pid_t> pids = job.ranks();
    REQUIRE(pids.size() == static_cast<std::size_t>(std::max(ranks, 1)));
    ::kill(pids.at(rank), signal);
    const Result result = job.wait();
    INFO(ranks << " ranks, signal " << signal << " to rank " << rank << "\n" << result.err);
    REQUIRE(result.status == 75);
    REQUIRE(run.events().back().kind == "end");
    REQUIRE(run.events().back().texts.at("reason") == "signal");
    const std::vector<double> steps = run.column("step", "step");
    REQUIRE(steps.back() < all_steps);
    // The same last step everywhere: each rank's lanes of it are in its trace, and the checkpoint has its
    // number.
    std::map<std::int64_t, std::size_t> samples_of_lane;
    const std::vector<TracedSample> trace = run.trace();
    for (const TracedSample& sample : trace)
        if (sample.step == trace.back().step) ++samples_of_lane[sample.lane];
    REQUIRE(static_cast<double>(trace.back().step) == steps.back());
    REQUIRE((samples_of_lane.size() == 4 || trace.back().step % 501 == 0));
    REQUIRE(run.saved_steps().back() == trace.back().step);
    return trace.back().step;
}

}  // namespace

TEST_CASE("case 17: SIGTERM or SIGUSR1 to one rank stops and saves all, and the run goes on to the same bits",
          "[restart-signal]") {
    const TempDir folder;
    const Run whole = long_run(folder, "reproducible");
    whole.expect(0, 0);
    const Checkpoint end = whole.last();
    const std::vector<TracedSample> trace = whole.trace();
    REQUIRE(trace.size() == 3 * 4001);

    const auto require_same_end = [&](const Run& run) {
        REQUIRE(same_bits(run.last().weights, end.weights));
        REQUIRE(same_bits(run.last().states, end.states));
        REQUIRE(run.last().position == end.position);
        REQUIRE(run.trace() == trace);
        REQUIRE(run.column("step", "loss") == whole.column("step", "loss"));
    };
    SECTION("two ranks, twice, then two") {
        const Run run = whole.at(folder / "two");
        const std::int64_t first = interrupt(run, 2, 1, SIGTERM, 20);
        REQUIRE(interrupt(run, 2, 0, SIGUSR1, first + 20) > first);
        run.expect(0, 2);
        require_same_end(run);
    }
    SECTION("three ranks, then one") {
        const Run run = whole.at(folder / "three");
        interrupt(run, 3, 2, SIGUSR1, 20);
        run.expect(0, 0);
        require_same_end(run);
    }
    SECTION("one process, then three ranks") {
        const Run run = whole.at(folder / "one");
        interrupt(run, 0, 0, SIGTERM, 20);
        interrupt(run, 0, 0, SIGINT, 300);
        interrupt(run, 3, 1, SIGTERM, 600);
        run.expect(0, 2);
        require_same_end(run);
    }
}

TEST_CASE("case 17: a signal to the launcher reaches the ranks", "[restart-signal]") {
    const TempDir folder;
    const Run run = long_run(folder, "fast");
    Process job = run.start(2);
    REQUIRE(run.wait_for_step(job, 20));
    job.kill(SIGTERM);
    const Result result = job.wait();
    INFO(result.err);
    REQUIRE(result.seconds < 20);
    REQUIRE(result.status != 0);
    // The launcher may kill the ranks before they have saved; what there is, is whole and can be gone on
    // from.
    const Result second = run.with({{"train.max_steps", "100"}}).expect(0, 2);
    REQUIRE(second.out.find("error") == std::string::npos);
}

TEST_CASE("a run saves and stops before its time is up", "[restart-signal]") {
    const TempDir folder;
    const Run run =
        long_run(folder, "fast").with({{"train.epochs", "100000"}, {"run.time_limit", "3 seconds"}});
    for (const std::int64_t begun : {0, 1}) {  // and again from where it stopped
        const Result result = run.train(2);
        INFO(result.err);
        REQUIRE(result.status == 75);
        REQUIRE(result.seconds < 10);
        const std::vector<Event> events = run.events();
        REQUIRE(events.back().kind == "end");
        REQUIRE(events.back().texts.at("reason") == "time_limit");
        REQUIRE(run.saved_steps().back() == static_cast<std::int64_t>(run.column("step", "step").back()));
        REQUIRE(static_cast<std::int64_t>(run.column("start", "step").size()) == begun + 1);
    }
}
