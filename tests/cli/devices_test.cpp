// One process that drives several devices, each a thread and a rank: the same training as with as many
// processes, alone and together with them.
#include "support/catch.hpp"
#include "support/meshes.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

/// Processes (0: one without a launcher), devices of each, ranks of a tensor group.
struct Launch {
    int processes, devices, tensor = 1;

    std::string name() const {
        return std::to_string(processes) + "x" + std::to_string(devices) + "t" + std::to_string(tensor);
    }
    Keys keys() const {
        return {{"run.devices", std::to_string(devices)}, {"parallel.tensor", std::to_string(tensor)}};
    }
    int ranks() const { return std::max(processes, 1) * devices; }
};

Run mlp(const TempDir& folder, const Keys& more = {}) {
    if (!std::filesystem::exists(folder / "train.h5")) {
        write_samples(folder / "train.h5", clusters(75, Shape{2, 4, 4}, 5));
        write_samples(folder / "valid.h5", clusters(31, Shape{2, 4, 4}, 5, 2));
    }
    return Run(folder / "run", {{"data.train", folder / "train.h5"},
                                {"data.valid", folder / "valid.h5"},
                                {"model.width", "24, 17"},
                                {"model.dropout", "0.2"},
                                {"train.batch", "21"},
                                {"train.lanes", "6"},
                                {"train.max_steps", "10"},
                                {"optim.name", "sgd"},
                                {"optim.lr", "0.05"},
                                {"optim.momentum", "0.9"},
                                {"optim.weight_decay", "0.01"},
                                {"run.threads", "1"},
                                {"run.trace_samples", "true"}})
        .with(more);
}

Run launched(const Run& run, const Launch& launch) {
    const Run here = run.at(run.dir().string() + launch.name()).with(launch.keys());
    INFO(launch.name());
    const Result result = here.expect(0, launch.processes);
    REQUIRE(here.events("start")[0]["ranks"] == launch.ranks());
    return here;
}

/// A mesh on so many processes (0: one without a launcher) with so many devices each.
Grid on(int processes, int devices, int tensor = 1, int pipeline = 1, const Keys& more = {}) {
    Keys keys = {{"run.devices", std::to_string(devices)}};
    keys.insert(keys.end(), more.begin(), more.end());
    return {processes, tensor, pipeline, keys};
}

}  // namespace

TEST_CASE("devices of one process train as one rank does", "[cli-devices]") {
    const TempDir folder;
    SECTION("fully connected layers") {
        require_like_one_rank(mlp(folder), {on(0, 2), on(0, 3), on(1, 2), on(2, 2), on(2, 3)});
    }
    SECTION("convolutions, with the threads of a device side by side with those of others") {
        require_like_one_rank(mlp(folder, {{"model.arch", "cnn"},
                                           {"model.channels", "3"},
                                           {"model.batchnorm", "true"},
                                           {"run.threads", "2"}}),
                              {on(0, 2), on(2, 2)});
    }
    SECTION("tiny buckets that are reduced beside the backward pass") {
        const Keys overlapped = {{"parallel.overlap", "on"}, {"parallel.bucket_mb", "0.0005"}};
        require_like_one_rank(mlp(folder, overlapped), {on(0, 2), on(0, 3), on(2, 2), on(2, 2, 2)});
    }
}

TEST_CASE("the wire in bfloat16 carries gradients between devices", "[cli-devices]") {
    const TempDir folder;
    const Run run = mlp(folder, {{"parallel.reduce_dtype", "bf16"}});
    run.expect(0, 0);
    for (const Launch& launch : std::vector<Launch>{{0, 2}, {2, 2}})
        REQUIRE(largest_difference(launched(run, launch).last().weights, run.last().weights) < 1e-2);
}

TEST_CASE("reproducible training has the same bits on devices and on ranks", "[cli-devices]") {
    const TempDir folder;
    const Run run = mlp(folder, {{"train.reduction", "reproducible"},
                                 {"train.lanes", "8"},
                                 {"model.batchnorm", "true"},
                                 {"train.clip_norm", "0.5"}});
    run.expect(0, 0);
    const Checkpoint one = run.last();
    for (const Launch& launch : std::vector<Launch>{{0, 2}, {0, 3}, {0, 4}, {2, 1}, {2, 2}, {3, 1}}) {
        const Run here = launched(run, launch);
        INFO(launch.name());
        REQUIRE(same_bits(here.last().weights, one.weights));
        REQUIRE(same_bits(here.last().states, one.states));
        REQUIRE(here.last().position == one.position);
        REQUIRE(here.column("step", "loss") == run.column("step", "loss"));
        REQUIRE(here.column("valid", "loss") == run.column("valid", "loss"));
    }
}

TEST_CASE("a run goes on from devices to ranks and back", "[cli-devices]") {
    const TempDir folder;
    const Run run = mlp(folder, {{"train.reduction", "reproducible"}, {"train.epochs", "3"}});
    run.expect(0, 0);
    const Run cut = run.at(folder / "cut");
    const auto to = [&](const char* steps, int processes, const char* devices) {
        cut.with({{"train.max_steps", steps}, {"run.devices", devices}}).expect(0, processes);
    };
    to("2", 0, "3");
    to("3", 2, "1");
    to("5", 2, "2");
    to("7", 3, "1");
    to("8", 0, "4");
    to("10", 0, "1");
    REQUIRE(same_bits(cut.last().weights, run.last().weights));
    REQUIRE(same_bits(cut.last().states, run.last().states));
    REQUIRE(cut.trace() == run.trace());
    REQUIRE(cut.column("step", "loss") == run.column("step", "loss"));
}

TEST_CASE("devices write the parts of large parameters into one checkpoint", "[cli-devices]") {
    const TempDir folder;  // parameters from 4 MiB on are written by all ranks
    const Run run = mlp(folder, {{"model.width", "1100, 1001"},
                                 {"train.max_steps", "2"},
                                 {"train.reduction", "reproducible"},
                                 {"train.lanes", "4"},
                                 {"data.valid", ""}});
    run.expect(0, 0);
    for (const Launch& launch : std::vector<Launch>{{0, 3}, {2, 2}}) {
        const Run here = launched(run, launch);
        INFO(launch.name());
        REQUIRE(same_bits(here.last().weights, run.last().weights));
        REQUIRE(same_bits(here.last().states, run.last().states));
    }
    const Run split = launched(run.at(folder / "split").with({{"train.reduction", "fast"}}), {2, 2, 2});
    REQUIRE(largest_difference(split.last().weights, run.last().weights) < 1e-5);
}
