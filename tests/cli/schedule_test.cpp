// Learning rates, clipping and plain arithmetic of a run, against numbers worked out by hand.
#include <cmath>

#include "support/catch.hpp"
#include "support/runs.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

float weight_of(const Checkpoint& checkpoint) {
    return checkpoint.weights.at("0.linear.weight").at(0);
}

// The rate of each update, the first at index 0.
std::vector<double> rates(const Run& run, int ranks = 0) {
    run.expect(0, ranks);
    return run.column("step", "lr");
}

}  // namespace

TEST_CASE("one weight follows 1 - 0.9^k on any number of ranks", "[cli-schedule]") {
    const TempDir folder;
    const Run run(folder / "run", single_weight(folder / "data.h5"));
    for (const int ranks : {0, 1, 3}) {
        const Run here = run.at(folder / std::to_string(ranks))
                             .with({{"checkpoint.every", "1 steps"}, {"checkpoint.keep", "30"}});
        here.finish(ranks);
        for (const std::int64_t k : {1, 2, 5, 10, 20})
            REQUIRE(weight_of(here.checkpoint(k)) == Approx(1 - std::pow(0.9, k)).margin(1e-6));
        const std::vector<double> losses = here.column("step", "loss"),
                                  norms = here.column("step", "grad_norm");
        REQUIRE(losses.size() == 20);
        for (int k = 0; k < 20; ++k) {
            REQUIRE(losses[static_cast<std::size_t>(k)] == Approx(std::pow(0.81, k)).margin(1e-6));
            REQUIRE(norms[static_cast<std::size_t>(k)] == Approx(2 * std::pow(0.9, k)).margin(1e-6));
        }
    }
}

TEST_CASE("the norm is logged before clipping, and the step is that of the clipped gradient",
          "[cli-schedule]") {
    const TempDir folder;
    const Run run =
        Run(folder / "run", single_weight(folder / "data.h5"))
            .with({{"train.clip_norm", "1"}, {"train.max_steps", "4"}, {"checkpoint.every", "1 steps"}});
    for (const int ranks : {0, 2}) {
        const Run here = run.at(folder / std::to_string(ranks));
        here.finish(ranks);
        // Each gradient is above 1, so each step moves the weight by lr.
        const std::vector<double> norms = here.column("step", "grad_norm");
        for (int k = 0; k < 4; ++k)
            REQUIRE(norms[static_cast<std::size_t>(k)] == Approx(2 - 0.1 * k).margin(1e-6));
        REQUIRE(weight_of(here.last()) == Approx(0.2).margin(1e-6));
    }
}

TEST_CASE("case 11: cosine goes on after a resume, keeps its floor, and stays there past the end",
          "[cli-schedule]") {
    const TempDir folder;
    Run run(folder / "run", single_weight(folder / "data.h5", 1e-3));
    run = run.with({{"schedule.name", "cosine"}, {"schedule.steps", "100"}, {"train.max_steps", "50"}});
    run.expect(0);
    const std::vector<double> all = rates(run.with({{"train.max_steps", "100"}}));
    REQUIRE(run.events("start").back()["step"] == 50);
    REQUIRE(all.size() == 100);
    REQUIRE(all[0] == Approx(1e-3).epsilon(1e-12));
    REQUIRE(all[49] == Approx(5.15705e-4).epsilon(1e-6));
    REQUIRE(all[50] == Approx(5.00000e-4).epsilon(1e-6));  // 50 updates are applied
    REQUIRE(all[51] == Approx(4.84295e-4).epsilon(1e-5));
    const Run whole = run.at(folder / "whole").with({{"train.max_steps", "100"}});
    REQUIRE(rates(whole) == all);
    REQUIRE(same_bits(whole.last().weights, run.last().weights));

    const Run floor = run.at(folder / "floor")
                          .with({{"optim.lr", "1"},
                                 {"schedule.min_lr", "0.1"},
                                 {"schedule.steps", "10"},
                                 {"train.max_steps", "14"}});
    const std::vector<double> floored = rates(floor);
    REQUIRE(floored[0] == 1.0);
    REQUIRE(floored[5] == Approx(0.55).epsilon(1e-12));
    for (const std::size_t past : {10, 11, 12, 13}) REQUIRE(floored[past] == Approx(0.1).epsilon(1e-12));
}

TEST_CASE("case 12: warm-up counts updates, whatever the lanes and ranks", "[cli-schedule]") {
    const TempDir folder;
    const Run run =
        Run(folder / "run", single_weight(folder / "data.h5", 0.05)).with({{"schedule.warmup_steps", "10"}});
    for (const int ranks : {1, 4})
        for (const int lanes_per_rank : {1, 2}) {
            const std::string lanes = std::to_string(ranks * lanes_per_rank);
            INFO(ranks << " ranks, " << lanes << " lanes");
            const Run here =
                run.at(folder / (std::to_string(ranks) + "-" + lanes)).with({{"train.lanes", lanes}});
            const std::vector<double> lr = rates(here, ranks);
            REQUIRE(here.events("start")[0]["lanes"] == ranks * lanes_per_rank);
            REQUIRE(lr.size() == 20);
            for (int k = 0; k < 20; ++k)
                REQUIRE(lr[static_cast<std::size_t>(k)] ==
                        Approx(0.05 * std::min(k + 1, 10) / 10).epsilon(1e-12));
        }
}

TEST_CASE("warm-up in epochs, then a linear fall to the end of the epochs", "[cli-schedule]") {
    const TempDir folder;
    // Two steps an epoch, ten epochs: the horizon is 20 updates, two of them warm-up.
    const Run run = Run(folder / "run", single_weight(folder / "data.h5", 0.09))
                        .with({{"train.batch", "2"},
                               {"train.epochs", "10"},
                               {"train.max_steps", "12"},
                               {"schedule.name", "linear"},
                               {"schedule.warmup_epochs", "1"}});
    const std::vector<double> lr = rates(run);
    REQUIRE(lr.size() == 12);  // max_steps ends the run early and leaves the horizon as it is
    REQUIRE(lr[0] == Approx(0.045).epsilon(1e-12));
    REQUIRE(lr[1] == Approx(0.09).epsilon(1e-12));
    for (int k = 2; k < 12; ++k)
        REQUIRE(lr[static_cast<std::size_t>(k)] == Approx(0.09 - 0.005 * (k - 2)).epsilon(1e-12));
}

TEST_CASE("step decay, and rates scaled by the batch", "[cli-schedule]") {
    const TempDir folder;
    const Run base(folder / "run", single_weight(folder / "data.h5", 1));
    const Run run = base.with({{"schedule.name", "step"},
                               {"schedule.step_size", "3"},
                               {"schedule.gamma", "0.1"},
                               {"optim.scale_lr", "linear"},
                               {"optim.base_batch", "8"},
                               {"train.max_steps", "7"}});
    const std::vector<double> expected = {0.5, 0.5, 0.5, 0.05, 0.05, 0.05, 0.005};
    const std::vector<double> lr = rates(run);
    REQUIRE(lr.size() == expected.size());
    for (std::size_t k = 0; k < lr.size(); ++k) REQUIRE(lr[k] == Approx(expected[k]).epsilon(1e-12));
    const std::vector<double> root = rates(run.at(folder / "sqrt").with({{"optim.scale_lr", "sqrt"}}));
    REQUIRE(root[0] == Approx(std::sqrt(0.5)).epsilon(1e-12));
}
