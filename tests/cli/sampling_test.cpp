// Which samples are taken, how often and in what order, as a user sees it: metrics, traces, saved weights.
#include <algorithm>
#include <numeric>
#include <set>

#include "support/catch.hpp"
#include "support/runs.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

// Two classes on a line: the sign of x.
Samples signs(const std::vector<double>& x, const std::vector<double>& labels) {
    return {Shape{1}, x, labels};
}

std::vector<std::int64_t> ids_of_steps(const std::vector<TracedSample>& trace, std::int64_t first,
                                       std::int64_t last) {
    std::vector<std::int64_t> ids;
    for (const TracedSample& sample : trace)
        if (first <= sample.step && sample.step <= last) ids.push_back(sample.sample);
    return ids;
}

std::vector<std::int64_t> sorted(std::vector<std::int64_t> ids) {
    std::sort(ids.begin(), ids.end());
    return ids;
}

std::vector<std::int64_t> counted(std::int64_t samples) {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(samples));
    std::iota(ids.begin(), ids.end(), std::int64_t{0});
    return ids;
}

Keys small_mlp(const std::string& train) {
    return {{"data.train", train}, {"model.width", "8"},          {"model.depth", "1"},
            {"optim.name", "sgd"}, {"optim.lr", "0.05"},          {"train.batch", "6"},
            {"train.epochs", "1"}, {"run.trace_samples", "true"}, {"run.threads", "1"}};
}

}  // namespace

TEST_CASE("case 1: ten validation samples, seven of them right, on 1 to 4 ranks", "[cli-sampling]") {
    const TempDir folder;
    write_samples(folder / "train.h5", signs({-1, 1, -1, 1}, {0, 1, 0, 1}));
    // The last three carry the wrong label.
    const Samples valid = signs({-1, 1, -2, 2, -1, 1, 3, 1, -1, 2}, {0, 1, 0, 1, 0, 1, 1, 0, 1, 0});
    write_samples(folder / "valid.h5", valid);
    const Run run(folder / "run", {{"data.train", folder / "train.h5"},
                                   {"data.valid", folder / "valid.h5"},
                                   {"model.layer", "linear out=classes"},
                                   {"model.init", "zeros"},
                                   {"train.batch", "4"},
                                   {"train.epochs", "2"},
                                   {"optim.name", "sgd"},
                                   {"optim.lr", "1"}});
    std::vector<double> losses;
    for (const int ranks : {1, 2, 3, 4}) {
        const Run here = run.at(folder / std::to_string(ranks));
        here.finish(ranks);
        for (const Event& valid_event : here.events("valid")) {
            REQUIRE(valid_event["count"] == 10);
            REQUIRE(valid_event["accuracy"] == 0.7);
        }
        REQUIRE(here.events("valid").size() == 2);
        const Event eval = evaluate(ranks, here.best_path(), folder / "valid.h5");
        REQUIRE(eval["count"] == 10);
        REQUIRE(eval["accuracy"] == 0.7);
        losses.push_back(here.events("valid").back()["loss"]);
        REQUIRE(losses.back() == Approx(losses.front()).epsilon(1e-6));
    }
}

TEST_CASE("case 2: three samples on seven ranks", "[cli-sampling]") {
    const TempDir folder;
    write_samples(folder / "data.h5", clusters(3, Shape{4}, 3));
    const Run run(folder / "seven", small_mlp(folder / "data.h5"));
    const Checkpoint seven = run.with({{"data.valid", folder / "data.h5"}, {"train.lanes", "7"}}).finish(7);
    REQUIRE(run.events("start")[0]["samples"] == 3);
    REQUIRE(run.column("step", "samples") == std::vector<double>{3});
    REQUIRE(run.column("valid", "count") == std::vector<double>{3});
    REQUIRE(sorted(ids_of_steps(run.trace(), 1, 1)) == counted(3));
    REQUIRE(seven.position.at("samples") == 3);
    const Checkpoint one = run.at(folder / "one").finish(0);
    REQUIRE(largest_difference(one.weights, seven.weights) < 1e-6);
}

