// What a training says of itself before its first step and after its last one.
#pragma once

#include <string>

#include "train/assembly.hpp"
#include "trireme/train/runtime.hpp"

namespace trireme {

/// "12.5 %".
std::string percent_text(double part);

/// Sizes, ranks, what is split and how, which parameters decay; warns of precisions that are slow here.
/// Collective.
void say_start(Runtime& runtime, const Config& config, const Assembly& parts);

/// "done: 120 steps in 4 s; best validation accuracy 97.2 % at step 100, saved as ...". `reason`: as in the
/// event "end".
std::string end_text(const Config& config, const Position& position, const std::string& reason,
                     double seconds);

}  // namespace trireme
