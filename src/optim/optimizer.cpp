#include "trireme/optim/optimizer.hpp"

#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"

namespace trireme {
namespace {

/// Adam (Kingma and Ba 2015) with L2 regularisation, or AdamW (Loshchilov and Hutter 2019) with decoupled
/// decay.
class Adam final : public Optimizer {
public:
    Adam(const OptimizerOptions& options, bool decoupled) : options_(options), decoupled_(decoupled) {}

    std::vector<std::string> state_names() const override { return {"m", "v"}; }

    void update(Ops& ops, Arena& arena, Range place, bool decay, const UpdateInfo& info,
                double* norm_squared) const override {
        ops.adam_update({.weight = arena.weights.range(place),
                         .gradient = arena.gradients.range(place),
                         .m = arena.states[0].range(place),
                         .v = arena.states[1].range(place),
                         .lr = info.lr,
                         .beta1 = options_.beta1,
                         .beta2 = options_.beta2,
                         .eps = options_.eps,
                         .weight_decay = decay ? options_.weight_decay : 0,
                         .decoupled = decoupled_,
                         .step = info.step,
                         .gradient_scale = info.gradient_scale},
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

    void update(Ops& ops, Arena& arena, Range place, bool decay, const UpdateInfo& info,
                double* norm_squared) const override {
        ops.sgd_update({.weight = arena.weights.range(place),
                        .gradient = arena.gradients.range(place),
                        .momentum = options_.momentum > 0 ? arena.states[0].range(place) : View{},
                        .lr = info.lr,
                        .momentum_factor = options_.momentum,
                        .dampening = options_.dampening,
                        .weight_decay = decay ? options_.weight_decay : 0,
                        .nesterov = options_.nesterov,
                        .first = info.step == 1,
                        .gradient_scale = info.gradient_scale},
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

double UpdatePass::apply(Ops& ops, Arena& arena, const UpdateInfo& info, bool want_norm) const {
    double norm_squared = 0;
    for (const UpdateRun& run : runs_) {
        if (run.role == Role::weight)
            optimizer_.update(ops, arena, run.place, run.decay, info, want_norm ? &norm_squared : nullptr);
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

}  // namespace trireme
