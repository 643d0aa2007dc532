// The run directory: taken by one job at a time, never overwritten by a fresh start, rewound to the
// checkpoint that a run resumes from. All of this is rank 0's work.
#pragma once

#include <cstdint>
#include <string>

#include "train/file_lock.hpp"

namespace trireme {

/// Holds the directory for this job until it is destroyed (or the process dies).
class RunDirectoryLock {
public:
    RunDirectoryLock() = default;
    /// Creates the directory where needed. @throws Error (bad_usage) when another job holds it.
    explicit RunDirectoryLock(const std::string& run_dir);

private:
    FileLock lock_;
};

/// Moves what an earlier run left to <run_dir>/old-<n>; returns that folder, or nothing where there was none.
std::string set_earlier_run_aside(const std::string& run_dir);

/// Takes back what was written after `step`, since that work is done again: lines of metrics.jsonl and
/// samples-*.csv are dropped, later step checkpoints are moved to <run_dir>/old-<n>.
void rewind_run(const std::string& run_dir, std::int64_t step);

/// The file of --output may replace an older one, never the checkpoint that it comes from. @throws Error
/// (bad_usage) when it would, or is no file.
void refuse_precious_output(const std::string& output, const std::string& checkpoint);

/// Writes a text under a temporary name and renames it.
void write_whole(const std::string& path, const std::string& text);

}  // namespace trireme
