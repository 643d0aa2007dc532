// The scripts of jobs/, as users submit them, on a throwaway Slurm cluster of two nodes on this machine.
// Needs Slurm and the laboratory that starts it; skipped by name where one of them is missing.

#include <chrono>
#include <thread>

#include "support/catch.hpp"
#include "support/runs.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

class Lab {
public:
    Lab() : tool_(shared_dir() / "slurm-lab" / "slurm-lab") {
        options_.env["SLURM_LAB_DIR"] = folder_.path().string() + "/lab";
        options_.env["OMPI_MCA_mpi_yield_when_idle"] = "1";
        options_.env["TRIREME"] = trireme_exe().string();
        options_.timeout = 120;
        const bool there =
            !shared_dir().empty() && std::filesystem::exists(tool_) &&
            run({"/bin/sh", "-c", "PATH=$PATH:/usr/sbin command -v slurmctld munged srun"}).status == 0;
        if (!there) return;
        std::filesystem::permissions(folder_.path(), std::filesystem::perms(0755));  // for Slurm's daemons
        const Result up = call({"up", "2"});
        INFO(up.err);
        REQUIRE(up.status == 0);
        up_ = true;
    }
    ~Lab() {
        if (up_) call({"down"});
    }
    bool up() const { return up_; }

    /// Submits a script of jobs/ and waits for its end; what it has printed.
    std::string submit(std::vector<std::string> arguments, const std::vector<std::string>& more) {
        const std::string out = (folder_ / "job-%a.out").string();
        std::vector<std::string> words = {
            "run", "sbatch", "--parsable", "--wait", "-D", source_dir().string(), "-o", out};
        words.insert(words.end(), arguments.begin(), arguments.end());
        words.insert(words.end(), more.begin(), more.end());
        const Result result = call(words);
        status = result.status;
        INFO(result.err);
        std::string text = result.out + result.err;
        for (const auto& file : std::filesystem::directory_iterator(folder_.path()))
            if (file.path().extension() == ".out") {
                text += read_file(file.path());
                std::filesystem::remove(file.path());
            }
        return text;
    }
    static std::string script(const std::string& name) { return (source_dir() / "jobs" / name).string(); }

    int status = -1;  ///< of the last job

private:
    Result call(const std::vector<std::string>& words) const {
        std::vector<std::string> all = {tool_.string()};
        all.insert(all.end(), words.begin(), words.end());
        return run(all, options_);
    }

    TempDir folder_;
    std::filesystem::path tool_;
    Options options_;
    bool up_ = false;
};

Run small_run(const TempDir& folder, const Keys& keys = {}) {
    write_samples(folder / "train.h5", clusters(64, Shape{6}, 3));
    write_samples(folder / "valid.h5", clusters(20, Shape{6}, 3, 2));
    return Run(folder / "run", {{"data.train", folder / "train.h5"},
                                {"data.valid", folder / "valid.h5"},
                                {"model.width", "8"},
                                {"train.batch", "16"},
                                {"train.epochs", "3"},
                                {"train.reduction", "reproducible"}})
        .with(keys);
}

/// The run's configuration file.
std::string file_of(const Run& run) {
    return run.arguments().at(1);
}

}  // namespace

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
