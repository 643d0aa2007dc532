// What cannot be resumed is refused by name, on every rank, and changes nothing.
#include "support/catch.hpp"
#include "support/checkpoint_state.hpp"
#include "support/runs.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

namespace fs = std::filesystem;

Run saved_run(const TempDir& folder) {
    write_samples(folder / "data.h5", clusters(30, Shape{4}, 3));
    const Run run(folder / "run", {{"data.train", folder / "data.h5"},
                                   {"model.width", "8"},
                                   {"model.depth", "1"},
                                   {"train.batch", "7"},
                                   {"train.max_steps", "3"},
                                   {"run.threads", "1"}});
    run.expect(0, 2);
    return run.with({{"train.max_steps", "9"}});
}

// The same message once, the status on every rank, and the run as it was.
void require_refused(const Run& run, const Keys& changes, int status, const std::vector<std::string>& named) {
    const std::string metrics = read_file(run.dir() / "metrics.jsonl"),
                      saved = read_file(run.checkpoint_path(3));
    for (const int ranks : {1, 2}) {
        Result result;
        const std::vector<int> statuses = statuses_of_ranks(ranks, run.with(changes).arguments(), &result);
        INFO(ranks << " ranks\n" << result.err);
        REQUIRE(statuses == std::vector<int>(static_cast<std::size_t>(ranks), status));
        for (const std::string& part : named) REQUIRE_THAT(result.err, contains(part));
        REQUIRE(read_file(run.dir() / "metrics.jsonl") == metrics);
        REQUIRE(read_file(run.checkpoint_path(3)) == saved);
        REQUIRE(run.saved_steps() == std::vector<std::int64_t>{3});
    }
}

}  // namespace

TEST_CASE("case 14: a model, optimizer or lanes other than the saved ones are refused by name",
          "[restart-refusal]") {
    const TempDir folder;
    const Run run = saved_run(folder);
    require_refused(run, {{"model.width", "16"}}, 3, {"fc1.weight", "8x4", "16x4", "step-00000003.h5"});
    require_refused(run, {{"model.depth", "2"}}, 3, {"fc2.weight", "8x8"});
    require_refused(run, {{"optim.name", "sgd"}}, 2, {"optim.name", "adamw", "sgd"});
    require_refused(run, {{"train.lanes", "4"}}, 2, {"train.lanes", "4", "2"});
    require_refused(run, {{"train.batch", "8"}}, 2, {"train.batch", "7", "8"});
    require_refused(run, {{"run.seed", "8"}}, 2, {"run.seed"});
    require_refused(run, {{"data.normalize", "standard"}}, 2, {"data.normalize", "none", "standard"});
}

TEST_CASE("case 14: changes that fit are named and taken", "[restart-refusal]") {
    const TempDir folder;
    const Run run = saved_run(folder);
    const Result result = run.with({{"optim.lr", "0.0005"}, {"model.dropout", "0.1"}}).expect(0, 2);
    REQUIRE_THAT(result.err, contains("optim.lr"));
    REQUIRE_THAT(result.err, contains("0.001"));
    REQUIRE_THAT(result.err, contains("0.0005"));
    REQUIRE_THAT(result.err, contains("model.dropout"));
    REQUIRE(run.column("step", "lr").at(2) == 0.001);
    REQUIRE(run.column("step", "lr").at(3) == 0.0005);
    REQUIRE(run.column("step", "step").size() == 9);
}

TEST_CASE("case 14: data that do not fit the saved model are refused", "[restart-refusal]") {
    const TempDir folder;
    const Run run = saved_run(folder);
    write_samples(folder / "wide.h5", clusters(30, Shape{5}, 3));
    require_refused(run, {{"data.train", folder / "wide.h5"}}, 3, {folder / "wide.h5"});
    // In the middle of an epoch fewer or more samples would change which ones it still has to take.
    for (const std::int64_t other : {20, 31}) {
        write_samples(folder / "other.h5", clusters(other, Shape{4}, 3));
        require_refused(run, {{"data.train", folder / "other.h5"}}, 3,
                        {"data.train", "other.h5", "30 samples", std::to_string(other)});
    }
    write_samples(folder / "more.h5", clusters(30, Shape{4}, 6));
    require_refused(run, {{"data.train", folder / "more.h5"}}, 3, {"head.weight", "3x8", "6x8"});
}

TEST_CASE("case 14: a checkpoint without a parameter or the optimizer's state is refused",
          "[restart-refusal]") {
    const TempDir folder;
    const Run run = saved_run(folder);
    const std::string whole = run.checkpoint_path(3), cut = folder / "cut.h5";
    SECTION("a parameter") {
        copy_without(whole, cut, "/model/fc1.bias");
        require_refused(run, {{"run.resume", cut}}, 3, {cut, "fc1.bias"});
    }
    SECTION("the optimizer") {
        copy_without(whole, cut, "/optim/m");
        require_refused(run, {{"run.resume", cut}}, 3, {cut, "/optim/m"});
    }
    SECTION("the position") {
        copy_without(whole, cut, "/position");
        require_refused(run, {{"run.resume", cut}}, 3, {cut, "/position"});
    }
}

TEST_CASE("case 15: resuming from a file that is not there trains nothing", "[restart-refusal]") {
    const TempDir folder;
    write_samples(folder / "data.h5", clusters(30, Shape{4}, 3));
    const std::string missing = folder / "missing.h5";
    const Run run(folder / "run",
                  {{"data.train", folder / "data.h5"}, {"train.epochs", "1"}, {"run.resume", missing}});
    for (const int ranks : {1, 2}) {
        Result result;
        const std::vector<int> statuses = statuses_of_ranks(ranks, run.arguments(), &result);
        REQUIRE(statuses == std::vector<int>(static_cast<std::size_t>(ranks), 3));
        REQUIRE_THAT(result.err, contains(missing));
        REQUIRE_FALSE(fs::exists(run.dir() / "metrics.jsonl"));
        REQUIRE_FALSE(fs::exists(run.dir() / "checkpoints"));
    }
    write_file(missing, "this is text");
    REQUIRE_THAT(run.expect(3, 2).err, contains(missing));
    // A data set is no checkpoint.
    REQUIRE_THAT(run.with({{"run.resume", folder / "data.h5"}}).expect(3, 2).err,
                 contains("no Trireme checkpoint"));
}
