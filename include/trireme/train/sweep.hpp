// Many trainings inside one allocation: trials of one configuration with other values, each a run directory
// of its own, on parts of the communicator. Processes agree through the sweep's directory alone, so that
// several jobs (a Slurm array) may work on one sweep, and a sweep that was killed goes on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/train/config.hpp"
#include "trireme/train/runtime.hpp"

namespace trireme {

struct SweepTrial {
    std::int64_t number = 0;
    std::vector<std::pair<std::string, std::string>> values{};
    std::vector<double> metrics{};  ///< best validation so far, after each rung that is finished
    std::int64_t epochs = 0, steps = 0;
    double seconds = 0;
    std::string failure{};  ///< empty: none
    bool done = false;      ///< trained to its end
};

struct SweepOutcome {
    bool by_accuracy = true;           ///< what the metric is; otherwise the loss
    std::vector<SweepTrial> trials{};  ///< all that have been begun, the furthest and best first; on rank 0
    std::int64_t planned = 0;
    bool to_be_continued = false;  ///< stopped by a signal
    bool any_good = false;         ///< a trial has come to a result
};

/// Trains what is left of the sweep in run.dir, or trial `index` alone, on all ranks. Writes results.csv and
/// best.ini there. Collective. @throws Error (bad_usage) on keys that are wrong for any trial, ranks that do
/// not make a group, or a directory that holds another sweep; errors of one trial are kept as its failure.
SweepOutcome run_sweep(Runtime& runtime, const Config& config, std::optional<std::int64_t> index);

}  // namespace trireme
