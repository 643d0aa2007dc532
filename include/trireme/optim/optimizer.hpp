// Optimizers: which moments they keep and the one pass that updates an interval of the arena.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/ops/ops.hpp"
#include "trireme/param/arena.hpp"
#include "trireme/param/partition.hpp"

namespace trireme {

struct OptimizerOptions {
    std::string name = "adamw";  ///< sgd, adam, adamw
    double lr = 1e-3;            ///< for the log only: the schedule hands the current value to update()
    double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
    double momentum = 0, dampening = 0;
    bool nesterov = false;
    double weight_decay = 0;
};

/// What an update is about, the same for every interval.
struct UpdateInfo {
    double lr = 0;
    std::int64_t step = 1;      ///< number of this applied update, from 1
    double gradient_scale = 1;  ///< unscaling and clipping
};

class Optimizer {
public:
    virtual ~Optimizer() = default;
    /// Names of the columns it keeps, in the order update() expects them: {"m", "v"}.
    virtual std::vector<std::string> state_names() const = 0;
    /// Updates the weights of an interval whose parameters all decay or all do not. *norm_squared (absent:
    /// none) receives the sum of squares of the scaled gradient.
    virtual void update(Ops& ops, Arena& arena, Range place, bool decay, const UpdateInfo& info,
                        double* norm_squared) const = 0;
};

/// @throws Error (bad_usage) naming key and value when they are unknown or out of range.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options);

/// One update of all parameters: weights by the optimizer, statistics by their running average. One fused
/// pass per run of like parameters. Returns the squared norm of the scaled gradient when `want_norm`, else 0.
class UpdatePass {
public:
    UpdatePass(const Optimizer& optimizer, const ParameterTable& table)
        : optimizer_(optimizer), runs_(make_update_runs(table)) {}

    double apply(Ops& ops, Arena& arena, const UpdateInfo& info, bool want_norm) const;
    /// Sum of squares over all weight gradients (statistics excluded), without changing anything.
    double gradient_norm_squared(Ops& ops, const Arena& arena) const;

private:
    const Optimizer& optimizer_;
    std::vector<UpdateRun> runs_;
};

}  // namespace trireme
