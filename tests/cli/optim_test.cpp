// Optimizers, rules and schedules of a configuration, through the program.
#include <cmath>

#include "support/catch.hpp"
#include "support/runs.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

Run classifier(const TempDir& folder) {
    write_samples(folder / "train.h5", clusters(120, Shape{10}, 4));
    write_samples(folder / "valid.h5", clusters(40, Shape{10}, 4, 2));
    return Run(folder / "run", {{"data.train", folder / "train.h5"},
                                {"data.valid", folder / "valid.h5"},
                                {"model.width", "16"},
                                {"model.depth", "1"},
                                {"train.batch", "30"},
                                {"train.epochs", "6"},
                                {"optim.weight_decay", "0.01"},
                                {"run.threads", "1"}});
}

}  // namespace

TEST_CASE("every optimizer learns, on one rank as on three, and goes on after a stop", "[cli-optim]") {
    const TempDir folder;
    const Run base = classifier(folder);
    const std::vector<Keys> optimizers = {
        {{"optim.name", "sgd"}, {"optim.lr", "0.1"}, {"optim.momentum", "0.9"}, {"optim.dampening", "0.2"}},
        {{"optim.name", "adamw"}, {"optim.lr", "0.02"}, {"optim.amsgrad", "true"}},
        {{"optim.name", "lamb"}, {"optim.lr", "0.05"}},
        {{"optim.name", "lars"}, {"optim.lr", "0.1"}, {"optim.momentum", "0.9"}, {"optim.trust", "0.5"}},
        {{"optim.name", "lion"}, {"optim.lr", "0.01"}}};
    for (std::size_t i = 0; i < optimizers.size(); ++i) {
        const std::string name = std::to_string(i) + optimizers[i][0].second;
        INFO(name);
        const Run one = base.at(folder / (name + "-1")).with(optimizers[i]).with({{"train.lanes", "3"}});
        const Checkpoint end = one.finish(0);
        REQUIRE(one.column("valid", "accuracy").back() > 0.9);
        const Run three = one.at(folder / (name + "-3"));
        REQUIRE(largest_difference(three.finish(3).weights, end.weights) < 2e-4);
        const Run cut = one.at(folder / (name + "-cut"));
        cut.with({{"train.max_steps", "9"}}).expect(0, 0);
        cut.expect(0, 0);
        REQUIRE(same_bits(cut.last().weights, end.weights));
        REQUIRE(same_bits(cut.last().states, end.states));
    }
}

TEST_CASE("rules give parameters a rate and decay of their own, and are said at the start", "[cli-optim]") {
    const TempDir folder;
    const Run run = Run(folder / "run", single_weight(folder / "data.h5"));
    // Twice the rate: each update multiplies 1 - w by 0.8.
    const Run twice =
        run.at(folder / "twice").with({{"optim.rule", "*.weight lr=2x"}, {"train.max_steps", "3"}});
    const Result result = twice.expect(0, 2);
    REQUIRE(twice.last().weights.at("0.linear.weight")[0] == Approx(1 - std::pow(0.8, 3)).margin(1e-6));
    REQUIRE_THAT(result.err, contains("0.linear.weight"));
    const Run frozen = run.at(folder / "frozen").with({{"optim.rule", "0.* lr=0"}, {"train.max_steps", "3"}});
    REQUIRE(frozen.finish(0).weights.at("0.linear.weight")[0] == 0);
    const auto refused = [&](const std::string& rule) {
        return run.with({{"optim.rule", rule}}).expect(2, 0).err;
    };
    CHECK_THAT(refused("fc.* lr=2x"), contains("fc.*"));
    CHECK_THAT(refused("*.weight speed=3"), contains("speed=3"));
    CHECK_THAT(refused("*.weight lr=fast"), contains("lr=fast"));
}

TEST_CASE("a plateau lowers the rate by the reduced metric, also over a resume", "[cli-optim]") {
    const TempDir folder;
    // The validation loss cannot improve: the rate is 0.
    const Run run = classifier(folder).with({{"optim.lr", "0"},
                                             {"schedule.name", "plateau"},
                                             {"schedule.patience", "1"},
                                             {"schedule.gamma", "0.5"},
                                             {"checkpoint.best", "loss"}});
    const Run slow = run.with({{"optim.lr", "1e-12"}, {"train.epochs", "7"}});
    slow.with({{"train.epochs", "4"}}).expect(0, 2);
    slow.expect(0, 0);
    // One update in four belongs to an epoch: a first validation, then every second one without a better
    // result halves the rate.
    const std::vector<double> lr = slow.column("step", "lr");
    REQUIRE(lr.size() == 28);
    const double expected[] = {1, 1, 1, 0.5, 0.5, 0.25, 0.25};
    for (std::size_t k = 0; k < lr.size(); ++k)
        REQUIRE(lr[k] == Approx(1e-12 * expected[k / 4]).epsilon(1e-9));
    const Result refused = run.with({{"data.valid", ""}}).expect(2, 0);
    REQUIRE_THAT(refused.err, contains("schedule.name=plateau"));
}
