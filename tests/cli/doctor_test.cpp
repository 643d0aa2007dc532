// The check of the launch itself: identity comes from MPI, and a launch that is none fails loudly.
#include "support/catch.hpp"

#include <sched.h>

#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

#include "support/process.hpp"

using namespace trireme::testing;
using Json = nlohmann::json;

namespace {

Result doctor(int ranks, const TempDir& dir, const std::map<std::string, std::string>& env = {},
              const std::vector<std::string>& more = {}) {
    std::vector<std::string> args = {"doctor"};
    args.insert(args.end(), more.begin(), more.end());
    return trireme::testing::trireme(ranks, args, {.timeout = 60, .env = env, .cwd = dir.path()});
}

/// What it says as JSON, with nothing else on stdout.
Json said(const Result& result) {
    INFO(result.out << result.err);
    REQUIRE(result.out.ends_with("}\n"));
    REQUIRE(result.out.find('\n') + 1 == result.out.size());
    return Json::parse(result.out);
}

std::string last_line(const std::string& text) {
    const std::size_t end = text.find_last_not_of('\n') + 1, begin = text.rfind('\n', end - 1) + 1;
    return text.substr(begin, end - begin);
}

/// Two programs, or two working directories, under one launcher.
Result doctor_of_two(const std::vector<std::string>& first, const std::vector<std::string>& second,
                     const TempDir& dir) {
    return run(ranks_unlike({first, second}), {.timeout = 60, .env = {}, .cwd = dir.path()});
}

}  // namespace

TEST_CASE("doctor finds a good launch good", "[cli-doctor]") {
    const TempDir dir;
    for (const int ranks : {0, 1, 2, 4}) {
        const Result result = doctor(ranks, dir);
        INFO(result.out << result.err);
        CHECK(result.status == 0);
        CHECK(last_line(result.out) == "verdict: this launch works");
        for (const char* part : {"thread level  multiple", "none, not used: ", "the same program",
                                 "bound to cores", "clocks", "all-reduce of float32", "all-reduce of int64",
                                 "broadcast", "all-gather", "uneven parts", "all-to-all", "reduce-scatter",
                                 "barrier", "messages posted", "split", "GFLOP/s", "parallel HDF5"})
            CHECK_THAT(result.out, contains(std::string(part)));
        CHECK(result.out.find("PROBLEM") == std::string::npos);
        for (const char* part : {"bus bandwidth", "within a host"})
            CHECK((result.out.find(part) != std::string::npos) == (ranks > 1));
        CHECK(std::filesystem::is_empty(dir.path()));  // nothing is left behind
    }
}

TEST_CASE("local ranks come from MPI, not from the environment", "[cli-doctor]") {
    const TempDir dir;
    const Result result = doctor(2, dir, {{"SLURM_LOCALID", "0"}, {"SLURM_PROCID", "0"}});
    INFO(result.out << result.err);
    CHECK(result.status == 0);
    CHECK_THAT(result.out, contains("launch: 2 ranks"));
    CHECK(std::regex_search(result.out, std::regex("\n +0  \\S+ +0 of 2 ")));
    CHECK(std::regex_search(result.out, std::regex("\n +1  \\S+ +1 of 2 ")));
}

TEST_CASE("a launch that left every rank alone fails and names the fix", "[cli-doctor]") {
    const TempDir dir;
    for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"}) {
        const Result result = doctor(0, dir, {{variable, "4"}});
        INFO(result.out << result.err);
        CHECK(result.status == 2);
        CHECK_THAT(result.err, contains(std::string(variable) + "=4"));
        CHECK_THAT(result.err, contains("start it with"));
        CHECK(result.out.empty());
    }
    const Result one = doctor(1, dir, {{"SLURM_NTASKS", "4"}});
    INFO(one.err);
    CHECK(one.status == 2);
    CHECK_THAT(one.err, contains("SLURM_NTASKS=4"));
}

