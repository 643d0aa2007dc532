// The run directory: whole metric lines, one job at a time, and no run that overwrites another.
#include <signal.h>

#include "support/catch.hpp"
#include "support/runs.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

namespace fs = std::filesystem;

Run small_run(const TempDir& folder) {
    if (!fs::exists(folder / "data.h5")) write_samples(folder / "data.h5", clusters(64, Shape{4}, 4));
    return Run(folder / "run", {{"data.train", folder / "data.h5"},
                                {"data.valid", folder / "data.h5"},
                                {"model.width", "8"},
                                {"model.depth", "1"},
                                {"train.batch", "8"},
                                {"train.epochs", "2"},
                                {"run.threads", "1"}});
}

}  // namespace

TEST_CASE("case 27: with 8 ranks each metric line is there once and parses", "[cli-run_directory]") {
    const TempDir folder;
    const Run run = small_run(folder).with({{"train.epochs", "3"}, {"run.trace_samples", "true"}});
    run.expect(0, 8);
    const std::vector<Event> events = run.events();
    REQUIRE(run.column("step", "step").size() == 24);
    for (std::size_t i = 0; i < 24; ++i) REQUIRE(run.column("step", "step")[i] == static_cast<double>(i + 1));
    REQUIRE(run.column("valid", "step") == std::vector<double>{8, 16, 24});
    REQUIRE(run.column("valid", "count") == std::vector<double>{64, 64, 64});
    REQUIRE(run.events("start").size() == 1);
    REQUIRE(run.events("end").size() == 1);
    REQUIRE(events.front().kind == "start");
    REQUIRE(events.back().kind == "end");
    REQUIRE(run.trace().size() == 3 * 64);
    for (const Event& event : run.events("step"))
        for (const char* key :
             {"step", "epoch", "loss", "lr", "grad_norm", "scale", "skipped", "samples", "samples_per_s"})
            REQUIRE(event.has(key));
}

TEST_CASE("case 27: a second job in the same directory is refused and harms nothing", "[cli-run_directory]") {
    const TempDir folder;
    const Run run = small_run(folder).with({{"train.epochs", "100000"},
                                            {"train.eval_every", "never"},
                                            {"checkpoint.every", "never"},
                                            {"train.log_every", "50"}});
    Process first = run.start(1);
    REQUIRE(run.wait_for_step(first, 50));
    for (const int ranks : {0, 2}) {
        const Result second = run.expect(2, ranks);
        REQUIRE_THAT(second.err, contains(run.dir()));
        REQUIRE_THAT(second.err, contains("another job"));
        REQUIRE(second.seconds < 10);
    }
    REQUIRE(first.running());
    ::kill(first.ranks().at(0), SIGTERM);
    REQUIRE(first.wait().status == 75);
    const std::vector<double> steps = run.column("step", "step");
    for (std::size_t i = 0; i < steps.size(); ++i) REQUIRE(steps[i] == static_cast<double>(50 * (i + 1)));
    REQUIRE(run.events("start").size() == 1);
    REQUIRE(run.saved_steps().size() == 1);
    REQUIRE(static_cast<double>(run.saved_steps()[0]) == run.events("end").at(0)["steps"]);
}

TEST_CASE("case 27: a run that starts afresh keeps the earlier one aside", "[cli-run_directory]") {
    const TempDir folder;
    const Run run = small_run(folder).with({{"run.trace_samples", "true"}});
    run.expect(0, 2);
    const std::string metrics = read_file(run.dir() / "metrics.jsonl");
    const std::string checkpoint = read_file(run.checkpoint_path(16)), best = read_file(run.best_path());
    const std::string trace = read_file(run.dir() / "samples-1.csv");

    const Run afresh = run.with({{"run.resume", "none"}, {"run.seed", "5"}});
    const Result result = afresh.expect(0, 2);
    REQUIRE_THAT(result.err, contains("old-1"));
    const fs::path old = run.dir() / "old-1";
    REQUIRE(read_file(old / "metrics.jsonl") == metrics);
    REQUIRE(read_file(old / "checkpoints/step-00000016.h5") == checkpoint);
    REQUIRE(read_file(old / "checkpoints/best.h5") == best);
    REQUIRE(read_file(old / "samples-1.csv") == trace);
    REQUIRE(fs::exists(old / "config.ini"));
    REQUIRE(run.events("start").size() == 1);
    REQUIRE(run.events("start")[0]["step"] == 0);
    REQUIRE(read_file(run.checkpoint_path(16)) != checkpoint);

    const std::string second = read_file(run.dir() / "metrics.jsonl");
    afresh.expect(0, 0);
    REQUIRE(read_file(old / "metrics.jsonl") == metrics);
    REQUIRE(read_file(run.dir() / "old-2/metrics.jsonl") == second);
}

TEST_CASE("a start that is refused leaves the earlier run where it was", "[cli-run_directory]") {
    const TempDir folder;
    const Run run = small_run(folder);
    run.expect(0);
    const std::string metrics = read_file(run.dir() / "metrics.jsonl");
    const std::string config = read_file(run.dir() / "config.ini");
    const auto require_untouched = [&] {
        REQUIRE(read_file(run.dir() / "metrics.jsonl") == metrics);
        REQUIRE(read_file(run.dir() / "config.ini") == config);
        REQUIRE(run.saved_steps() == std::vector<std::int64_t>{8, 16});
        REQUIRE_FALSE(fs::exists(run.dir() / "old-1"));
    };
    run.with({{"run.resume", "none"}, {"data.train", folder / "nowhere.h5"}}).expect(3);
    require_untouched();
    run.with({{"run.resume", "none"}, {"model.arch", "cnn"}}).expect(2);
    require_untouched();
    run.with({{"run.resume", run.checkpoint_path(8)}, {"model.width", "16"}}).expect(3);
    require_untouched();
    run.with({{"run.resume", folder / "missing.h5"}}).expect(3);
    require_untouched();
}
