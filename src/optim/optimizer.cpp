#include "trireme/optim/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

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
/// decay; both also as AMSGrad (Reddi, Kale and Kumar 2018).
class Adam final : public Optimizer {
public:
    Adam(const OptimizerOptions& options, bool decoupled) : options_(options), decoupled_(decoupled) {}

    std::vector<std::string> state_names() const override {
        return options_.amsgrad ? std::vector<std::string>{"m", "v", "v_max"}
                                : std::vector<std::string>{"m", "v"};
    }

    void update(Ops& ops, Arena& arena, const UpdateRun& run, const UpdateInfo& info, const LayerNorms&,
                double* norm_squared) const override {
        ops.adam_update({.common = common(arena, run, info),
                         .m = arena.states[0].range(run.place),
                         .v = arena.states[1].range(run.place),
                         .v_max = options_.amsgrad ? arena.states[2].range(run.place) : View{},
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

std::vector<std::string> momentum_column(const OptimizerOptions& options) {
    return options.momentum > 0 ? std::vector<std::string>{"momentum"} : std::vector<std::string>{};
}

/// Stochastic gradient descent, with momentum (Polyak 1964) or Nesterov's (Sutskever et al. 2013).
class Sgd final : public Optimizer {
public:
    explicit Sgd(const OptimizerOptions& options) : options_(options) {}

    std::vector<std::string> state_names() const override { return momentum_column(options_); }

    void update(Ops& ops, Arena& arena, const UpdateRun& run, const UpdateInfo& info, const LayerNorms&,
                double* norm_squared) const override {
        const bool plain = options_.momentum == 0;
        ops.sgd_update({.common = common(arena, run, info),
                        .momentum = plain ? View{} : arena.states[0].range(run.place),
                        .momentum_factor = options_.momentum,
                        // Dampening is of the momentum; without one it means nothing (as in PyTorch).
                        .fresh = plain ? 1 : 1 - options_.dampening,
                        .nesterov = options_.nesterov,
                        .first = info.step == 1},
                       norm_squared);
    }

private:
    OptimizerOptions options_;
};

/// Lion (Chen et al. 2023), with decoupled decay.
class Lion final : public Optimizer {
public:
    explicit Lion(const OptimizerOptions& options) : options_(options) {}

    std::vector<std::string> state_names() const override { return {"m"}; }

    void update(Ops& ops, Arena& arena, const UpdateRun& run, const UpdateInfo& info, const LayerNorms&,
                double* norm_squared) const override {
        ops.lion_update({.common = common(arena, run, info),
                         .m = arena.states[0].range(run.place),
                         .beta1 = options_.beta1,
                         .beta2 = options_.beta2},
                        norm_squared);
    }

private:
    OptimizerOptions options_;
};

/// LAMB (You et al. 2020, algorithm 2, with bias corrections): Adam's direction with the decay in it, as long
/// as the parameter. Biases and norms take the direction as it is.
class Lamb final : public Optimizer {
public:
    explicit Lamb(const OptimizerOptions& options) : options_(options) {}

    std::vector<std::string> state_names() const override { return {"m", "v"}; }
    bool layerwise() const override { return true; }

    void measure(Ops& ops, Arena& arena, const UpdateRun& run, const UpdateInfo& info,
                 LayerNorms& norms) const override {
        double sums[2] = {};
        ops.lamb_moments(arguments(arena, run, info, 1), sums);
        norms.weight += sums[0];
        norms.step += sums[1];
    }

    void update(Ops& ops, Arena& arena, const UpdateRun& run, const UpdateInfo& info, const LayerNorms& norms,
                double* norm_squared) const override {
        const bool scaled = run.matrix && norms.weight > 0 && norms.step > 0;
        const double trust = scaled ? std::sqrt(norms.weight / norms.step) : 1;
        ops.lamb_update(arguments(arena, run, info, trust), norm_squared);
    }

private:
    LambUpdate arguments(Arena& arena, const UpdateRun& run, const UpdateInfo& info, double trust) const {
        return {.common = common(arena, run, info),
                .m = arena.states[0].range(run.place),
                .v = arena.states[1].range(run.place),
                .beta1 = options_.beta1,
                .beta2 = options_.beta2,
                .eps = options_.eps,
                .step = info.step,
                .trust = trust};
    }

    OptimizerOptions options_;
};

/// LARS (You, Gitman and Ginsburg 2017, algorithm 1): the local rate stands inside the momentum, as in the
/// paper. Biases and norms have a local rate of 1.
class Lars final : public Optimizer {
public:
    explicit Lars(const OptimizerOptions& options) : options_(options) {}

    std::vector<std::string> state_names() const override { return momentum_column(options_); }
    bool layerwise() const override { return true; }

    void measure(Ops& ops, Arena& arena, const UpdateRun& run, const UpdateInfo& info,
                 LayerNorms& norms) const override {
        double gradient = 0;
        ops.sum_squares(arena.weights.range(run.place), &norms.weight);
        ops.sum_squares(arena.gradients.range(run.place), &gradient);
        norms.step += gradient * info.gradient_scale * info.gradient_scale;
    }

    void update(Ops& ops, Arena& arena, const UpdateRun& run, const UpdateInfo& info, const LayerNorms& norms,
                double* norm_squared) const override {
        SgdUpdate args{.common = common(arena, run, info), .momentum_factor = options_.momentum};
        if (options_.momentum > 0) args.momentum = arena.states[0].range(run.place);
        args.fresh = args.common.lr * local_rate(run, norms);
        args.common.lr = 1;
        ops.sgd_update(args, norm_squared);
    }

private:
    double local_rate(const UpdateRun& run, const LayerNorms& norms) const {
        if (!run.matrix || norms.weight <= 0 || norms.step <= 0) return 1;
        const double weight = std::sqrt(norms.weight), gradient = std::sqrt(norms.step);
        return options_.trust * weight / (gradient + run.weight_decay * weight);
    }

    OptimizerOptions options_;
};

void require(bool good, const std::string& key, double value, const std::string& expected) {
    if (!good) throw usage_error("optim." + key + "=" + to_text(value) + ": expected " + expected);
}

void check_ranges(const OptimizerOptions& o) {
    const std::string not_negative = "a number that is not negative";
    require(o.lr >= 0 && std::isfinite(o.lr), "lr", o.lr, not_negative);
    require(o.weight_decay >= 0 && std::isfinite(o.weight_decay), "weight_decay", o.weight_decay,
            not_negative);
    require(o.momentum >= 0 && o.momentum < 1, "momentum", o.momentum, "0 <= momentum < 1");
    require(o.dampening >= 0 && o.dampening <= 1, "dampening", o.dampening, "a number in [0, 1]");
    require(o.beta1 >= 0 && o.beta1 < 1, "betas", o.beta1, "two numbers in [0, 1)");
    require(o.beta2 >= 0 && o.beta2 < 1, "betas", o.beta2, "two numbers in [0, 1)");
    require(o.eps > 0 && std::isfinite(o.eps), "eps", o.eps, "a positive number");
    require(o.trust > 0 && std::isfinite(o.trust), "trust", o.trust, "a positive number");
}

/// Statistics are averages already: where the arena keeps an average, it holds them as they are.
void follow(Ops& ops, Arena& arena, const UpdateRun& run) {
    const View statistics = arena.weights.range(run.place);
    ops.running_average(statistics, arena.gradients.range(run.place), run.average);
    if (arena.average) ops.copy(statistics, arena.average->range(run.place));
}

/// Refuses what would otherwise be left out without a word.
void check_combinations(const OptimizerOptions& o) {
    if (o.amsgrad && o.name != "adam" && o.name != "adamw")
        throw usage_error("optim.amsgrad=true needs optim.name=adam or adamw");
    if (!o.nesterov) return;
    if (o.name != "sgd") throw usage_error("optim.nesterov=true needs optim.name=sgd");
    if (o.momentum <= 0) throw usage_error("optim.nesterov=true needs optim.momentum above 0");
    if (o.dampening != 0) throw usage_error("optim.nesterov=true needs optim.dampening=0");
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options) {
    check_ranges(options);
    check_combinations(options);
    if (options.name == "adamw") return std::make_unique<Adam>(options, true);
    if (options.name == "adam") return std::make_unique<Adam>(options, false);
    if (options.name == "sgd") return std::make_unique<Sgd>(options);
    if (options.name == "lamb") return std::make_unique<Lamb>(options);
    if (options.name == "lars") return std::make_unique<Lars>(options);
    if (options.name == "lion") return std::make_unique<Lion>(options);
    throw usage_error("optim.name=" + options.name + ": expected sgd, adam, adamw, lamb, lars or lion");
}

UpdatePass::UpdatePass(const Optimizer& optimizer, const ParameterTable& table,
                       const OptimizerOptions& options, Communicator* parts,
                       std::optional<std::vector<Range>> pieces)
    : optimizer_(optimizer),
      table_(table),
      parts_(parts),
      runs_(make_update_runs(table, {.lr = options.lr,
                                     .weight_decay = options.weight_decay,
                                     .rules = options.rules,
                                     .one_each = optimizer.layerwise(),
                                     .pieces = std::move(pieces)})),
      norms_(static_cast<std::size_t>(table.count())) {}

void UpdatePass::apply(Ops& ops, Arena& arena, const UpdateInfo& info, double* norm_squared) {
    if (optimizer_.layerwise()) measure(ops, arena, info);
    for (const UpdateRun& run : runs_)
        if (run.role == Role::weight)
            optimizer_.update(ops, arena, run, info, norms_[static_cast<std::size_t>(run.parameter)],
                              run.counted ? norm_squared : nullptr);
        else
            follow(ops, arena, run);
}

/// The norms of whole parameters: those of the parts added up, copies counted once.
void UpdatePass::measure(Ops& ops, Arena& arena, const UpdateInfo& info) {
    std::fill(norms_.begin(), norms_.end(), LayerNorms{});
    for (const UpdateRun& run : runs_) {
        if (run.role != Role::weight) continue;
        LayerNorms& norms = norms_[static_cast<std::size_t>(run.parameter)];
        optimizer_.measure(ops, arena, run, info, norms);
        if (!run.counted) norms = {};
    }
    if (parts_ == nullptr) return;
    static_assert(sizeof(LayerNorms) == 2 * sizeof(double));
    parts_->all_reduce(view_of(&norms_[0].weight, Shape{static_cast<std::int64_t>(2 * norms_.size())}),
                       Reduce::sum);
}

void UpdatePass::add_gradient_norm(Ops& ops, const Arena& arena, float limit, double* norm_squared) const {
    for (const UpdateRun& run : runs_)
        if (run.role == Role::weight && run.counted)
            ops.sum_squares(arena.gradients.range(run.place), norm_squared, limit);
}

std::string UpdatePass::first_not_finite(Ops& ops, const Arena& arena, float limit) const {
    auto run = runs_.begin();
    for (const ParameterId id : table_.order()) {
        const Parameter& parameter = table_[id];
        double sum = 0;
        while (run != runs_.end() && run->place.end <= parameter.place.begin) ++run;
        for (auto part = run; part != runs_.end() && part->place.begin < parameter.place.end; ++part)
            ops.sum_squares(arena.gradients.range(intersect(part->place, parameter.place)), &sum,
                            parameter.role == Role::weight ? limit : no_limit);
        if (!std::isfinite(sum)) return parameter.name;
    }
    return {};
}

}  // namespace trireme
