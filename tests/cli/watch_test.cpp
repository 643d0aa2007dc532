// A job that no longer gets on, or whose ranks have drifted apart, ends and says where it stood.
#include <signal.h>
#include <unistd.h>

#include "support/catch.hpp"
#include "support/runs.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

Run small_run(const TempDir& folder, const std::string& steps) {
    write_samples(folder / "data.h5", clusters(400, Shape{6}, 4));
    return Run(folder / "run", {{"data.train", folder / "data.h5"},
                                {"train.batch", "8"},
                                {"train.max_steps", steps},
                                {"train.epochs", "0"},
                                {"checkpoint.every", "never"},
                                {"run.threads", "1"}});
}

}  // namespace

TEST_CASE("a rank that stands still ends the job, which names it and says where the others are",
          "[cli-watch]") {
    const TempDir folder;
    const Run runs = small_run(folder, "1000000").with({{"run.stall_timeout", "3 seconds"}});
    for (const int stopped : {1, 0}) {
        const Run run = runs.at(folder / std::to_string(stopped));
        Process job = run.start(3);
        REQUIRE(run.wait_for_step(job, 20));
        ::kill(job.ranks().at(stopped), SIGSTOP);
        const Result result = job.wait();
        INFO("rank " << stopped << "\n" << result.err);
        CHECK(!result.timed_out);
        CHECK(result.status == 1);
        CHECK_THAT(result.err, contains("no progress for 3.0 s (run.stall_timeout)"));
        CHECK_THAT(result.err, contains("process " + std::to_string(stopped) + ": no answer"));
        CHECK_THAT(result.err, contains("all-reduce"));
        CHECK_THAT(result.err, contains("among 3 ranks"));
        CHECK_THAT(result.err, contains("step "));
    }
}

TEST_CASE("a job that was suspended as a whole goes on", "[cli-watch]") {
    const TempDir folder;
    const Run run = small_run(folder, "1000000").with({{"run.stall_timeout", "1 second"}});
    Process job = run.start(2);
    REQUIRE(run.wait_for_step(job, 20));
    for (const auto& [rank, pid] : job.ranks()) ::kill(pid, SIGSTOP);
    ::sleep(4);
    const double before = run.column("step", "step").back();
    for (const auto& [rank, pid] : job.ranks()) ::kill(pid, SIGCONT);
    REQUIRE(run.wait_for_step(job, static_cast<std::int64_t>(before) + 50));
    ::kill(job.ranks().at(0), SIGTERM);
    const Result result = job.wait();
    INFO(result.out << result.err);
    CHECK(result.status == 75);
}

TEST_CASE("replicas that start from different weights are found before the first step", "[cli-watch]") {
    const TempDir folder;
    const Run run = small_run(folder, "3");
    // As on machines whose local disks do not hold the same file.
    for (const char* machine : {"a", "b"}) {
        std::filesystem::create_directories(folder / machine);
        const Run source = run.at(folder / (std::string("source-") + machine))
                               .with({{"run.seed", machine == std::string("a") ? "1" : "2"}});
        source.expect(0);
        const Result exported =
            trireme::testing::trireme(0, {"export", source.checkpoint_path(3),
                                          "--output=" + (folder / machine / "w.safetensors").string()});
        REQUIRE(exported.status == 0);
    }
    const std::vector<std::string> train = run.with({{"run.init_from", "w.safetensors"}}).arguments();
    std::vector<std::vector<std::string>> ranks;
    for (const char* machine : {"a", "b"}) {
        ranks.push_back({"-wdir", (folder / machine).string(), trireme_exe().string()});
        ranks.back().insert(ranks.back().end(), train.begin(), train.end());
    }
    const Result result = trireme::testing::run(ranks_unlike(ranks));
    INFO(result.out << result.err);
    CHECK(result.status == 1);
    CHECK_THAT(result.err, contains("the weights after step 0 should be the same"));
    CHECK_THAT(result.err, contains("rank 1 from rank 0"));
}

TEST_CASE("a profile and a trace of all ranks at the end", "[cli-watch]") {
    const TempDir folder;
    const std::string trace = folder / "trace.json";
    const Run run = small_run(folder, "30")
                        .with({{"profile.enable", "true"}, {"profile.trace", trace}, {"profile.steps", "4"}});
    for (const int ranks : {0, 2}) {
        const Result result = run.with({{"run.resume", "none"}}).train(ranks);
        INFO(result.out << result.err);
        REQUIRE(result.status == 0);
        CHECK_THAT(result.out + result.err, contains("where the time went: "));
        CHECK_THAT(result.out + result.err, contains("communication to computation: "));
        CHECK_THAT(result.out + result.err, contains("trace of 4 steps: " + trace));
        const std::string text = read_file(trace);
        CHECK(text.starts_with("{\"traceEvents\":["));
        CHECK(text.ends_with("]}\n"));
        CHECK((text.find("\"rank 1\"") != std::string::npos) == (ranks == 2));
        std::size_t forward = 0;
        for (std::size_t at = text.find("forward of lane"); at != std::string::npos;
             at = text.find("forward of lane", at + 1))
            ++forward;
        CHECK(forward == 4 * static_cast<std::size_t>(std::max(1, ranks)));
        const Event end = run.events("end").back();
        CHECK(end.has("communication_s"));
        CHECK((end["communication_s"] > 0) == (ranks == 2));
    }
}
