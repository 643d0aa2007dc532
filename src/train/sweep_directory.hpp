// The directory of a sweep: what is known of its trials, and who works on which.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/halving.hpp"
#include "train/sweep_space.hpp"
#include "trireme/train/sweep.hpp"

namespace trireme {

/// A file held by this process until it is destroyed (or the process dies).
class FileLock {
public:
    /// Waits for the file, or gives up at once where `wait` is false: then it holds nothing.
    FileLock(const std::string& path, bool wait);
    ~FileLock();
    FileLock(FileLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
    FileLock& operator=(FileLock&& other) noexcept {
        std::swap(file_, other.file_);
        return *this;
    }
    bool held() const { return file_ >= 0; }

private:
    int file_ = -1;
};

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
    std::optional<Claim> claim(const Halving& halving, std::int64_t trials, bool& wait) const;
    /// This trial, for its next rung; nothing where somebody else has it or it is done.
    std::optional<Claim> claim(const Halving& halving, std::int64_t trial) const;

    const std::string& path() const { return path_; }

private:
    std::string path_;
};

}  // namespace trireme
