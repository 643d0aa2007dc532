// Optimizers through their own interface: steps worked out by hand, statistics, refusals. The comparison with
// the papers' equations is in optim_equations_test.cpp.
#include <algorithm>
#include <cmath>
#include <limits>

#include "support/lanes.hpp"
#include "trireme/base/error.hpp"
#include "trireme/optim/optimizer.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

/// One row of weights without a bias, updated by hand: set w and g, step, look at w.
struct Row {
    Row(const OptimizerOptions& options, std::vector<float> start)
        : rig({"linear out=1 bias=false"}, {static_cast<std::int64_t>(start.size())}, 1, 1, {LossKind::mse}),
          optimizer(make_optimizer(options)),
          arena(*rig.device, rig.model.table(), {.state_names = optimizer->state_names()}),
          pass(*optimizer, rig.model.table(), options),
          rate(options.lr) {
        std::copy(start.begin(), start.end(), weights());
    }

    /// Returns the norm of the gradient.
    double step(const std::vector<float>& gradient) {
        std::copy(gradient.begin(), gradient.end(), arena.gradients.whole().as<float>());
        double squares = 0;
        pass.apply(*rig.ops, arena, {.lr = rate, .step = ++steps}, &squares);
        return std::sqrt(squares);
    }
    float* weights() { return arena.weights.whole().as<float>(); }

    Rig rig;
    std::unique_ptr<Optimizer> optimizer;
    Arena arena;
    UpdatePass pass;
    double rate;
    std::int64_t steps = 0;
};

}  // namespace

TEST_CASE("two steps of AdamW by hand", "[unit][optim]") {
    // w = 1, g = 0.5 then -0.25, lr 0.1, betas 0.9/0.999, decay 0.1:
    // step 1: w -> 0.99, m^ = 0.5, v^ = 0.25, w = 0.99 - 0.1 = 0.89
    // step 2: w -> 0.8811, m = 0.9*0.05 - 0.025 = 0.02, m^ = 0.02/0.19, v = 0.999*0.00025 + 0.0000625,
    //         v^ = 0.00031225/0.001999, w = 0.8811 - 0.1*0.1052632/0.3952226
    Row row({.name = "adamw", .lr = 0.1, .weight_decay = 0.1}, {1});
    CHECK(row.step({0.5}) == Approx(0.5));
    CHECK(row.weights()[0] == Approx(0.89).epsilon(1e-6));
    row.step({-0.25});
    CHECK(row.weights()[0] == Approx(0.8811 - 0.1 * 0.10526316 / 0.39522258).epsilon(1e-5));
}

TEST_CASE("two steps of Adam with L2 by hand", "[unit][optim]") {
    // As above, but the decay is part of the gradient:
    // step 1: g = 0.5 + 0.1 = 0.6, m^ = 0.6, v^ = 0.36, w = 1 - 0.1 = 0.9
    // step 2: g = -0.25 + 0.09 = -0.16, m = 0.9*0.06 - 0.016 = 0.038, m^ = 0.2,
    //         v = 0.999*0.00036 + 0.001*0.0256 = 0.00038524, v^ = 0.192716, w = 0.9 - 0.1*0.2/0.438994
    Row row({.name = "adam", .lr = 0.1, .weight_decay = 0.1}, {1});
    row.step({0.5});
    CHECK(row.weights()[0] == Approx(0.9).epsilon(1e-6));
    CHECK(row.step({-0.25}) == Approx(0.25));  // of the gradient without the decay
    CHECK(row.weights()[0] == Approx(0.9 - 0.02 / 0.438994).epsilon(1e-5));
}

