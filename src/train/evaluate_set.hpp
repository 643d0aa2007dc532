// One pass over a data set without training, for validation and `eval`.
#pragma once

#include "trireme/data/loader.hpp"
#include "trireme/train/evaluate.hpp"
#include "trireme/train/step.hpp"

namespace trireme {

struct EvaluationParts {
    Communicator& ranks;  ///< all that take part
    LaneRunner& runner;
    Pipeline& pipeline;
    bool reports = true;  ///< this rank's sums count: one rank of each tensor group
};

/// Every sample of `plan` once, in the lanes of the plan; the loader is started anew. Collective.
EvalResult evaluate_set(const EvaluationParts& parts, Loader& loader, const EpochPlan& plan);

}  // namespace trireme
