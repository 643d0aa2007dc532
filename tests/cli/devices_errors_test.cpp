// How a process of several ranks ends: by one message and status when one of them has failed, in order when
// all have, and with a checkpoint upon a signal.
#include <signal.h>

#include <cmath>

#include "support/catch.hpp"
#include "support/runs.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

Keys small_run(const std::string& train, int devices) {
    return {{"data.train", train}, {"model.width", "8"},    {"model.depth", "1"},
            {"train.batch", "12"}, {"train.epochs", "200"}, {"optim.name", "sgd"},
            {"optim.lr", "0.001"}, {"run.threads", "1"},    {"run.devices", std::to_string(devices)}};
}

void require_ended(const Run& run, int processes, int status, const std::vector<std::string>& named) {
    const Result result = run.train(processes);
    INFO(processes << " processes\n" << result.out << result.err);
    REQUIRE(result.status == status);
    REQUIRE(result.seconds < 10);
    REQUIRE(count_of(result.err, "trireme: error:") == 1);
    for (const std::string& part : named) REQUIRE_THAT(result.err, contains(part));
}

}  // namespace

TEST_CASE("what one device meets ends the job while the others wait for it", "[cli-devices_errors]") {
    const TempDir folder;
    // One NaN: the rank whose lane comes upon it fails, in the middle of an epoch.
    Samples samples = clusters(600, Shape{4}, 3);
    samples.x[437 * 4 + 2] = std::nan("");
    write_samples(folder / "nan.h5", samples);
    for (const int devices : {2, 3})
        for (const int processes : {0, 2}) {
            const Run run =
                Run(folder / (std::to_string(processes) + "x" + std::to_string(devices)),
                    small_run(folder / "nan.h5", devices))
                    .with({{"data.cache", "none"}, {"parallel.overlap", devices == 3 ? "on" : "off"}});
            require_ended(run, processes, 3, {"rank ", folder / "nan.h5", "row 437"});
        }
    // All of a column: every rank fails, at its own time, and one speaks.
    for (std::size_t i = 0; i < 600; ++i) samples.x[4 * i] = INFINITY;
    write_samples(folder / "inf.h5", samples);
    for (int round = 0; round < 5; ++round)
        require_ended(Run(folder / ("all" + std::to_string(round)), small_run(folder / "inf.h5", 4)), 0, 3,
                      {"rank ", folder / "inf.h5", "inf"});
}

TEST_CASE("what all devices meet is said once", "[cli-devices_errors]") {
    const TempDir folder;
    write_samples(folder / "data.h5", clusters(60, Shape{4}, 3));
    const Run run(folder / "run", small_run(folder / "data.h5", 3));
    for (const int processes : {0, 2}) {
        require_ended(run.with({{"data.train", folder / "nowhere.h5"}}), processes, 3, {"nowhere.h5"});
        require_ended(run.with({{"train.batch", "0"}}), processes, 2, {"train.batch=0"});
        require_ended(run.with({{"parallel.tensor", "4"}}), processes, 2,
                      {"parallel.tensor=4", processes == 0 ? "ranks, 3" : "ranks, 6"});
        require_ended(run.at(folder / ("far" + std::to_string(processes))).with({{"optim.lr", "1e38"}}),
                      processes, 1, {"diverged"});
    }
}

TEST_CASE("a signal stops all devices at one step, saved, and the run goes on", "[cli-devices_errors]") {
    const TempDir folder;
    write_samples(folder / "data.h5", clusters(2001, Shape{6}, 5));
    const Run whole(folder / "whole", {{"data.train", folder / "data.h5"},
                                       {"model.width", "8"},
                                       {"model.depth", "1"},
                                       {"model.dropout", "0.2"},
                                       {"train.batch", "12"},
                                       {"train.epochs", "4"},
                                       {"train.reduction", "reproducible"},
                                       {"train.lanes", "6"},
                                       {"optim.lr", "0.005"},
                                       {"checkpoint.every", "never"},
                                       {"run.trace_samples", "true"},
                                       {"run.threads", "1"}});
    whole.expect(0, 0);
    const Run run = whole.at(folder / "stopped");
    const auto interrupt = [&](int processes, int devices, int to, int signal, std::int64_t after) {
        Process job = run.with({{"run.devices", std::to_string(devices)}}).start(processes);
        REQUIRE(run.wait_for_step(job, after));
        ::kill(job.ranks().at(to), signal);
        const Result result = job.wait();
        INFO(processes << " x " << devices << "\n" << result.err);
        REQUIRE(result.status == 75);
        REQUIRE(result.seconds < 30);
        REQUIRE(run.events().back().texts.at("reason") == "signal");
        const std::int64_t step = run.saved_steps().back();
        REQUIRE(run.trace().back().step == step);
        return step;
    };
    const std::int64_t first = interrupt(0, 3, 0, SIGTERM, 20);
    REQUIRE(interrupt(2, 2, 1, SIGUSR1, first + 20) > first);
    run.with({{"run.devices", "2"}}).expect(0, 0);
    REQUIRE(same_bits(run.last().weights, whole.last().weights));
    REQUIRE(same_bits(run.last().states, whole.last().states));
    REQUIRE(run.trace() == whole.trace());
    REQUIRE(run.column("step", "loss") == whole.column("step", "loss"));
}
