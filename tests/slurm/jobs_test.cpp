// The scripts of jobs/, as users submit them, on a throwaway Slurm cluster of two nodes on this machine.
// Needs Slurm and the laboratory that starts it; skipped by name where one of them is missing.

#include <chrono>
#include <thread>

#include "support/catch.hpp"
#include "support/slurm_lab.hpp"

using namespace trireme;
using namespace trireme::testing;

TEST_CASE("the scripts of jobs/ work under Slurm", "[slurm-jobs]") {
    Lab lab;
    if (!lab.up()) {
        WARN("skipped: no Slurm, or no laboratory to start it");
        return;
    }
    const TempDir folder;
    SECTION("one node, then two: the same weights") {
        const Run one = small_run(folder);
        std::string text = lab.submit({Lab::script("slurm_single.sbatch")}, {file_of(one)});
        INFO(text);
        REQUIRE(lab.status == 0);
        CHECK(one.events("start")[0]["ranks"] == 2);
        const Run two = one.at(folder / "two");
        text = lab.submit({Lab::script("slurm_multi.sbatch")}, {file_of(two)});
        INFO(text);
        REQUIRE(lab.status == 0);
        CHECK_THAT(text, contains("verdict: this launch works"));
        CHECK_THAT(text, contains("node2"));
        CHECK(two.events("start")[0]["ranks"] == 4);
        CHECK(same_bits(two.last().weights, one.last().weights));
    }
    SECTION("a run longer than its jobs is requeued until it is done") {
        const Run whole = small_run(folder, {{"train.epochs", "30"}, {"checkpoint.every", "never"}});
        whole.expect(0, 0);
        // The first job's time is up at once, after a step; Slurm counts how often a job was started again.
        const std::filesystem::path program = folder / "trireme";
        write_file(
            program,
            "#!/bin/sh\n[ -n \"$SLURM_RESTART_COUNT\" ] || set -- \"$@\" '--run.time_limit=0.01 seconds'\n"
            "exec " +
                trireme_exe().string() + " \"$@\"\n");
        std::filesystem::permissions(program, std::filesystem::perms(0755));
        const Run cut = whole.at(folder / "cut");
        const std::string text =
            lab.submit({"--export=ALL,TRIREME=" + program.string(), Lab::script("slurm_requeue.sbatch")},
                       {file_of(cut)});
        INFO(text);
        const auto reason = [&] {
            const std::vector<Event> ends = cut.events("end");
            return ends.empty() ? std::string() : ends.back().texts.at("reason");
        };
        for (int k = 0; k < 400 && reason() != "completed"; ++k)
            std::this_thread::sleep_for(std::chrono::milliseconds(200));
        REQUIRE(reason() == "completed");
        CHECK(cut.events("start").size() >= 2);
        CHECK(cut.events("end").front().texts.at("reason") == "time_limit");
        CHECK(cut.column("step", "step").size() == 120);
        CHECK(same_bits(cut.last().weights, whole.last().weights));
    }
    SECTION("a sweep as an array") {
        const Run sweep = small_run(folder, {{"sweep.param", "optim.lr choice 0.001, 0.01, 0.1"}});
        const std::string text =
            lab.submit({"--array=0-2", Lab::script("slurm_array_sweep.sbatch")}, {file_of(sweep)});
        INFO(text);
        REQUIRE(lab.status == 0);
        const std::string csv = read_file(sweep.dir() / "results.csv");
        CHECK(std::count(csv.begin(), csv.end(), '\n') == 4);
    }
    SECTION("a launch in which ranks cannot find each other fails and trains nothing") {
        // Open MPI ends such ranks itself; what Trireme says to one that is alone is a test of doctor.
        const Run run = small_run(folder);
        const std::string text =
            lab.submit({"--export=ALL,MPI=none", Lab::script("slurm_single.sbatch")}, {file_of(run)});
        INFO(text);
        CHECK(lab.status != 0);
        CHECK_THAT(text, contains("PMI"));
        CHECK_FALSE(std::filesystem::exists(run.dir() / "metrics.jsonl"));
    }
}
