// The directory of a sweep: what is known of its trials, and who works on which.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/file_lock.hpp"
#include "train/halving.hpp"
#include "train/sweep_space.hpp"
#include "trireme/train/sweep.hpp"

namespace trireme {

/// A trial that this process may train, until it lets go of it.
struct Claim {
    TrialJob job;
    FileLock lock;
};

class SweepDirectory {
public:
    /// Creates the directory. @throws Error (bad_usage) where it holds another sweep.
    SweepDirectory(std::string path, const Config& config);

    std::string trial_path(std::int64_t trial) const;
    /// What was written of a trial; nothing where it was never begun.
    std::optional<SweepTrial> read(std::int64_t trial) const;
    void write(const SweepTrial& trial) const;

    /// The next trial that nobody else is training. Where there is none, `wait` says whether one may come.
    /// `known`: of each trial; what is settled is not read again.
    std::optional<Claim> claim(const Halving& halving, std::vector<TrialRecord>& known, bool& wait) const;
    /// This trial, for its next rung; nothing where somebody else has it or it is done.
    std::optional<Claim> claim(const Halving& halving, std::int64_t trial) const;

    const std::string& path() const { return path_; }

private:
    std::string path_;
};

}  // namespace trireme
