// Where a run goes on from, and whether its configuration still fits.
#pragma once

#include <optional>
#include <string>

#include "trireme/checkpoint/checkpoint.hpp"
#include "trireme/train/config.hpp"
#include "trireme/train/runtime.hpp"

namespace trireme {

struct ResumePoint {
    std::string source;  ///< the checkpoint
    CheckpointMeta meta;
    bool scaled = false;  ///< saved by a run with a loss scale
    bool own = false;     ///< one of this run directory's step checkpoints
};

/// Follows run.resume: auto, none, or a path. Names damaged checkpoints and every difference between the
/// saved and the present configuration. Lanes that are left to `auto` are taken from the checkpoint.
/// Collective.
/// @throws Error (bad_usage, all ranks) naming the key that contradicts the saved state.
std::optional<ResumePoint> find_resume_point(Runtime& runtime, Config& config);

}  // namespace trireme
