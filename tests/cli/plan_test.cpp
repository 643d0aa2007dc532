// plan and info --memory: ranks that are not there.
#include <nlohmann/json.hpp>

#include "support/catch.hpp"
#include "support/data_files.hpp"
#include "support/process.hpp"
#include "support/runs.hpp"

using namespace trireme::testing;
using Json = nlohmann::json;

namespace {

/// An MLP on clusters; its configuration, and the options that keep a plan from measuring.
struct Place {
    TempDir folder;
    std::string ini;
    std::vector<std::string> rates = {"--gflops=10", "--copy-rate=5", "--run.threads=1"};

    Place() {
        write_samples(folder / "train.h5", clusters(96, {20}, 4));
        const Run run(folder / "run", {{"data.train", (folder / "train.h5").string()},
                                       {"model.arch", "mlp"},
                                       {"model.width", "32,24"},
                                       {"train.batch", "32"},
                                       {"train.epochs", "1"},
                                       {"optim.name", "adam"}});
        ini = run.arguments().at(1);
    }
    Result plan(int ranks, std::vector<std::string> more) const {
        std::vector<std::string> words = {"plan", ini};
        words.insert(words.end(), rates.begin(), rates.end());
        words.insert(words.end(), more.begin(), more.end());
        return trireme::testing::trireme(ranks, words);
    }
    Json json(std::vector<std::string> more) const {
        more.push_back("--json");
        const Result result = plan(0, more);
        INFO(result.err);
        REQUIRE(result.status == 0);
        return Json::parse(result.out);
    }
};

void require_refused(const Result& result, int status, const std::string& named) {
    INFO(result.out << result.err);
    REQUIRE(result.status == status);
    REQUIRE_THAT(result.err, contains(named));
}

}  // namespace

TEST_CASE("plan speaks of ranks that are not there", "[cli-plan]") {
    const Place place;
    const Result result =
        place.plan(0, {"--ranks=12", "--network=1", "--parallel.tensor=2", "--parallel.pipeline=3"});
    INFO(result.out << result.err);
    REQUIRE(result.status == 0);
    for (const char* part :
         {"12 ranks: data 2 x pipeline 3 x tensor 2", "optimizer state", "activations", "input buffers",
          "stage 2", "pipeline", "all_reduce", "strong scaling: the batch as configured",
          "weak scaling: samples of each data-parallel rank as here", "waiting for other stages", "step"})
        REQUIRE_THAT(result.out, contains(part));
}

TEST_CASE("info --memory: a sharded optimizer state is one part of the ranks' number", "[cli-plan]") {
    const Place place;
    const auto states = [&](const std::string& ranks, const std::string& zero) {
        const Result result = trireme::testing::trireme(
            0, {"info", "--memory", place.ini, "--ranks=" + ranks, "--parallel.zero=" + zero, "--json"});
        INFO(result.err);
        REQUIRE(result.status == 0);
        const Json memory = Json::parse(result.out)["places"][0]["memory"];
        std::int64_t sum = 0;
        for (const auto& [name, bytes] : memory.items()) sum += name == "sum" ? 0 : bytes.get<std::int64_t>();
        REQUIRE(sum == memory["sum"].get<std::int64_t>());
        return memory["optimizer_state"].get<std::int64_t>();
    };
    const std::int64_t all = states("1", "0");
    REQUIRE(all >= 2 * 4 * (20 * 32 + 32 + 32 * 24 + 24 + 24 * 4 + 4));
    REQUIRE(states("8", "0") == all);
    REQUIRE(states("8", "1") >= all / 8);
    REQUIRE(states("8", "1") <= all / 8 + 2 * 64);
}

TEST_CASE("the forecast follows its rates", "[cli-plan]") {
    const Place place;
    const Json slow = place.json({"--ranks=4", "--network=1"}),
               fast = place.json({"--ranks=4", "--network=2"});
    REQUIRE(slow["forecast"]["step"]["network_s"].get<double>() ==
            Approx(2 * fast["forecast"]["step"]["network_s"].get<double>()));
    REQUIRE(slow["forecast"]["strong"].size() == 3);
    REQUIRE(slow["forecast"]["weak"][2]["ranks"] == 4);
    REQUIRE(place.json({"--ranks=4"})["forecast"]["step"]["step_s"].is_null());
    REQUIRE(place.json({"--ranks=1"})["forecast"]["step"]["step_s"].is_number());
}

TEST_CASE("rates come from what doctor has written", "[cli-plan]") {
    const Place place;
    const auto file = place.folder / "rates.json";
    write_file(file, R"({"ranks": 2, "gflops": 50, "copy_bytes_per_s": 4e9,
        "all_reduce": [{"bytes": 8, "seconds": 1e-5, "bus_bytes_per_s": 1e6},
                       {"bytes": 4194304, "seconds": 1e-2, "bus_bytes_per_s": 3e9}],
        "pairs": {"median_bytes_per_s": 2e9, "slowest": {"latency_seconds": 2e-6}}})");
    const Result result =
        trireme::testing::trireme(0, {"plan", place.ini, "--ranks=4", "--rates=" + file.string(), "--json"});
    INFO(result.err);
    REQUIRE(result.status == 0);
    const Json forecast = Json::parse(result.out)["forecast"];
    REQUIRE(forecast["gflops"] == 50);
    REQUIRE(forecast["copy_bytes_per_s"] == 4e9);
    REQUIRE(forecast["network_bytes_per_s"] == 3e9);
    REQUIRE(forecast["latency_seconds"] == 2e-6);
    write_file(file, "not json");
    require_refused(trireme::testing::trireme(0, {"plan", place.ini, "--rates=" + file.string()}), 2,
                    "--rates=" + file.string());
}

TEST_CASE("plan refuses what cannot be", "[cli-plan]") {
    const Place place;
    require_refused(place.plan(0, {"--ranks=10", "--parallel.tensor=4"}), 2,
                    "parallel.tensor=4 times parallel.pipeline=1 must divide the number of ranks, 10");
    require_refused(place.plan(0, {"--ranks=no"}), 2, "--ranks=no: expected an integer");
    require_refused(place.plan(0, {"--network=-1"}), 2, "--network=-1: expected a positive number");
    require_refused(place.plan(0, {"--data.train=nowhere.h5"}), 3, "nowhere.h5");
    require_refused(trireme::testing::trireme(0, {"info", "--train.batch=8"}), 2, "--train.batch");
    require_refused(trireme::testing::trireme(0, {"info", "--memory"}), 2, "--memory: expected one");
    const Result idle = place.plan(0, {"--ranks=64", "--network=1"});
    INFO(idle.err);
    REQUIRE(idle.status == 0);
    REQUIRE_THAT(idle.err, contains("32 of 64 data-parallel ranks would be idle"));
}