TEST_CASE("two steps of AMSGrad by hand", "[unit][optim]") {
    // w = 1, g = 1 then 0, lr 0.1, betas 0.9/0.5:
    // step 1: m^ = 1, v = v_max = 0.5, v_max/(1 - 0.5) = 1, w = 0.9
    // step 2: m^ = 0.09/0.19, v = 0.25 but v_max = 0.5, v_max/(1 - 0.25) = 2/3, w = 0.9 -
    // 0.1*0.473684/0.816497
    Row row({.name = "adamw", .lr = 0.1, .beta2 = 0.5, .amsgrad = true}, {1});
    CHECK(row.optimizer->state_names() == std::vector<std::string>{"m", "v", "v_max"});
    row.step({1});
    CHECK(row.weights()[0] == Approx(0.9).epsilon(1e-6));
    row.step({0});
    CHECK(row.weights()[0] == Approx(0.9 - 0.0473684 / 0.8164966).epsilon(1e-5));
}

TEST_CASE("two steps of SGD with Nesterov's momentum by hand", "[unit][optim]") {
    // g = 1 twice, momentum 0.9, lr 0.1: step 1: b = 1, w -= 0.1(1 + 0.9); step 2: b = 1.9, w -= 0.1(1
    // + 1.71)
    Row row({.name = "sgd", .lr = 0.1, .momentum = 0.9, .nesterov = true}, {0});
    row.step({1});
    CHECK(row.weights()[0] == Approx(-0.19));
    row.step({1});
    CHECK(row.weights()[0] == Approx(-0.19 - 0.271));
}

TEST_CASE("two steps of SGD with dampening by hand", "[unit][optim]") {
    // g = 1 twice, momentum 0.9, dampening 0.5, lr 0.1: b = 1 (the first is not dampened), w = -0.1;
    // b = 0.9 + 0.5 = 1.4, w = -0.24
    Row row({.name = "sgd", .lr = 0.1, .momentum = 0.9, .dampening = 0.5}, {0});
    row.step({1});
    CHECK(row.weights()[0] == Approx(-0.1));
    row.step({1});
    CHECK(row.weights()[0] == Approx(-0.24));

    // Without momentum there is nothing to dampen.
    Row plain({.name = "sgd", .lr = 0.1, .dampening = 0.5}, {0});
    CHECK(plain.optimizer->state_names().empty());
    plain.step({1});
    CHECK(plain.weights()[0] == Approx(-0.1));
}

TEST_CASE("two steps of Lion by hand", "[unit][optim]") {
    // w = 1, g = 0.5 then -0.04, lr 0.1, betas 0.9/0.99, decay 0.1:
    // step 1: c = 0.05, w = 1 - 0.1(1 + 0.1) = 0.89, m = 0.005
    // step 2: c = 0.0045 - 0.004 > 0 although g < 0, w = 0.89 - 0.1(1 + 0.089) = 0.7811,
    //         m = 0.00495 - 0.0004 = 0.00455
    Row row({.name = "lion", .lr = 0.1, .beta2 = 0.99, .weight_decay = 0.1}, {1});
    CHECK(row.optimizer->state_names() == std::vector<std::string>{"m"});
    CHECK(row.step({0.5}) == Approx(0.5));
    CHECK(row.weights()[0] == Approx(0.89).epsilon(1e-6));
    row.step({-0.04F});
    CHECK(row.weights()[0] == Approx(0.7811).epsilon(1e-6));
    CHECK(row.arena.states[0].whole().as<float>()[0] == Approx(0.00455).epsilon(1e-5));
}

