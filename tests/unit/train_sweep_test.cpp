// Which trials a sweep has, and which of them goes on.
#include <algorithm>
#include <cmath>
#include <set>

#include "support/catch.hpp"
#include "train/halving.hpp"
#include "train/sweep_space.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"

using namespace trireme;

namespace {

Config sweep(std::vector<std::string> params, const std::string& method = "grid", std::int64_t trials = 0) {
    Config config;
    config.sweep.params = std::move(params);
    config.sweep.method = method;
    config.sweep.trials = trials;
    return config;
}

std::string refusal(const Config& config) {
    try {
        SweepSpace space(config);
    } catch (const Error& error) {
        CHECK(error.status() == Status::bad_usage);
        return error.what();
    }
    return "(accepted)";
}

}  // namespace

TEST_CASE("a grid has every combination once", "[unit][sweep]") {
    const Config config = sweep({"optim.lr choice 0.1, 0.01, 0.001", "model.width choice 8,4; 16; 7"});
    const SweepSpace space(config);
    REQUIRE(space.trials() == 9);
    std::set<std::string> all;
    for (std::int64_t t = 0; t < 9; ++t) {
        const auto values = space.values(t);
        REQUIRE(values.size() == 2);
        CHECK(values[0].first == "optim.lr");
        all.insert(values[0].second + "/" + values[1].second);
    }
    CHECK(all.size() == 9);
    CHECK(all.contains("0.01/8,4"));
    const Config last = space.trial(config, 8);
    CHECK(last.optim.lr == 0.001);
    CHECK(last.model.width == std::vector<std::int64_t>{7});
    CHECK(SweepSpace(sweep({"optim.lr choice 1, 2, 3"}, "grid", 2)).trials() == 2);
}

TEST_CASE("drawn values stay in their ranges and depend on seed and number alone", "[unit][sweep]") {
    Config config = sweep({"optim.lr loguniform 1e-5 1e-1", "train.batch integer 3 5",
                           "train.label_smoothing uniform 0 0.5", "optim.name choice sgd, adamw"},
                          "random", 400);
    const SweepSpace space(config);
    REQUIRE(space.trials() == 400);
    std::set<std::string> batches, names;
    double below = 0;
    for (std::int64_t t = 0; t < 400; ++t) {
        const auto values = space.values(t);
        const double lr = parse_real(values[0].second).value();
        CHECK(lr >= 1e-5);
        CHECK(lr <= 1e-1);
        below += lr < 1e-3 ? 1 : 0;  // half of the decades
        batches.insert(values[1].second);
        names.insert(values[3].second);
        const double smoothing = parse_real(values[2].second).value();
        CHECK(smoothing >= 0);
        CHECK(smoothing <= 0.5);
        CHECK(space.values(t) == SweepSpace(config).values(t));
    }
    CHECK(below == Approx(200).margin(50));
    CHECK(batches == std::set<std::string>{"3", "4", "5"});
    CHECK(names.size() == 2);
    config.sweep.seed = 2;
    CHECK(SweepSpace(config).values(0) != space.values(0));
    CHECK(SweepSpace(sweep({"optim.lr uniform 0 1"}, "random")).trials() == 16);
}

TEST_CASE("parameters of a sweep that are wrong are quoted", "[unit][sweep]") {
    CHECK(refusal(sweep({})) == "sweep.param is missing: at least one key that trials differ in");
    CHECK_THAT(refusal(sweep({"optim.lr"})), Catch::Contains("sweep.param=optim.lr: expected `KEY choice"));
    CHECK_THAT(refusal(sweep({"optim.lrr choice 1"})), Catch::Contains("optim.lrr is no key"));
    CHECK_THAT(refusal(sweep({"optim.lr choice 1, 1"})), Catch::Contains("1 is given twice"));
    CHECK_THAT(refusal(sweep({"optim.lr choice 1", "optim.lr choice 2"})), Catch::Contains("given twice"));
    CHECK_THAT(refusal(sweep({"optim.lr uniform 0 1"})), Catch::Contains("sweep.method=random"));
    CHECK_THAT(refusal(sweep({"optim.lr loguniform 0 1"}, "random")), Catch::Contains("above 0"));
    CHECK_THAT(refusal(sweep({"optim.lr uniform 2 1"}, "random")), Catch::Contains("two bounds"));
    CHECK_THAT(refusal(sweep({"optim.lr integer 0.5 2"}, "random")), Catch::Contains("whole numbers"));
    CHECK_THAT(refusal(sweep({"run.dir choice a, b"})), Catch::Contains("run.dir is no key that trials"));
    CHECK_THROWS_AS(SweepSpace(sweep({"optim.lr choice x"})).trial(Config{}, 0), Error);
}

TEST_CASE("successive halving lets the best third go on, without waiting", "[unit][sweep]") {
    const Halving halving(3, 1, 9, true);
    REQUIRE(halving.rungs() == 3);
    CHECK(halving.epochs(0) == 1);
    CHECK(halving.epochs(1) == 3);
    CHECK(halving.epochs(2) == 0);  // to the end

    std::vector<TrialRecord> trials(9);
    CHECK(halving.next(trials) == TrialJob{0, 0});
    trials[0].taken = true;
    CHECK(halving.next(trials) == TrialJob{1, 0});
    CHECK(halving.may_go_on(trials));
    trials[0] = {.metrics = {0.5}};
    trials[1] = {.metrics = {0.7}};
    CHECK(halving.next(trials) == TrialJob{2, 0});  // two have finished: nobody is of the best third yet
    trials[2] = {.metrics = {0.6}};
    CHECK(halving.next(trials) == TrialJob{1, 1});
    trials[1].taken = true;
    CHECK(halving.next(trials) == TrialJob{3, 0});
    trials[1] = {.metrics = {0.7, 0.9}};
    for (std::size_t t = 3; t < 9; ++t) trials[t] = {.metrics = {0.1 * static_cast<double>(t)}};
    // 0.8 (8), 0.7 (1, promoted; 7) are the best three of nine.
    CHECK(halving.next(trials) == TrialJob{8, 1});
    trials[8].failed = true;
    CHECK(halving.next(trials) == TrialJob{7, 1});
    trials[7] = {.metrics = {0.7, 0.95}};
    CHECK_FALSE(halving.next(trials).has_value());  // of two none is of the best third
    CHECK_FALSE(halving.may_go_on(trials));

    const Halving all(0, 1, 9, false);
    CHECK(all.rungs() == 1);
    CHECK(all.epochs(0) == 0);
    std::vector<TrialRecord> two(2);
    two[0] = {.metrics = {1}};
    CHECK(all.next(two) == TrialJob{1, 0});
    two[1].failed = true;
    CHECK_FALSE(all.next(two).has_value());
    // Lower losses go on.
    const Halving loss(2, 1, 4, false);
    CHECK(loss.next({{.metrics = {2}}, {.metrics = {1}}}) == TrialJob{1, 1});
}