TEST_CASE("case 2: nine samples on four ranks in batches of eight", "[cli-sampling]") {
    const TempDir folder;
    write_samples(folder / "data.h5", clusters(9, Shape{4}, 3));
    const Run run = Run(folder / "four", small_mlp(folder / "data.h5"))
                        .with({{"train.batch", "8"}, {"data.valid", folder / "data.h5"}});
    const Checkpoint four = run.finish(4);
    REQUIRE(run.column("step", "samples") == std::vector<double>{8, 9});
    REQUIRE(run.column("valid", "count") == std::vector<double>{9});
    REQUIRE(sorted(ids_of_steps(run.trace(), 1, 2)) == counted(9));
    REQUIRE(ids_of_steps(run.trace(), 2, 2).size() == 1);
    REQUIRE(largest_difference(run.at(folder / "one").finish(0).weights, four.weights) < 1e-5);

    SECTION("drop_last leaves the ninth out on all ranks alike") {
        const Run dropping = run.with({{"data.drop_last", "true"}}).at(folder / "dropping");
        dropping.finish(4);
        REQUIRE(dropping.column("step", "samples") == std::vector<double>{8});
        REQUIRE(dropping.column("valid", "count") == std::vector<double>{9});
    }
}

TEST_CASE("case 2: drop_last that leaves no step is refused before step 0", "[cli-sampling]") {
    const TempDir folder;
    write_samples(folder / "data.h5", clusters(5, Shape{4}, 3));
    const Run run = Run(folder / "run", small_mlp(folder / "data.h5"))
                        .with({{"train.batch", "8"}, {"data.drop_last", "true"}});
    for (const int ranks : {0, 2}) {
        const Result result = run.expect(2, ranks);
        REQUIRE_THAT(result.err, contains("data.drop_last"));
        REQUIRE_THAT(result.err, contains("5"));
        REQUIRE_THAT(result.err, contains("train.batch=8"));
        REQUIRE_FALSE(std::filesystem::exists(run.dir() / "metrics.jsonl"));
        REQUIRE_FALSE(std::filesystem::exists(run.dir() / "checkpoints"));
    }
}

TEST_CASE("case 3: each epoch takes every sample once, in an order of its own", "[cli-sampling]") {
    const TempDir folder;
    write_samples(folder / "data.h5", clusters(24, Shape{4}, 3));
    const Run run =
        Run(folder / "a", small_mlp(folder / "data.h5")).with({{"train.epochs", "3"}, {"train.lanes", "3"}});
    run.finish(3);
    for (int rank = 0; rank < 3; ++rank)
        REQUIRE(std::filesystem::exists(run.dir() / ("samples-" + std::to_string(rank) + ".csv")));
    const std::vector<TracedSample> trace = run.trace();
    REQUIRE(trace.size() == 72);
    std::set<std::vector<std::int64_t>> orders;
    for (int epoch = 0; epoch < 3; ++epoch) {
        const std::vector<std::int64_t> ids = ids_of_steps(trace, 4 * epoch + 1, 4 * epoch + 4);
        REQUIRE(sorted(ids) == counted(24));
        orders.insert(ids);
    }
    REQUIRE(orders.size() == 3);
    REQUIRE_FALSE(orders.contains(counted(24)));

    const Run again = run.at(folder / "again"), alone = run.at(folder / "alone");
    again.finish(3);
    REQUIRE(again.trace() == trace);
    alone.finish(0);
    REQUIRE(alone.trace() == trace);  // the order is the same whatever the ranks
    const Run other = run.at(folder / "other").with({{"run.seed", "2"}});
    other.finish(0);
    REQUIRE(ids_of_steps(other.trace(), 1, 4) != ids_of_steps(trace, 1, 4));
}

TEST_CASE("case 4: one file and uneven shards give the same samples and bit-equal weights",
          "[cli-sampling]") {
    const TempDir folder;
    const Samples samples = clusters(100, Shape{4}, 3);
    write_samples(folder / "whole.h5", samples);
    const std::string shards = write_shards(folder / "shards", samples, {1, 50, 0, 29, 20});
    for (const std::string shuffle : {"full", "chunk"}) {
        const Run whole = Run(folder / ("whole-" + shuffle), small_mlp(folder / "whole.h5"))
                              .with({{"train.epochs", "2"},
                                     {"train.batch", "16"},
                                     {"data.shuffle", shuffle},
                                     {"data.chunk", "13"}});
        const Run cut = whole.at(folder / ("cut-" + shuffle)).with({{"data.train", shards}});
        const Checkpoint a = whole.finish(2), b = cut.finish(2);
        REQUIRE(whole.trace() == cut.trace());
        REQUIRE(whole.trace().size() == 200);
        REQUIRE(same_bits(a.weights, b.weights));
        REQUIRE(whole.column("step", "loss") == cut.column("step", "loss"));
    }
}
