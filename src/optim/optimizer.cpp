#include "trireme/optim/optimizer.hpp"

#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"

namespace trireme {
namespace {

Update common(Arena& arena, const UpdateRun& run, const UpdateInfo& info) {
    return {.weight = arena.weights.range(run.place),
            .gradient = arena.gradients.range(run.place),
            .low = arena.low ? arena.low->range(run.place) : View{},
            .average = arena.average ? arena.average->range(run.place) : View{},
            .average_decay = info.average_decay,
            .lr = info.lr * run.lr_factor,
            .weight_decay = run.weight_decay,
            .gradient_scale = info.gradient_scale};
}

/// Adam (Kingma and Ba 2015) with L2 regularisation, or AdamW (Loshchilov and Hutter 2019) with decoupled
/// decay.
class Adam final : public Optimizer {
public:
    Adam(const OptimizerOptions& options, bool decoupled) : options_(options), decoupled_(decoupled) {}

    std::vector<std::string> state_names() const override { return {"m", "v"}; }

    void update(Ops& ops, Arena& arena, const UpdateRun& run, const UpdateInfo& info, const LayerNorms&,
                double* norm_squared) const override {
        ops.adam_update({.common = common(arena, run, info),
                         .m = arena.states[0].range(run.place),
                         .v = arena.states[1].range(run.place),
                         .beta1 = options_.beta1,
                         .beta2 = options_.beta2,
                         .eps = options_.eps,
                         .decoupled = decoupled_,
                         .step = info.step},
                        norm_squared);
    }

private:
    OptimizerOptions options_;
    bool decoupled_;
};

/// Stochastic gradient descent, with momentum (Polyak 1964) or Nesterov's (Sutskever et al. 2013).
class Sgd final : public Optimizer {
public:
    explicit Sgd(const OptimizerOptions& options) : options_(options) {}

    std::vector<std::string> state_names() const override {
        return options_.momentum > 0 ? std::vector<std::string>{"momentum"} : std::vector<std::string>{};
    }

    void update(Ops& ops, Arena& arena, const UpdateRun& run, const UpdateInfo& info, const LayerNorms&,
                double* norm_squared) const override {
        ops.sgd_update({.common = common(arena, run, info),
                        .momentum = options_.momentum > 0 ? arena.states[0].range(run.place) : View{},
                        .momentum_factor = options_.momentum,
                        .fresh = 1 - options_.dampening,
                        .nesterov = options_.nesterov,
                        .first = info.step == 1},
                       norm_squared);
    }

private:
    OptimizerOptions options_;
};

void require(bool good, const std::string& key, double value, const std::string& expected) {
    if (!good) throw usage_error("optim." + key + "=" + to_text(value) + ": expected " + expected);
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options) {
    require(options.lr >= 0, "lr", options.lr, "a number that is not negative");
    require(options.weight_decay >= 0, "weight_decay", options.weight_decay, "a number that is not negative");
    require(options.momentum >= 0 && options.momentum < 1, "momentum", options.momentum, "0 <= momentum < 1");
    require(options.beta1 >= 0 && options.beta1 < 1, "betas", options.beta1, "two numbers in [0, 1)");
    require(options.beta2 >= 0 && options.beta2 < 1, "betas", options.beta2, "two numbers in [0, 1)");
    require(options.eps > 0, "eps", options.eps, "a positive number");
    if (options.nesterov && options.momentum <= 0)
        throw usage_error("optim.nesterov=true needs optim.momentum above 0");
    if (options.name == "adamw") return std::make_unique<Adam>(options, true);
    if (options.name == "adam") return std::make_unique<Adam>(options, false);
    if (options.name == "sgd") return std::make_unique<Sgd>(options);
    throw usage_error("optim.name=" + options.name + ": expected sgd, adam or adamw");
}

UpdatePass::UpdatePass(const Optimizer& optimizer, const ParameterTable& table,
                       const OptimizerOptions& options)
    : optimizer_(optimizer),
      table_(table),
      runs_(make_update_runs(table, {.lr = options.lr,
                                     .weight_decay = options.weight_decay,
                                     .rules = options.rules,
                                     .one_each = optimizer.layerwise()})),
      norms_(runs_.size()) {}

double UpdatePass::apply(Ops& ops, Arena& arena, const UpdateInfo& info, bool want_norm) {
    double norm_squared = 0;
    for (std::size_t i = 0; i < runs_.size(); ++i) {
        const UpdateRun& run = runs_[i];
        if (run.role == Role::weight)
            optimizer_.update(ops, arena, run, info, norms_[i], want_norm ? &norm_squared : nullptr);
        else
            ops.running_average(arena.weights.range(run.place), arena.gradients.range(run.place),
                                run.average);
    }
    return norm_squared;
}

double UpdatePass::gradient_norm_squared(Ops& ops, const Arena& arena) const {
    double sum = 0;
    for (const UpdateRun& run : runs_)
        if (run.role == Role::weight) ops.sum_squares(arena.gradients.range(run.place), &sum);
    return sum;
}

std::string UpdatePass::first_not_finite(Ops&, const Arena&) const {
    return {};
}

}  // namespace trireme
