// What a training says of itself before its first step and after its last one.
#pragma once

#include <optional>
#include <string>

#include "train/assembly.hpp"
#include "trireme/train/runtime.hpp"

namespace trireme {

/// Sizes, ranks, what is split and how, which parameters decay; warns of precisions that are slow here.
/// Collective.
void say_start(Runtime& runtime, const Config& config, const Assembly& parts);

/// "pipeline: 12.5 % of the ranks' time went into waiting for other stages, 11.1 % expected".
std::string bubble_text(std::optional<double> measured, double expected);

/// "done: 120 steps in 4 s; best validation accuracy 97.2 % at step 100, saved as ...". `reason`: as in the
/// event "end".
std::string end_text(const Config& config, const Position& position, const std::string& reason,
                     double seconds);

}  // namespace trireme
