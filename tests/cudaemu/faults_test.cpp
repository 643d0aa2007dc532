// Injected faults, and what the emulation says when nothing moves: each in processes of its own.
#include "support/catch.hpp"
#include "support/process.hpp"

using trireme::testing::contains;
using trireme::testing::Result;

namespace {

// Children start from the environment as it was before MPI put its own into it.
const auto& before_mpi = trireme::testing::start_environment();

using Env = std::map<std::string, std::string>;

Result probe(const std::string& name, Env env = {}, int ranks = 0, const char* build = "") {
    std::vector<std::string> command;
    if (ranks != 0) {
        command = {(trireme::testing::source_dir() / "tools/mpirun").string(), "-n", std::to_string(ranks)};
        env.try_emplace("TRIREME_EMU_DEVICES", std::to_string(ranks));
    }
    env.try_emplace("TRIREME_EMU_DEVICES", "1");
    env.try_emplace("UCX_MEM_EVENTS",
                    "n");  // UCX's hooks, which MPICH loads, and the race detector's do not mix
    command.insert(command.end(), {std::string(CUDAEMU_PROBE) + build, name});
    return trireme::testing::run(command, {.timeout = 60, .env = env});
}

std::string devices(Env env) {
    return probe("count_devices", std::move(env)).out;
}

}  // namespace

TEST_CASE("devices are hidden by CUDA_VISIBLE_DEVICES", "[cudaemu-faults]") {
    const std::string three = "3";
    CHECK(devices({}) == "cudaSuccess 1 0000:01:00.0\n");
    CHECK(devices({{"TRIREME_EMU_DEVICES", "2"}}) == "cudaSuccess 2 0000:01:00.0 0000:02:00.0\n");
    CHECK(devices({{"TRIREME_EMU_DEVICES", three}, {"CUDA_VISIBLE_DEVICES", "2,0"}}) ==
          "cudaSuccess 2 0000:03:00.0 0000:01:00.0\n");
    CHECK(devices({{"TRIREME_EMU_DEVICES", three}, {"CUDA_VISIBLE_DEVICES", "1,7,0"}}) ==
          "cudaSuccess 1 0000:02:00.0\n");
    CHECK(devices({{"TRIREME_EMU_DEVICES", three}, {"CUDA_VISIBLE_DEVICES", "GPU-12"}}) ==
          "cudaSuccess 1 0000:03:00.0\n");
    CHECK(devices({{"CUDA_VISIBLE_DEVICES", ""}}) == "cudaErrorNoDevice 0\n");
    CHECK(devices({{"CUDA_VISIBLE_DEVICES", "-1"}}) == "cudaErrorNoDevice 0\n");
    CHECK(devices({{"TRIREME_EMU_DEVICES", "none"}}) == "cudaErrorInsufficientDriver -1\n");
    CHECK_THAT(probe("count_devices", {{"TRIREME_EMU_DEVICES", "many"}}).err,
               contains("TRIREME_EMU_DEVICES is \"many\"; expected 0 to 64, or none"));
}

TEST_CASE("allocations fail when told to, or when memory is used up", "[cudaemu-faults]") {
    const auto out_of_memory = contains("told: cudaErrorMemoryAllocation: out of memory");
    CHECK(probe("allocate").status == 0);
    CHECK_THAT(probe("allocate", {{"TRIREME_EMU_FAIL_ALLOC", "3"}}).err, out_of_memory);
    CHECK(probe("allocate", {{"TRIREME_EMU_FAIL_ALLOC", "5"}}).status == 0);
    CHECK_THAT(probe("allocate", {{"TRIREME_EMU_MEMORY", "3000000"}}).err, out_of_memory);
    CHECK(probe("allocate", {{"TRIREME_EMU_MEMORY", "4194304"}}).status == 0);
    CHECK(probe("allocate_host").status == 0);
    CHECK_THAT(probe("allocate_host", {{"TRIREME_EMU_FAIL_HOST_ALLOC", "2"}}).err, out_of_memory);
}

TEST_CASE("launches and kernels fail when told to", "[cudaemu-faults]") {
    CHECK(probe("launch_twice").status == 0);
    CHECK_THAT(probe("launch_twice", {{"TRIREME_EMU_FAIL_LAUNCH", "2"}}).err,
               contains("told: cudaErrorLaunchOutOfResources"));
    CHECK_THAT(probe("launch_twice", {{"TRIREME_EMU_FAIL_KERNEL", "2"}}).err,
               contains("told: cudaErrorLaunchFailure"));
}

TEST_CASE("ranks that disagree about a collective are told which", "[cudaemu-faults]") {
    const Result r = probe("ranks_disagree", {}, 2);
    CHECK(r.status != 0);
    CHECK_THAT(r.err, contains("ranks disagree about an operation"));
    CHECK_THAT(r.err, contains("NCCL all-reduce of 1000 float32 (sum)"));
    CHECK_THAT(r.err, contains("NCCL all-reduce of 999 float32 (sum)"));
}

TEST_CASE("a stalled rank stalls the others, until they abort", "[cudaemu-faults]") {
    const Result r =
        probe("watchdog", {{"TRIREME_EMU_NCCL_STALL", "1:1"}, {"TRIREME_EMU_HANG_SECONDS", "0.3"}}, 2);
    CHECK(r.status == 0);
    CHECK_THAT(r.err, contains("rank 0: aborted"));
    CHECK_THAT(r.err, contains("rank 1: aborted"));
    CHECK_THAT(r.err, contains("cudaemu: rank 0: nothing has moved for 0.3 s in the wait for a stream"));
    CHECK_THAT(r.err, contains("NCCL all-reduce of 1000 float32 (sum), which waits for rank 1; then 1 more"));
    CHECK_THAT(r.err, contains("which is made to stall"));
}

TEST_CASE("an asynchronous error reaches the rank that it is meant for", "[cudaemu-faults]") {
    const Result r = probe("watchdog", {{"TRIREME_EMU_NCCL_ERROR", "1:2"}}, 2);
    CHECK(r.status == 0);
    CHECK_THAT(r.err,
               contains("rank 1: asynchronous error: remote process exited or there was a network error"));
    CHECK_THAT(r.err, !contains("rank 0: asynchronous error"));
    CHECK_THAT(r.err, contains("rank 0: aborted"));
}

TEST_CASE("a device works on while its host waits in MPI", "[cudaemu-faults]") {
    for (const char* streams : {"lazy", "others_first", "eager"}) {
        for (const char* build : {"", "_asan", "_tsan"}) {
            const Result r = probe("wait_in_mpi", {{"TRIREME_EMU_STREAMS", streams}}, 2, build);
            INFO(streams << build << ": " << r.err);
            CHECK(r.status == 0);
        }
    }
}

TEST_CASE("a standstill is reported with what each stream waits for", "[cudaemu-faults]") {
    const Result r = probe("wait_for_nothing_to_move",
                           {{"TRIREME_EMU_NCCL_STALL", "0:0"}, {"TRIREME_EMU_HANG_SECONDS", "0.2"}});
    CHECK(r.status == 0);
    CHECK_THAT(
        r.err,
        contains("stream 1: NCCL all-reduce of 1000 float32 (sum), which is made to stall; then 1 more"));
    CHECK_THAT(r.err, contains("stream 2: an event, which waits for an event on stream 1"));
}
