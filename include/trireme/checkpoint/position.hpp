// The whole training position: one small plain struct, the same on all ranks, saved and restored.
#pragma once

#include <cstdint>

#include "trireme/optim/scaler.hpp"
#include "trireme/optim/schedule.hpp"

namespace trireme {

struct Position {
    std::int64_t epoch = 0;          ///< epochs completed
    std::int64_t step_in_epoch = 0;  ///< steps done of the current epoch
    std::int64_t updates = 0;        ///< applied updates: what schedule and optimizer count
    std::int64_t skipped = 0;        ///< steps whose update was skipped for inf or NaN
    std::int64_t samples = 0;        ///< samples consumed
    ScalerState scaler;              ///< loss scale, and what its next change depends on
    PlateauState plateau;            ///< what schedule.name=plateau remembers
    bool has_best = false;
    double best = 0;             ///< best validation metric so far
    std::int64_t best_step = 0;  ///< updates when it was reached
    std::int64_t bad_evals = 0;  ///< validations since then without a better one (early stopping)

    std::int64_t attempts() const { return updates + skipped; }
    friend bool operator==(const Position&, const Position&) = default;
};

}  // namespace trireme