TEST_CASE("two steps of LAMB by hand", "[unit][optim]") {
    // w = (3, 4), g = (1, 1) then (-1, 1), lr 0.1, betas 0.9/0.99, decay 0.1, so always v^ = (1, 1):
    // step 1: m^ = (1, 1), u = (1.3, 1.4), trust = 5/1.910497 = 2.617120,
    //         w = (3 - 0.2617120*1.3, 4 - 0.2617120*1.4) = (2.659774, 3.633603)
    // step 2: m = (-0.01, 0.19), m^ = (-0.0526316, 1), u = (0.2133459, 1.3633603),
    //         trust = 4.503051/1.379952 = 3.263194, w = (2.590156, 3.188712)
    Row row({.name = "lamb", .lr = 0.1, .beta2 = 0.99, .eps = 1e-9, .weight_decay = 0.1}, {3, 4});
    CHECK(row.optimizer->state_names() == std::vector<std::string>{"m", "v"});
    CHECK(row.step({1, 1}) == Approx(std::sqrt(2)));
    CHECK(row.weights()[0] == Approx(2.659774).epsilon(1e-6));
    CHECK(row.weights()[1] == Approx(3.633603).epsilon(1e-6));
    row.step({-1, 1});
    CHECK(row.weights()[0] == Approx(2.590156).epsilon(1e-6));
    CHECK(row.weights()[1] == Approx(3.188712).epsilon(1e-6));
}

TEST_CASE("two steps of LARS by hand", "[unit][optim]") {
    // w = (3, 4), g = (0.6, 0.8) then its opposite, lr 0.5, momentum 0.9, decay 0.1, trust 0.02:
    // step 1: local = 0.02*5/(1 + 0.1*5) = 1/15, v = 0.5/15*(0.9, 1.2) = (0.03, 0.04), w = (2.97, 3.96)
    // step 2: local = 0.02*4.95/(1 + 0.495) = 0.06622074,
    //         v = (0.027, 0.036) + 0.03311037*(-0.303, -0.404) = (0.01696756, 0.02262341),
    //         w = (2.953032, 3.937377)
    Row row({.name = "lars", .lr = 0.5, .momentum = 0.9, .trust = 0.02, .weight_decay = 0.1}, {3, 4});
    CHECK(row.optimizer->state_names() == std::vector<std::string>{"momentum"});
    CHECK(row.step({0.6F, 0.8F}) == Approx(1));
    CHECK(row.weights()[0] == Approx(2.97).epsilon(1e-6));
    CHECK(row.weights()[1] == Approx(3.96).epsilon(1e-6));
    row.step({-0.6F, -0.8F});
    CHECK(row.weights()[0] == Approx(2.953032).epsilon(1e-6));
    CHECK(row.weights()[1] == Approx(3.937377).epsilon(1e-6));
}

TEST_CASE("layer-wise rates are 1 where a norm is 0", "[unit][optim]") {
    // The first step from zero weights is a plain one: lr·g for LARS, lr·sign(g) for LAMB.
    const std::string name = GENERATE("lars", "lamb");
    Row row({.name = name, .lr = 0.5}, {0, 0});
    row.step({2, -2});
    const double moved = name == "lars" ? 1 : 0.5;
    CHECK(row.weights()[0] == Approx(-moved));
    CHECK(row.weights()[1] == Approx(moved));
    Row still({.name = name, .lr = 0.5}, {3, 4});
    still.step({0, 0});
    CHECK(still.weights()[0] == 3);
    CHECK(still.weights()[1] == 4);
}

TEST_CASE("statistics follow their average and stay out of the norm", "[unit][optim]") {
    Rig rig({"batchnorm momentum=0.25", "linear out=2"}, {3}, 2, 4, {LossKind::mse});
    const auto sgd = make_optimizer({.name = "sgd"});
    UpdatePass pass(*sgd, rig.model.table(), {});
    const ParameterTable& table = rig.model.table();
    for (const Parameter& p : table.all())
        for (float& g : rig.arena.gradients.of(p).span<float>()) g = p.role == Role::statistic ? 8.0F : 0.0F;
    rig.arena.gradients.of(table[0]).as<float>()[1] = 3;
    rig.arena.gradients.of(table[4]).as<float>()[0] = 4;
    double before = 0, applied = 0;
    pass.add_gradient_norm(*rig.ops, rig.arena, UpdatePass::no_limit, &before);
    CHECK(std::sqrt(before) == Approx(5));
    pass.apply(*rig.ops, rig.arena, {.lr = 0}, &applied);
    CHECK(std::sqrt(applied) == Approx(5));
    CHECK(rig.arena.weights.of(table[2]).as<float>()[0] == Approx(0.25 * 8));  // running mean from 0
    CHECK(rig.arena.weights.of(table[3]).as<float>()[0] ==
          Approx(0.75 + 0.25 * 8));  // running variance from 1
}