TEST_CASE("doctor's JSON holds all that the text says", "[cli-doctor]") {
    const TempDir dir;
    struct Launch {
        int processes, devices;
    };
    for (const Launch& launch : std::vector<Launch>{{0, 1}, {3, 1}, {2, 2}}) {
        const Result result =
            doctor(launch.processes, dir, {},
                   {"--json", "--run.devices=" + std::to_string(launch.devices), "--run.threads=1"});
        CHECK(result.status == 0);
        const Json json = said(result);
        const int ranks = std::max(1, launch.processes) * launch.devices;
        INFO(json.dump(2));
        CHECK(json["verdict"] == "ok");
        CHECK(json["problems"].empty());
        CHECK(json["ranks"] == ranks);
        REQUIRE(json["hosts"].size() == 1);
        const Json& host = json["hosts"][0];
        CHECK(host["ranks"] == ranks);
        CHECK(host["cores"] >= 1);
        CHECK(host["memory_bytes"] > std::int64_t{1} << 20);
        REQUIRE(json["places"].size() == static_cast<std::size_t>(ranks));
        for (int rank = 0; rank < ranks; ++rank) {
            const Json& place = json["places"][static_cast<std::size_t>(rank)];
            CHECK(place["rank"] == rank);
            CHECK(place["host"] == host["name"]);
            CHECK(place["local_rank"] == rank);
            CHECK(place["local_size"] == ranks);
            CHECK(place["process"] == rank / launch.devices);
            CHECK(place["pid"] > 0);
            CHECK(place["cores"] >= 1);
            CHECK(!place["core_list"].get<std::string>().empty());
            CHECK(!place["numa"].get<std::string>().empty());
            CHECK(place["threads"] == 1);
            CHECK(place["device"].get<std::string>().starts_with("cpu"));
        }
        for (const char* what : {"trireme", "mpi", "hdf5", "maths", "cuda", "mpi_thread_level"})
            CHECK(!json["versions"][what].get<std::string>().empty());
        CHECK(!json["why_no_gpu"].get<std::string>().empty());
        CHECK(json["checks"].size() == 17);
        for (const Json& check : json["checks"]) CHECK(check["ok"] == true);
        CHECK(json["gflops"] > 0);
        CHECK(json["copy_bytes_per_s"] > 0);
        CHECK(json["files"]["path"] == std::filesystem::canonical(dir.path()).string());
        for (const char* what : {"write_bytes_per_s", "read_bytes_per_s", "free_bytes"})
            CHECK(json["files"][what] > 0);
        CHECK(json["clock_skew_seconds"] >= 0);
        CHECK(json["clock_skew_seconds"] < 1);

        const Json &reductions = json["all_reduce"], &pairs = json["pairs"];
        if (ranks == 1) {
            CHECK(reductions.empty());
            CHECK(pairs["slowest"].is_null());
            CHECK(pairs["median_bytes_per_s"].is_null());
            continue;
        }
        REQUIRE(reductions.size() == 9);
        CHECK(reductions.front()["bytes"] == 4);
        CHECK(reductions.back()["bytes"] == 64 << 20);
        for (const Json& each : reductions) {
            const double rate = each["bytes"].get<double>() / each["seconds"].get<double>();
            CHECK(each["bus_bytes_per_s"].get<double>() == Approx(rate * 2 * (ranks - 1) / ranks));
        }
        CHECK(pairs["slowest"]["a"] < pairs["slowest"]["b"]);
        CHECK(pairs["slowest"]["latency_seconds"] > 0);
        CHECK(pairs["slowest"]["bytes_per_s"] <= pairs["median_bytes_per_s"]);
        CHECK(std::filesystem::is_empty(dir.path()));
    }
}

TEST_CASE("a run directory that cannot be written is a problem with a name", "[cli-doctor]") {
    const TempDir dir;
    write_file(dir / "file", "no directory");
    struct Fault {
        std::vector<std::string> arguments;
        std::string where, why;
    };
    const std::vector<Fault> faults = {
        {{"--dir=missing"}, "missing", "there is no such directory"},
        {{"--run.dir=file"}, "file", "this is no directory"},
        {{"--run.dir=file/runs/a"}, "file", "this is no directory"},
        {{"--run.dir=/proc"}, "/proc", "no file can be written here: "},  // not even by root
    };
    for (const Fault& fault : faults) {
        const int ranks = &fault == &faults.front() ? 2 : 0;
        const std::string problem =
            "parallel HDF5, one file of all ranks in " + fault.where + ": " + fault.why;
        std::vector<std::string> arguments = fault.arguments;
        arguments.emplace_back("--json");
        const Result result = doctor(ranks, dir, {}, arguments);
        CHECK(result.status == 1);
        const Json json = said(result);
        INFO(json.dump(2));
        CHECK(json["verdict"] == "problems");
        REQUIRE(json["problems"].size() == 1);
        CHECK(json["problems"][0].get<std::string>().starts_with(problem));
        CHECK(json["checks"].back()["ok"] == false);
        CHECK(json["files"]["write_bytes_per_s"].is_null());

        if (&fault != &faults.front() && &fault != &faults.back()) continue;
        const Result text = doctor(2 - ranks, dir, {}, fault.arguments);
        INFO(text.out << text.err);
        CHECK(text.status == 1);
        CHECK_THAT(text.out, contains("PROBLEM  " + problem));
        CHECK(last_line(text.out).starts_with("verdict: 1 problem: " + problem));
    }
}

