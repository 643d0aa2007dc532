// One process that drives several devices, each a thread and a rank: the same training as with as many
// processes, alone and together with them.
#include "support/catch.hpp"
#include "support/runs.hpp"

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

void require_like_one_rank(const Run& run, const std::vector<Launch>& launches, double tolerance = 1e-5) {
    run.expect(0, 0);
    const Checkpoint one = run.last();
    for (const Launch& launch : launches) {
        const Run here = launched(run, launch);
        INFO(launch.name());
        REQUIRE(here.column("step", "loss")[0] == Approx(run.column("step", "loss")[0]).epsilon(1e-6));
        REQUIRE(largest_difference(here.last().weights, one.weights) < tolerance);
        REQUIRE(largest_difference(here.last().states, one.states) < tolerance);
        REQUIRE(here.last().position.at("updates") == 10);
        REQUIRE(here.trace() == run.trace());  // every sample once
        REQUIRE(here.column("valid", "count") == run.column("valid", "count"));
        REQUIRE(here.column("valid", "loss").back() ==
                Approx(run.column("valid", "loss").back()).epsilon(10 * tolerance));
    }
}

}  // namespace

TEST_CASE("devices of one process train as one rank does", "[cli-devices]") {
    const TempDir folder;
    SECTION("fully connected layers") {
        require_like_one_rank(mlp(folder), {{0, 2}, {0, 3}, {1, 2}, {2, 2}, {2, 3}});
    }
    SECTION("convolutions, with the threads of a device side by side with those of others") {
        require_like_one_rank(mlp(folder, {{"model.arch", "cnn"},
                                           {"model.channels", "3"},
                                           {"model.batchnorm", "true"},
                                           {"run.threads", "2"}}),
                              {{0, 2}, {2, 2}});
    }
    SECTION("layers split over the devices of a process, data parallelism over processes") {
        require_like_one_rank(mlp(folder), {{0, 2, 2}, {0, 4, 2}, {2, 2, 2}, {0, 3, 3}});
    }
    SECTION("tiny buckets that are reduced beside the backward pass") {
        const Keys overlapped = {{"parallel.overlap", "on"}, {"parallel.bucket_mb", "0.0005"}};
        require_like_one_rank(mlp(folder, overlapped), {{0, 2}, {0, 3}, {2, 2}, {2, 2, 2}});
    }
    SECTION("the wire in bfloat16") {
        require_like_one_rank(mlp(folder, {{"parallel.reduce_dtype", "bf16"}}), {{0, 2}, {2, 2}}, 2e-2);
    }
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

TEST_CASE("devices evaluate, predict and generate as one rank does", "[cli-devices]") {
    const TempDir folder;
    const Run run = mlp(folder);
    run.expect(0, 0);
    const std::string checkpoint = run.checkpoint_path(10), data = folder / "valid.h5";
    const Event one = evaluate(0, checkpoint, data);
    const auto predict = [&](const Launch& launch) {
        const std::string output = folder / (launch.name() + ".h5");
        const Result result = trireme::testing::trireme(
            launch.processes, {"predict", checkpoint, "--data=" + data, "--output=" + output,
                               "--run.devices=" + std::to_string(launch.devices), "--train.batch=7"});
        INFO(launch.name() << "\n" << result.out << result.err);
        REQUIRE(result.status == 0);
        REQUIRE(result.out.find("31 rows") == 0);
        return output;
    };
    const std::string alone = predict({0, 1});
    for (const Launch& launch : std::vector<Launch>{{0, 2}, {0, 3}, {2, 2}}) {
        INFO(launch.name());
        const Event eval =
            evaluate(launch.processes, checkpoint, data, {"--run.devices=" + std::to_string(launch.devices)});
        REQUIRE(eval["count"] == one["count"]);
        REQUIRE(eval["accuracy"] == one["accuracy"]);
        REQUIRE(eval["loss"] == Approx(one["loss"]).epsilon(1e-6));
        const std::string output = predict(launch);
        REQUIRE(read_values(output, "/prediction") == read_values(alone, "/prediction"));
        const std::vector<double> found = read_values(output, "/output"),
                                  expected = read_values(alone, "/output");
        REQUIRE(found.size() == 31 * 5);
        for (std::size_t i = 0; i < found.size(); ++i) REQUIRE(found[i] == Approx(expected[i]).margin(1e-5));
    }

    write_file(folder / "text.txt", std::string(300, 'a') + std::string(300, 'b'));
    REQUIRE(trireme::testing::trireme(
                0, {"import", folder / "text.txt", "--output=" + (folder / "text").string()})
                .status == 0);
    const Run text(folder / "gpt", {{"data.train", folder / "text/train-*.h5"},
                                    {"model.arch", "gpt"},
                                    {"model.layers", "1"},
                                    {"model.d_model", "8"},
                                    {"model.heads", "2"},
                                    {"model.context", "8"},
                                    {"train.max_steps", "2"}});
    text.with({{"run.devices", "2"}}).expect(0, 0);
    std::vector<std::string> written;
    for (const char* devices : {"--run.devices=1", "--run.devices=3"}) {
        const Result result =
            trireme::testing::trireme(0, {"generate", text.dir(), "--prompt=a", "--tokens=9", devices});
        INFO(result.err);
        REQUIRE(result.status == 0);
        written.push_back(result.out);
    }
    REQUIRE(written[0].size() >= 10);
    REQUIRE(written[0] == written[1]);
}

TEST_CASE("doctor and bench see devices as ranks", "[cli-devices]") {
    const TempDir folder;
    for (const Launch& launch : std::vector<Launch>{{0, 2}, {2, 2}}) {
        const Result result = trireme::testing::trireme(launch.processes, {"doctor", "--run.devices=2"},
                                                        {.timeout = 60, .env = {}, .cwd = folder.path()});
        INFO(result.out << result.err);
        CHECK(result.status == 0);
        CHECK_THAT(result.out,
                   contains("launch: " + std::to_string(launch.ranks()) + " ranks, 2 devices in each"));
        CHECK_THAT(result.out, contains("cpu 0 of 2"));
        CHECK_THAT(result.out, contains("cpu 1 of 2"));
        CHECK_THAT(result.out, contains("reduce-scatter"));
        CHECK_THAT(result.out, contains("messages"));
        CHECK_THAT(result.out, contains("verdict: all is well\n"));
        CHECK(std::filesystem::is_empty(folder.path()));
    }
    const Result bench = trireme::testing::trireme(
        0, {"bench", "step", "--model=mlp:8-8-4", "--samples=2", "--run.devices=2", "--run.threads=1"});
    INFO(bench.out << bench.err);
    CHECK(bench.status == 0);
    CHECK_THAT(bench.out, contains("2 ranks x 1 thread"));
}

TEST_CASE("more devices than cores, or very many, are warned of; too many are refused", "[cli-devices]") {
    const TempDir folder;
    const Run run = mlp(folder, {{"train.lanes", "2"}, {"train.max_steps", "1"}, {"data.valid", ""}});
    const Result crowd = run.with({{"run.devices", "70"}}).expect(0, 0);
    CHECK_THAT(crowd.err, contains("warning: run.devices=70 "));
    REQUIRE(run.events("start")[0]["ranks"] == 70);
    const Result few = run.with({{"run.devices", "1"}, {"run.resume", "none"}}).expect(0, 0);
    CHECK(few.err.find("run.devices") == std::string::npos);
    const Result bound = trireme::testing::trireme(0, run.with({{"run.devices", "2"}}).arguments(),
                                                   {.timeout = 60, .env = {{"OMP_PROC_BIND", "true"}}});
    CHECK_THAT(bound.err, contains("warning: OMP_PROC_BIND=true binds"));
    CHECK_THAT(run.with({{"run.devices", "5000"}}).expect(2, 0).err, contains("run.devices=5000"));
    CHECK_THAT(run.with({{"run.devices", "0"}}).expect(2, 0).err, contains("run.devices=0"));
}
