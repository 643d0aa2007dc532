// A training run from start (or resume) to end: epochs, validation, checkpoints, metrics.
#pragma once

#include <string>

#include "trireme/checkpoint/position.hpp"
#include "trireme/train/config.hpp"
#include "trireme/train/runtime.hpp"

namespace trireme {

struct TrainOutcome {
    std::string reason;  ///< completed, max_steps, early_stop, nothing_to_do, paused, signal, time_limit
    Position position;
    bool to_be_continued = false;  ///< stopped by a signal or the time limit, with a checkpoint: status 75
};

/// Collective. Writes the run directory. `pause_after`: after so many epochs the run stops with a checkpoint,
/// as if it went on some time later; 0: it trains to its end. @throws Error as DESIGN section 4 says.
TrainOutcome run_training(Runtime& runtime, Config config, std::int64_t pause_after = 0);

}  // namespace trireme
