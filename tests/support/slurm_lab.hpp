#pragma once
// A throwaway Slurm cluster of two nodes on this machine, and a run that is small enough for its jobs. Needs
// Slurm and the laboratory that starts it: tests skip by name where one of them is missing.

#include <filesystem>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/runs.hpp"

namespace trireme::testing {

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
        if (up.status != 0) {
            WARN("the laboratory does not come up here:\n" << up.err);
            return;
        }
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

inline Run small_run(const TempDir& folder, const Keys& keys = {}) {
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
inline std::string file_of(const Run& run) {
    return run.arguments().at(1);
}

}  // namespace trireme::testing
