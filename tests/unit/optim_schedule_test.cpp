// Each schedule against its formula at the start, the end of the warm-up, the middle, the end and past it.
// Rates are always asked of a fresh object: a resumed run has nothing but the number of applied updates.
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "trireme/base/error.hpp"
#include "trireme/optim/schedule.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

double rate(const ScheduleOptions& options, std::int64_t applied, std::int64_t drops = 0) {
    return Schedule(options).rate(applied, drops);
}

std::string refused(const ScheduleOptions& options) {
    try {
        const Schedule schedule(options);
    } catch (const Error& error) {
        CHECK(error.status() == Status::bad_usage);
        return error.what();
    }
    return {};
}

/// From `from` to `to` along half a cosine, p of the way.
double half_cosine(double from, double to, double p) {
    return to + (from - to) * (1 + std::cos(std::numbers::pi * p)) / 2;
}

}  // namespace

TEST_CASE("constant, with the linear warm-up of all schedules", "[unit][optim]") {
    const ScheduleOptions o{.name = "constant", .base_lr = 0.3, .horizon = 1, .warmup = 2};
    CHECK(rate(o, 0) == Approx(0.15));
    CHECK(rate(o, 1) == 0.3);
    CHECK(rate(o, 77) == 0.3);
    for (const char* name :
         {"cosine", "cosine_restarts", "linear", "poly", "step", "exponential", "plateau"}) {
        INFO(name);
        const ScheduleOptions warm{
            .name = name, .base_lr = 1, .horizon = 40, .warmup = 10, .step_size = 20, .cycle = 30};
        for (int applied = 0; applied < 10; ++applied)
            CHECK(rate(warm, applied) == Approx((applied + 1) / 10.0));
        CHECK(rate(warm, 9) == 1.0);  // case 12: the peak is at the 10th update
        CHECK(rate(warm, 10) == 1.0);
    }
}

TEST_CASE("case 11: cosine with its floor, asked anew at each update", "[unit][optim]") {
    const ScheduleOptions o{.name = "cosine", .base_lr = 1e-3, .horizon = 100};
    CHECK(rate(o, 0) == 1e-3);
    CHECK(rate(o, 50) == Approx(5.00000e-4).epsilon(1e-9));
    CHECK(rate(o, 51) == Approx(4.84295e-4).epsilon(1e-5));
    CHECK(rate(o, 100) == Approx(0).margin(1e-18));

    const ScheduleOptions floor{.name = "cosine", .base_lr = 1.0, .min_lr = 0.1, .horizon = 100};
    CHECK(rate(floor, 50) == Approx(0.55));
    CHECK(rate(floor, 100) == Approx(0.1));
    CHECK(rate(floor, 1000) == Approx(0.1));

    const ScheduleOptions warm{.name = "cosine", .base_lr = 1.0, .horizon = 110, .warmup = 10};
    CHECK(rate(warm, 0) == Approx(0.1));
    CHECK(rate(warm, 60) == Approx(0.5));
}

TEST_CASE("cosine with restarts, cycles of one length and growing ones", "[unit][optim]") {
    const ScheduleOptions even{
        .name = "cosine_restarts", .base_lr = 1, .min_lr = 0.1, .horizon = 40, .warmup = 5, .cycle = 10};
    for (const int start : {5, 15, 25, 995}) {
        INFO(start);
        CHECK(rate(even, start) == 1);
        CHECK(rate(even, start + 5) == Approx(0.55));
        CHECK(rate(even, start + 9) == Approx(half_cosine(1, 0.1, 0.9)));
    }
    // Cycles of 10, 20 and 40 updates.
    const ScheduleOptions growing{
        .name = "cosine_restarts", .base_lr = 1, .horizon = 70, .cycle = 10, .cycle_factor = 2};
    CHECK(rate(growing, 0) == 1);
    CHECK(rate(growing, 5) == Approx(0.5));
    CHECK(rate(growing, 10) == 1);
    CHECK(rate(growing, 20) == Approx(0.5));
    CHECK(rate(growing, 30) == 1);
    CHECK(rate(growing, 40) == Approx(half_cosine(1, 0, 0.25)));
    CHECK(rate(growing, 69) == Approx(half_cosine(1, 0, 39 / 40.0)));
    CHECK(rate(growing, 70) == 1);
}

