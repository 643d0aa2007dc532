// One pass over a data set without training, for validation and `eval`.
#pragma once

#include "trireme/data/loader.hpp"
#include "trireme/train/evaluate.hpp"
#include "trireme/train/step.hpp"

namespace trireme {

/// Every sample of `plan` once, in the lanes of the plan; the loader is started anew. Collective.
EvalResult evaluate_set(Communicator& comm, LaneRunner& runner, Loader& loader, const EpochPlan& plan);

}  // namespace trireme
