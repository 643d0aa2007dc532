// The check of the launch itself: identity comes from MPI, and a launch that is none fails loudly.
#include "support/catch.hpp"

#include <map>
#include <regex>
#include <string>

#include "support/process.hpp"

using namespace trireme::testing;

namespace {

Result doctor(int ranks, const TempDir& dir, const std::map<std::string, std::string>& env = {},
              const std::vector<std::string>& more = {}) {
    std::vector<std::string> args = {"doctor"};
    args.insert(args.end(), more.begin(), more.end());
    return trireme::testing::trireme(ranks, args, {.timeout = 60, .env = env, .cwd = dir.path()});
}

}  // namespace

TEST_CASE("doctor finds a good launch good", "[cli-doctor]") {
    const TempDir dir;
    for (const int ranks : {0, 1, 2, 3}) {
        const Result result = doctor(ranks, dir);
        INFO(result.out << result.err);
        CHECK(result.status == 0);
        CHECK_THAT(result.out, contains("verdict: this launch works\n"));
        for (const char* part :
             {"all-reduce of float32", "broadcast", "all-gather", "all-to-all", "parallel HDF5"})
            CHECK_THAT(result.out, contains(part));
        CHECK(result.out.find("PROBLEM") == std::string::npos);
        if (ranks > 1) CHECK_THAT(result.out, contains("bus bandwidth"));
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

TEST_CASE("doctor counts what is wrong", "[cli-doctor]") {
    const TempDir dir;
    for (const int ranks : {0, 2}) {
        const Result result = doctor(ranks, dir, {}, {"--dir=missing"});
        INFO(result.out << result.err);
        CHECK(result.status == 1);
        CHECK_THAT(result.out, contains("PROBLEM  write and read by all ranks in missing"));
        CHECK_THAT(result.out, contains("verdict: 1 problem\n"));
    }
}
