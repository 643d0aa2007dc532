// Optimizers and schedules through their own interfaces; the arithmetic of the passes has its oracle in ops
// tests.
#include <cmath>
#include <numbers>

#include "support/lanes.hpp"
#include "trireme/base/error.hpp"
#include "trireme/optim/optimizer.hpp"
#include "trireme/optim/schedule.hpp"

using namespace trireme;
using namespace trireme::testing;

TEST_CASE("schedules at start, warm-up end, middle, end and past it", "[unit][optim]") {
    const Schedule cosine({.name = "cosine", .base_lr = 1e-3, .horizon = 100});
    CHECK(cosine.rate(0) == 1e-3);
    CHECK(cosine.rate(50) == Approx(5.00000e-4).epsilon(1e-9));
    CHECK(cosine.rate(51) == Approx(4.84295e-4).epsilon(1e-5));
    CHECK(cosine.rate(100) == Approx(0).margin(1e-18));

    const Schedule floor({.name = "cosine", .base_lr = 1.0, .min_lr = 0.1, .horizon = 100});
    CHECK(floor.rate(50) == Approx(0.55));
    CHECK(floor.rate(100) == Approx(0.1));
    CHECK(floor.rate(1000) == Approx(0.1));

    const Schedule warm({.name = "cosine", .base_lr = 1.0, .horizon = 110, .warmup = 10});
    CHECK(warm.rate(0) == Approx(0.1));
    CHECK(warm.rate(9) == 1.0);
    CHECK(warm.rate(10) == 1.0);
    CHECK(warm.rate(60) == Approx(0.5));

    const Schedule linear({.name = "linear", .base_lr = 2.0, .min_lr = 1.0, .horizon = 10});
    CHECK(linear.rate(5) == Approx(1.5));
    CHECK(linear.rate(50) == Approx(1.0));

    const Schedule step(
        {.name = "step", .base_lr = 1.0, .min_lr = 0.02, .horizon = 100, .step_size = 10, .gamma = 0.1});
    CHECK(step.rate(9) == 1.0);
    CHECK(step.rate(10) == Approx(0.1));
    CHECK(step.rate(25) == Approx(0.02));

    const Schedule constant({.name = "constant", .base_lr = 0.3, .horizon = 1, .warmup = 2});
    CHECK(constant.rate(0) == Approx(0.15));
    CHECK(constant.rate(77) == 0.3);

    CHECK_THROWS_AS(Schedule({.name = "cosin"}), Error);
    CHECK_THROWS_AS(Schedule({.name = "cosine", .base_lr = 1, .min_lr = 2}), Error);
    CHECK(lr_scale("linear", 1024, 256) == 4);
    CHECK(lr_scale("sqrt", 1024, 256) == 2);
    CHECK(lr_scale("none", 1024, 256) == 1);
    CHECK_THROWS_AS(lr_scale("cubic", 1, 1), Error);
}

TEST_CASE("two steps of AdamW by hand", "[unit][optim]") {
    // w = 1, g = 0.5 then -0.25, lr 0.1, betas 0.9/0.999, decay 0.1:
    // step 1: w -> 0.99, m^ = 0.5, v^ = 0.25, w = 0.99 - 0.1 = 0.89
    // step 2: w -> 0.8811, m = 0.9*0.05 - 0.025 = 0.02, m^ = 0.02/0.19, v = 0.999*0.00025 + 0.0000625,
    //         v^ = 0.00031225/0.001999, w = 0.8811 - 0.1*0.1052632/0.3952226
    Rig rig({"linear out=1 bias=false"}, {1}, 1, 1, {LossKind::mse});
    Arena arena(*rig.device, rig.model.table(), {.state_names = {"m", "v"}});
    const auto adam = make_optimizer({.name = "adamw", .weight_decay = 0.1});
    UpdatePass pass(*adam, rig.model.table(), {.weight_decay = 0.1});
    float& w = arena.weights.whole().as<float>()[0];
    float& g = arena.gradients.whole().as<float>()[0];
    w = 1;
    g = 0.5;
    CHECK(std::sqrt(pass.apply(*rig.ops, arena, {.lr = 0.1, .step = 1}, true)) == Approx(0.5));
    CHECK(w == Approx(0.89).epsilon(1e-6));
    g = -0.25;
    pass.apply(*rig.ops, arena, {.lr = 0.1, .step = 2}, false);
    CHECK(w == Approx(0.8811 - 0.1 * 0.10526316 / 0.39522258).epsilon(1e-5));
}

TEST_CASE("two steps of SGD with Nesterov's momentum by hand", "[unit][optim]") {
    // g = 1 twice, momentum 0.9, lr 0.1: step 1: b = 1, w -= 0.1(1 + 0.9); step 2: b = 1.9, w -= 0.1(1
    // + 1.71)
    Rig rig({"linear out=1 bias=false"}, {1}, 1, 1, {LossKind::mse});
    Arena arena(*rig.device, rig.model.table(), {.state_names = {"momentum"}});
    const auto sgd = make_optimizer({.name = "sgd", .momentum = 0.9, .nesterov = true});
    UpdatePass pass(*sgd, rig.model.table(), {});
    float& w = arena.weights.whole().as<float>()[0];
    arena.gradients.whole().as<float>()[0] = 1;
    w = 0;
    pass.apply(*rig.ops, arena, {.lr = 0.1, .step = 1}, false);
    CHECK(w == Approx(-0.19));
    pass.apply(*rig.ops, arena, {.lr = 0.1, .step = 2}, false);
    CHECK(w == Approx(-0.19 - 0.271));
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
    CHECK(std::sqrt(pass.gradient_norm_squared(*rig.ops, rig.arena)) == Approx(5));
    CHECK(std::sqrt(pass.apply(*rig.ops, rig.arena, {.lr = 0}, true)) == Approx(5));
    CHECK(rig.arena.weights.of(table[2]).as<float>()[0] == Approx(0.25 * 8));  // running mean from 0
    CHECK(rig.arena.weights.of(table[3]).as<float>()[0] ==
          Approx(0.75 + 0.25 * 8));  // running variance from 1
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
    CHECK_THAT(refused({.name = "adamm"}), contains("optim.name=adamm"));
    CHECK_THAT(refused({.lr = -1}), contains("optim.lr=-1"));
    CHECK_THAT(refused({.beta2 = 1}), contains("optim.betas=1"));
    CHECK_THAT(refused({.eps = 0}), contains("optim.eps=0"));
    CHECK_THAT(refused({.name = "sgd", .nesterov = true}), contains("optim.nesterov"));
}
