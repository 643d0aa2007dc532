// What a run says of its mesh: who has which part of the model, and what a pipeline costs in waiting.
#pragma once

#include <string>
#include <vector>

#include "train/assembly.hpp"
#include "trireme/train/runtime.hpp"

namespace trireme {

/// A heading and a line for each rank (the first ones, where there are many). Collective.
std::vector<std::string> mesh_table(Runtime& runtime, const Assembly& parts);

/// What this rank keeps of a sharded state, in bytes.
std::string state_text(const TrainingState& state);

/// The part of the time of a pipeline's ranks that is lost to waiting for each other.
class Bubble {
public:
    /// By the estimated costs of the stages.
    static double expected(const Assembly& parts);

    void add(const StepResult& step);
    /// Over the steps so far, without the first one; 0 where there was no other. Collective.
    double measured(Communicator& pipeline) const;

private:
    std::int64_t steps_ = 0;
    double seconds_ = 0, waited_ = 0;
};

}  // namespace trireme
