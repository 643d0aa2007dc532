// Optimizers: which moments they keep and the one pass that updates an interval of the arena.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/communicator.hpp"
#include "trireme/ops/ops.hpp"
#include "trireme/optim/rules.hpp"
#include "trireme/param/arena.hpp"

namespace trireme {

struct OptimizerOptions {
    std::string name = "adamw";  ///< sgd, adam, adamw, lamb, lars, lion
    double lr = 1e-3;  ///< checked here and what absolute rates of rules relate to; the schedule hands
                       ///< the current rate to the pass
    double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
    bool amsgrad = false;                ///< adam, adamw
    double momentum = 0, dampening = 0;  ///< sgd; lars: momentum
    bool nesterov = false;
    double trust = 1e-3;  ///< lars: the local rate is trust·|w| / (|g| + decay·|w|)
    double weight_decay = 0;
    std::vector<ParameterRule> rules{};
};

/// What an update is about, the same for every interval.
struct UpdateInfo {
    double lr = 0;
    std::int64_t step = 1;      ///< number of this applied update, from 1
    double gradient_scale = 1;  ///< unscaling and clipping
    double average_decay = 0;   ///< of the moving average, where the arena keeps one
};

/// Squared norms over one whole parameter, for layer-wise optimizers. What they are of is the optimizer's
/// matter.
struct LayerNorms {
    double weight = 0, step = 0;
};

class Optimizer {
public:
    virtual ~Optimizer() = default;
    /// Names of the columns it keeps, in the order update() expects them: {"m", "v"}.
    virtual std::vector<std::string> state_names() const = 0;
    /// True where a step depends on norms of each parameter: every run is then of one parameter, and
    /// measure() is called for all runs before update() is for any.
    virtual bool layerwise() const { return false; }
    /// Adds to the norms of a run; may advance the moments.
    virtual void measure(Ops&, Arena&, const UpdateRun&, const UpdateInfo&, LayerNorms&) const {}
    /// Updates the weights of a run with their low-precision copy and their moving average, in one pass.
    /// *norm_squared (absent: none) receives the sum of squares of the scaled gradient. `norms`: what
    /// measure() left, zero otherwise.
    virtual void update(Ops& ops, Arena& arena, const UpdateRun& run, const UpdateInfo& info,
                        const LayerNorms& norms, double* norm_squared) const = 0;
};

/// @throws Error (bad_usage) naming key and value when they are unknown or out of range.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options);

/// One update of all that this rank updates of the parameters: weights by the optimizer, statistics by their
/// running average. One fused pass per run of like parameters.
class UpdatePass {
public:
    /// Everything but the options is kept by reference. `parts`: the ranks that hold, or update, parts of the
    /// same parameters; absent: none. `pieces`: what this rank updates (ArenaPieces::updated); absent: all.
    /// @throws Error (bad_usage) naming a rule that fits no parameter.
    UpdatePass(const Optimizer& optimizer, const ParameterTable& table, const OptimizerOptions& options,
               Communicator* parts = nullptr, std::optional<std::vector<Range>> pieces = {});

    /// *norm_squared (absent: none) += this rank's share of the squared norm of the scaled gradient; in the
    /// memory of host or device. Collective over the parts for layer-wise optimizers.
    void apply(Ops& ops, Arena& arena, const UpdateInfo& info, double* norm_squared = nullptr);
    /// *norm_squared += this rank's share of the sum of squares over all weight gradients (statistics
    /// excluded), without changing anything. Gradients beyond `limit` count as inf.
    void add_gradient_norm(Ops& ops, const Arena& arena, float limit, double* norm_squared) const;
    /// The first parameter, in the order of the backward pass, whose gradient holds inf or NaN in what this
    /// rank updates; empty: none.
    std::string first_not_finite(Ops& ops, const Arena& arena, float limit = no_limit) const;

    static constexpr float no_limit = std::numeric_limits<float>::infinity();
    const std::vector<UpdateRun>& runs() const { return runs_; }

private:
    void measure(Ops& ops, Arena& arena, const UpdateInfo& info);

    const Optimizer& optimizer_;
    const ParameterTable& table_;
    Communicator* parts_;
    std::vector<UpdateRun> runs_;
    std::vector<LayerNorms> norms_;  ///< one per parameter, the same on all parts
};

}  // namespace trireme
