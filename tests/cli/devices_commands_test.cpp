// The other commands on devices: evaluation, prediction, sweeps, the checks of the launch.
#include <sstream>

#include "support/catch.hpp"
#include "support/meshes.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

Run small(const TempDir& folder, const Keys& more = {}) {
    return tiny_images(folder, {{"model.width", "24, 17"}}).with(more);
}

/// Processes (0: one without a launcher) and devices of each.
struct Launch {
    int processes, devices;

    std::string name() const { return std::to_string(processes) + "x" + std::to_string(devices); }
    int ranks() const { return std::max(processes, 1) * devices; }
};

}  // namespace

TEST_CASE("devices evaluate, predict and generate as one rank does", "[cli-devices_commands]") {
    const TempDir folder;
    const Run run = small(folder);
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
        REQUIRE(result.out.find("30 rows") == 0);
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
        REQUIRE(found.size() == 30 * 5);
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

TEST_CASE("trials of a sweep run on devices side by side", "[cli-devices_commands]") {
    const TempDir folder;
    const Run run = small(folder, {{"train.epochs", "1"},
                                   {"train.max_steps", "0"},
                                   {"run.trace_samples", "false"},
                                   {"sweep.param", "optim.lr choice 0.001, 0.01, 0.02, 0.05"}});
    const auto sweep = [&](int processes, int devices, const char* each) {
        const Run here =
            run.at(folder / ("sweep" + std::to_string(processes) + each))
                .with({{"run.devices", std::to_string(devices)}, {"sweep.ranks_per_trial", each}});
        std::vector<std::string> arguments = here.arguments();
        arguments.front() = "sweep";
        const Result result = trireme::testing::trireme(processes, arguments);
        INFO(processes << " x " << devices << "\n" << result.out << result.err);
        REQUIRE(result.status == 0);
        std::istringstream results(read_file(here.dir() / "results.csv"));
        int done = 0;
        for (std::string line; std::getline(results, line);) done += line.ends_with(",done") ? 1 : 0;
        REQUIRE(done == 4);
    };
    sweep(0, 3, "1");
    sweep(0, 4, "2");
    sweep(3, 2, "3");  // groups that share a process
}

TEST_CASE("doctor and bench see devices as ranks", "[cli-devices_commands]") {
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
        CHECK_THAT(result.out, contains("verdict: this launch works\n"));
        CHECK(std::filesystem::is_empty(folder.path()));
    }
    const Result bench = trireme::testing::trireme(
        0, {"bench", "step", "--model=mlp:8-8-4", "--samples=2", "--run.devices=2", "--run.threads=1"});
    INFO(bench.out << bench.err);
    CHECK(bench.status == 0);
    CHECK_THAT(bench.out, contains("2 ranks x 1 thread"));
}

TEST_CASE("a GPU that was to be expected and is not used is warned of", "[cli-devices_commands]") {
    const TempDir folder;
    const Run run = small(folder, {{"train.max_steps", "1"}, {"run.device", "auto"}});
    const auto said = [&](const std::map<std::string, std::string>& variables, const Keys& more = {}) {
        const Result result = trireme::testing::trireme(
            2, run.with({{"run.resume", "none"}}).with(more).arguments(), {.timeout = 60, .env = variables});
        INFO(result.err);
        REQUIRE(result.status == 0);
        return result.err;
    };
    const std::map<std::string, std::string> wrong = {{"TRIREME_CUDA_PLUGIN", "/nowhere/plugin.so"}};
    CHECK_THAT(said(wrong), contains("warning: run.device=auto: all ranks compute on CPUs, since rank 0 has "
                                     "no GPU: this build has no CUDA backend") &&
                                contains("/nowhere/plugin.so"));
    CHECK_THAT(said(wrong, {{"run.device", "cpu"}}), !contains("warning: run.device"));
    CHECK_THAT(said({{"TRIREME_CUDA_PLUGIN", ""}}), !contains("warning: run.device"));
    // Commands that compute nothing look for none.
    const Result report =
        trireme::testing::trireme(0, {"report", run.dir().string()}, {.timeout = 60, .env = wrong});
    CHECK(report.status == 0);
    CHECK_THAT(report.err, !contains("run.device"));
}

TEST_CASE("more devices than cores, or very many, are warned of; too many are refused",
          "[cli-devices_commands]") {
    const TempDir folder;
    const Run run = small(folder, {{"train.lanes", "2"}, {"train.max_steps", "1"}, {"data.valid", ""}});
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