TEST_CASE("a limit on the size of files is a problem", "[cli-doctor]") {
    const TempDir dir;
    const Result result = run({"sh", "-c", "ulimit -f 30000; exec \"$0\" doctor", trireme_exe().string()},
                              {.timeout = 60, .env = {}, .cwd = dir.path()});
    INFO(result.out << result.err);
    CHECK(result.status == 1);
    CHECK_THAT(last_line(result.out), contains("files are limited to "));
    CHECK(std::filesystem::is_empty(dir.path()));
}

TEST_CASE("ranks in directories of their own are told apart from a shared one", "[cli-doctor]") {
    const TempDir dir;
    const std::string a = (dir / "a").string(), b = (dir / "b").string(), exe = trireme_exe().string();
    std::filesystem::create_directories(a);
    std::filesystem::create_directories(b);
    const Result result = doctor_of_two({"-wdir", a, exe, "doctor"}, {"-wdir", b, exe, "doctor"}, dir);
    INFO(result.out << result.err);
    CHECK(result.status == 1);
    CHECK_THAT(last_line(result.out), contains("rank 1: does not see the file that rank 0 has just written"));
    CHECK(std::filesystem::is_empty(a));
    CHECK(std::filesystem::is_empty(b));
}

TEST_CASE("ranks of two builds of one version are told apart", "[cli-doctor]") {
    const TempDir dir;
    const std::string exe = trireme_exe().string(), other = (dir / "other").string();
    std::filesystem::copy_file(exe, other);
    write_file(other, read_file(other) + "x");
    std::filesystem::create_directories(dir / "here");
    const Result result = doctor_of_two({exe, "doctor", "--dir=here"}, {other, "doctor", "--dir=here"}, dir);
    INFO(result.out << result.err);
    CHECK(result.status == 1);
    CHECK_THAT(last_line(result.out), contains("the same program and libraries on all ranks: rank 1 on "));
    CHECK_THAT(last_line(result.out), contains("checksum of the program "));
}

TEST_CASE("ranks bound to one core while another is free are a problem", "[cli-doctor]") {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    REQUIRE(sched_getaffinity(0, sizeof cores, &cores) == 0);
    if (CPU_COUNT(&cores) < 2) {
        WARN("skipped: this machine has one core");
        return;
    }
    int core = 0;
    while (!CPU_ISSET(core, &cores)) ++core;
    const TempDir dir;
    const auto bound = [&](int ranks) {
        std::vector<std::string> argv = {"taskset", "-c", std::to_string(core)};
        for (const std::string& word : trireme_command(ranks, {"doctor", "--json"})) argv.push_back(word);
        return run(argv, {.timeout = 60, .env = {}, .cwd = dir.path()});
    };
    const Result two = bound(2);
    CHECK(two.status == 1);
    const Json json = said(two);
    INFO(json.dump(2));
    REQUIRE(json["problems"].size() == 1);
    CHECK_THAT(json["problems"][0].get<std::string>(),
               contains("ranks 0-1 are bound to the same cores, 2 threads on core " + std::to_string(core)));
    CHECK(json["places"][1]["core_list"] == std::to_string(core));

    const Result one = bound(0);
    CHECK(one.status == 0);
    const Json alone = said(one);
    INFO(alone.dump(2));
    REQUIRE(!alone["notes"].empty());
    CHECK_THAT(alone["notes"][0].get<std::string>(), contains("may use 1 of its "));
}