TEST_CASE("the average holds the statistics as they are", "[unit][optim]") {
    Rig rig({"batchnorm momentum=0.25"}, {3}, 3, 4, {LossKind::mse});
    const auto sgd = make_optimizer({.name = "sgd"});
    UpdatePass pass(*sgd, rig.model.table(), {});
    const ParameterTable& table = rig.model.table();
    Arena arena(*rig.device, table, {.average = true});
    rig.ops->fill(arena.gradients.of(table[2]), 8);
    pass.apply(*rig.ops, arena, {.lr = 0, .average_decay = 0.999});
    CHECK(arena.weights.of(table[2]).as<float>()[1] == 2);  // 0.25·8
    CHECK(arena.average->of(table[2]).as<float>()[1] == 2);
}

TEST_CASE("the first parameter of the backward pass that is not finite is named", "[unit][optim]") {
    Rig rig({"linear out=3", "batchnorm", "linear out=2"}, {3}, 2, 4, {LossKind::mse});
    const auto sgd = make_optimizer({.name = "sgd"});
    const UpdatePass pass(*sgd, rig.model.table(), {});
    const ParameterTable& table = rig.model.table();
    const auto spoil = [&](const std::string& name, float value) {
        for (const Parameter& parameter : table.all())
            if (parameter.name == name) rig.arena.gradients.of(parameter).as<float>()[1] = value;
    };
    rig.ops->fill(rig.arena.gradients.whole(), std::numeric_limits<float>::max());
    CHECK(pass.first_not_finite(*rig.ops, rig.arena).empty());
    spoil("0.linear.weight", NAN);
    CHECK(pass.first_not_finite(*rig.ops, rig.arena) == "0.linear.weight");
    spoil("2.linear.bias", -INFINITY);  // comes before, in the order of the backward pass
    CHECK(pass.first_not_finite(*rig.ops, rig.arena) == "2.linear.bias");
}

TEST_CASE("optimizer options out of range are refused by key", "[unit][optim]") {
    const auto refused = [](OptimizerOptions options) {
        try {
            make_optimizer(options);
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    CHECK(refused({.name = "adamm"}) == "optim.name=adamm: expected sgd, adam, adamw, lamb, lars or lion");
    CHECK_THAT(refused({.lr = -1}), contains("optim.lr=-1"));
    CHECK_THAT(refused({.lr = NAN}), contains("optim.lr=nan"));
    CHECK_THAT(refused({.weight_decay = INFINITY}), contains("optim.weight_decay=inf"));
    CHECK_THAT(refused({.beta2 = 1}), contains("optim.betas=1"));
    CHECK_THAT(refused({.eps = 0}), contains("optim.eps=0"));
    CHECK_THAT(refused({.name = "sgd", .momentum = 1}), contains("optim.momentum=1"));
    CHECK_THAT(refused({.name = "sgd", .dampening = 1.5}), contains("optim.dampening=1.5"));
    CHECK_THAT(refused({.name = "lars", .trust = 0}), contains("optim.trust=0"));
    CHECK_THAT(refused({.name = "lion", .amsgrad = true}), contains("optim.amsgrad=true"));
    CHECK_THAT(refused({.name = "adamw", .nesterov = true}), contains("optim.name=sgd"));
    CHECK_THAT(refused({.name = "sgd", .nesterov = true}), contains("optim.momentum above 0"));
    CHECK_THAT(refused({.name = "sgd", .momentum = 0.9, .dampening = 0.1, .nesterov = true}),
               contains("optim.dampening=0"));
}