TEST_CASE("linear and poly", "[unit][optim]") {
    const ScheduleOptions linear{.name = "linear", .base_lr = 2.0, .min_lr = 1.0, .horizon = 10};
    CHECK(rate(linear, 0) == 2.0);
    CHECK(rate(linear, 5) == Approx(1.5));
    CHECK(rate(linear, 10) == Approx(1.0));
    CHECK(rate(linear, 50) == Approx(1.0));

    const ScheduleOptions poly{
        .name = "poly", .base_lr = 2.0, .min_lr = 1.0, .horizon = 25, .warmup = 5, .power = 2};
    CHECK(rate(poly, 5) == 2.0);
    CHECK(rate(poly, 15) == Approx(1.25));  // 1 + (1 - 0.5)^2
    CHECK(rate(poly, 24) == Approx(1 + 0.05 * 0.05));
    CHECK(rate(poly, 25) == 1.0);
    CHECK(rate(poly, 999) == 1.0);
}

TEST_CASE("step and exponential fall to the floor", "[unit][optim]") {
    const ScheduleOptions step{
        .name = "step", .base_lr = 1.0, .min_lr = 0.02, .horizon = 100, .step_size = 10, .gamma = 0.1};
    CHECK(rate(step, 9) == 1.0);
    CHECK(rate(step, 10) == Approx(0.1));
    CHECK(rate(step, 25) == Approx(0.02));

    const ScheduleOptions exponential{.name = "exponential",
                                      .base_lr = 1.0,
                                      .min_lr = 0.02,
                                      .horizon = 100,
                                      .warmup = 4,
                                      .step_size = 10,
                                      .gamma = 0.25};
    CHECK(rate(exponential, 4) == 1.0);
    CHECK(rate(exponential, 9) == Approx(0.5));  // half a step: sqrt(0.25)
    CHECK(rate(exponential, 14) == Approx(0.25));
    CHECK(rate(exponential, 24) == Approx(0.0625));
    CHECK(rate(exponential, 100) == 0.02);
    CHECK(rate(exponential, 1000) == 0.02);
}

TEST_CASE("one cycle rises to the peak and ends far below its start", "[unit][optim]") {
    ScheduleOptions o{.name = "one_cycle", .base_lr = 1, .horizon = 101, .warmup = 21};
    o.start_factor = 10;
    o.final_factor = 100;
    CHECK(rate(o, 0) == Approx(0.1));
    CHECK(rate(o, 5) == Approx(half_cosine(0.1, 1, 0.25)));
    CHECK(rate(o, 10) == Approx(0.55));
    CHECK(rate(o, 20) == 1);
    CHECK(rate(o, 60) == Approx((1 + 0.001) / 2));
    CHECK(rate(o, 100) == Approx(0.001));  // the last update
    CHECK(rate(o, 101) == Approx(0.001));
    CHECK(rate(o, 5000) == Approx(0.001));

    // Without a warm-up of its own 30 % of the horizon: torch's OneCycleLR(max_lr=1, total_steps=100).
    const ScheduleOptions standard{.name = "one_cycle", .base_lr = 1, .horizon = 100};
    CHECK(rate(standard, 0) == Approx(0.04));
    CHECK(rate(standard, 29) == 1);
    CHECK(rate(standard, 64) == Approx((1 + 0.04e-4) / 2));
    CHECK(rate(standard, 99) == Approx(0.04e-4));

    // Nothing left after the rise, or nothing to rise over.
    CHECK(rate({.name = "one_cycle", .base_lr = 1, .horizon = 3, .warmup = 3}, 1) ==
          Approx(half_cosine(0.04, 1, 0.5)));
    CHECK(rate({.name = "one_cycle", .base_lr = 1, .horizon = 10, .warmup = 1}, 0) == 1);
}

TEST_CASE("plateau: the rate follows the drops, down to the floor", "[unit][optim]") {
    const ScheduleOptions o{.name = "plateau", .base_lr = 1, .min_lr = 0.1, .warmup = 2, .gamma = 0.5};
    CHECK(rate(o, 0, 0) == Approx(0.5));
    CHECK(rate(o, 2, 0) == 1);
    CHECK(rate(o, 1000, 0) == 1);
    CHECK(rate(o, 3, 1) == 0.5);
    CHECK(rate(o, 3, 3) == 0.125);
    CHECK(rate(o, 3, 4) == 0.1);
    CHECK(rate(o, 3, 50) == 0.1);
    // Others do not look at drops.
    CHECK(rate({.name = "constant", .base_lr = 1}, 3, 4) == 1);
}

TEST_CASE("plateau: a sequence of validations", "[unit][optim]") {
    ScheduleOptions o{.name = "plateau", .base_lr = 1, .min_lr = 0.3, .gamma = 0.5};
    o.patience = 1;
    o.threshold = 0.1;
    o.cooldown = 2;
    const Schedule schedule(o);
    struct Validation {
        double loss;
        bool drops;
        PlateauState after;  // seen, best, bad, cooldown, drops
    };
    const std::vector<Validation> sequence{
        {1.00, false, {1, 1.00, 0, 0, 0}},   // the first is the best
        {0.95, false, {2, 1.00, 1, 0, 0}},   // lower, but not by a tenth: tolerated
        {0.85, false, {3, 0.85, 0, 0, 0}},   // better
        {0.90, false, {4, 0.85, 1, 0, 0}},   // tolerated
        {0.90, true, {5, 0.85, 0, 2, 1}},    // one too many
        {0.90, false, {6, 0.85, 0, 1, 1}},   // not judged
        {0.50, false, {7, 0.50, 0, 0, 1}},   // not judged, but a new best
        {0.50, false, {8, 0.50, 1, 0, 1}},   // tolerated
        {NAN, true, {9, 0.50, 0, 2, 2}},     // never better
        {0.50, false, {10, 0.50, 0, 1, 2}},  // not judged
        {0.50, false, {11, 0.50, 0, 0, 2}},  // not judged
        {0.50, false, {12, 0.50, 1, 0, 2}},  // tolerated
        {0.50, false, {13, 0.50, 0, 2, 2}},  // 0.25 is below the floor already: nothing left to drop
    };
    PlateauState state;
    for (const Validation& validation : sequence) {
        INFO("validation " << validation.after.seen);
        CHECK(schedule.take_validation(state, validation.loss, false) == validation.drops);
        CHECK(state == validation.after);
    }
}

TEST_CASE("plateau: accuracies, negative metrics and a first one that is not finite", "[unit][optim]") {
    ScheduleOptions o{.name = "plateau", .base_lr = 1};
    o.patience = 0;
    o.threshold = 0.1;
    const Schedule schedule(o);
    PlateauState accuracy;
    CHECK(!schedule.take_validation(accuracy, 0.5, true));
    CHECK(!schedule.take_validation(accuracy, 0.56, true));
    CHECK(accuracy.best == 0.56);
    CHECK(schedule.take_validation(accuracy, 0.6, true));
    PlateauState negative;
    CHECK(!schedule.take_validation(negative, -1, false));
    CHECK(!schedule.take_validation(negative, -1.2, false));
    CHECK(schedule.take_validation(negative, -1.2, false));  // equal is no better
    o.patience = 5;
    PlateauState broken;
    CHECK(!Schedule(o).take_validation(broken, NAN, false));
    CHECK(broken.bad == 1);
    CHECK(!Schedule(o).take_validation(broken, 3, false));
    CHECK(broken == PlateauState{.seen = 2, .best = 3});

    PlateauState untouched;
    CHECK(!Schedule({.name = "cosine"}).take_validation(untouched, 1, false));
    CHECK(untouched == PlateauState{});
}

TEST_CASE("schedule options out of range are refused by key and value", "[unit][optim]") {
    CHECK_THAT(refused({.name = "cosin"}), contains("schedule.name=cosin"));
    CHECK_THAT(refused({.name = "cosine", .base_lr = 1, .min_lr = 2}), contains("schedule.min_lr=2"));
    CHECK_THAT(refused({.warmup = -1}), contains("schedule.warmup_steps=-1"));
    CHECK_THAT(refused({.horizon = -1}), contains("schedule.steps=-1"));
    CHECK_THAT(refused({.name = "step", .step_size = 0}), contains("schedule.step_size=0"));
    CHECK_THAT(refused({.name = "exponential", .gamma = 1.5}), contains("schedule.gamma=1.5"));
    CHECK_THAT(refused({.name = "plateau", .gamma = 1}), contains("schedule.gamma=1"));
    CHECK_THAT(refused({.name = "poly", .power = 0}), contains("schedule.power=0"));
    CHECK_THAT(refused({.name = "cosine_restarts", .cycle = 0}), contains("schedule.cycle=0"));
    CHECK_THAT(refused({.name = "cosine_restarts", .cycle_factor = 0.5}),
               contains("schedule.cycle_factor=0.5"));
    CHECK_THAT(refused({.name = "one_cycle", .start_factor = 0}), contains("schedule.start_factor=0"));
    CHECK_THAT(refused({.name = "one_cycle", .final_factor = 0}), contains("schedule.final_factor=0"));
    CHECK_THAT(refused({.name = "plateau", .patience = -1}), contains("schedule.patience=-1"));
    CHECK_THAT(refused({.name = "plateau", .threshold = -1}), contains("schedule.threshold=-1"));
    CHECK_THAT(refused({.name = "plateau", .cooldown = -1}), contains("schedule.cooldown=-1"));
    CHECK(refused({.name = "linear", .step_size = 0}).empty());  // no matter of this schedule's
}

TEST_CASE("rates scaled by the batch", "[unit][optim]") {
    CHECK(lr_scale("linear", 1024, 256) == 4);
    CHECK(lr_scale("sqrt", 1024, 256) == 2);
    CHECK(lr_scale("none", 1024, 256) == 1);
    CHECK_THROWS_AS(lr_scale("cubic", 1, 1), Error);
}
