// GPUs that are missing, shared, full or lost, and collectives that fail or never end: by the emulation.
#include "support/catch.hpp"
#include "support/runs.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

using Variables = std::map<std::string, std::string>;

const Keys stages = {{"parallel.pipeline", "2"}, {"train.lanes", "4"}, {"run.resume", "none"}};

Run small_run(const TempDir& folder, const Keys& more = {}) {
    const std::string data = folder / "data.h5";
    if (!std::filesystem::exists(data)) write_samples(data, clusters(64, Shape{6}, 5));
    return Run(folder / "run", {{"data.train", data},
                                {"model.width", "16"},
                                {"train.batch", "16"},
                                {"train.epochs", "50"},
                                {"run.threads", "1"},
                                {"run.device", "cuda"}})
        .with(more);
}

Result train(const Run& run, int ranks, const Variables& variables, double timeout = 60) {
    Options options{.timeout = timeout};
    options.env = {{"TRIREME_EMU_DEVICES", "4"}};
    for (const auto& [name, value] : variables) options.env[name] = value;
    return trireme::testing::trireme(ranks, run.arguments(), options);
}

/// One message, this status, and no waiting for those that are gone.
void require_end(const Result& result, int status, const std::string& message) {
    INFO(result.err);
    REQUIRE_FALSE(result.timed_out);
    REQUIRE(result.status == status);
    REQUIRE_THAT(result.err, contains(message));
    REQUIRE(count_of(result.err, "trireme: error: ") == 1);
}

}  // namespace

TEST_CASE("without a driver or a GPU, auto is the CPU and cuda an error", "[cuda-faults]") {
    const TempDir folder;
    const Run any = small_run(folder, {{"run.device", "auto"}, {"train.epochs", "1"}});
    for (const char* devices : {"none", "0"}) {
        const Result result =
            train(any.with({{"run.resume", "none"}}), 2, {{"TRIREME_EMU_DEVICES", devices}});
        INFO(result.err);
        REQUIRE(result.status == 0);
        REQUIRE_THAT(result.err, contains(" on cpu"));
        REQUIRE_THAT(result.err, !contains("run.device=auto"));  // nobody has one: that is usual
    }
    require_end(train(small_run(folder), 2, {{"TRIREME_EMU_DEVICES", "none"}}), 2,
                "run.device=cuda: no NVIDIA driver");
    require_end(train(small_run(folder), 2, {{"TRIREME_EMU_DEVICES", "0"}}), 2, "run.device=cuda: no GPU");
}

TEST_CASE("ranks do not share a GPU unless they are told to", "[cuda-faults]") {
    const TempDir folder;
    const Run run = small_run(folder, {{"train.epochs", "1"}, {"run.device", "auto"}});
    const Result refused = train(run, 3, {{"TRIREME_EMU_DEVICES", "2"}});
    require_end(refused, 2, "local ranks 0 and 2 of ");
    REQUIRE_THAT(refused.err, contains("would both use GPU-") && contains("run.share_gpu=true"));
    REQUIRE_FALSE(std::filesystem::exists(run.dir() / "checkpoints"));
    const Result shared = train(run.with({{"run.share_gpu", "true"}}), 3, {{"TRIREME_EMU_DEVICES", "2"}});
    INFO(shared.err);
    REQUIRE(shared.status == 0);
    REQUIRE_THAT(shared.err, contains("3 ranks x 1 thread") && contains(" on cuda"));
}

TEST_CASE("masks of visible GPUs that differ from rank to rank are respected", "[cuda-faults]") {
    const TempDir folder;
    const Run run = small_run(folder, {{"train.epochs", "1"}});
    // As a launcher that gives each task a GPU: every rank sees one, and calls it number 0.
    const std::filesystem::path script = folder / "masked";
    write_file(script,
               "#!/bin/sh\nCUDA_VISIBLE_DEVICES=${OMPI_COMM_WORLD_LOCAL_RANK:-$MPI_LOCALRANKID} exec " +
                   trireme_exe().string() + " \"$@\"\n");
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    std::vector<std::string> command = trireme_command(2, run.arguments());
    *std::find(command.begin(), command.end(), trireme_exe().string()) = script.string();
    const Result result = trireme::testing::run(command, {.env = {{"TRIREME_EMU_DEVICES", "4"}}});
    INFO(result.err);
    REQUIRE(result.status == 0);
    // The same one for both.
    require_end(train(run, 2, {{"CUDA_VISIBLE_DEVICES", "1"}}), 2, "local ranks 0 and 1 of ");
}

TEST_CASE("memory of a GPU that is not there is one error, with its size", "[cuda-faults]") {
    const TempDir folder;
    const int ranks = GENERATE(0, 2);
    for (const char* n :
         {"1", "6", "12"}) {  // of the state, of workspaces and batches, of what verbs ask for later
        const Result result =
            train(small_run(folder, {{"run.resume", "none"}}), ranks, {{"TRIREME_EMU_FAIL_ALLOC", n}});
        INFO("allocation " << n);
        REQUIRE_FALSE(result.timed_out);
        REQUIRE(result.status == 1);
        REQUIRE_THAT(result.err,
                     contains("out of memory: ") && contains("could not be allocated on the GPU"));
    }
    const Result large = train(small_run(folder, {{"model.width", "4096"}, {"model.depth", "3"}}), ranks,
                               {{"TRIREME_EMU_MEMORY", "100000000"}});
    INFO(large.err);
    REQUIRE(large.status == 1);
    REQUIRE_THAT(large.err, contains("out of memory: ") && contains(" free"));
}

TEST_CASE("a kernel that loses its GPU ends the run with what CUDA says", "[cuda-faults]") {
    const TempDir folder;
    for (const char* variable : {"TRIREME_EMU_FAIL_KERNEL", "TRIREME_EMU_FAIL_LAUNCH"}) {
        const Result result = train(small_run(folder, {{"run.resume", "none"}, {"run.cuda_graph", "off"}}), 2,
                                    {{variable, "300"}});
        INFO(variable << ": " << result.err);
        REQUIRE_FALSE(result.timed_out);
        REQUIRE(result.status == 1);
        REQUIRE_THAT(result.err, contains("trireme: error: rank ") && contains("cuda: "));
    }
}

TEST_CASE("an asynchronous error of NCCL ends the run on all ranks", "[cuda-faults]") {
    const TempDir folder;
    const std::string graphs = GENERATE("off", "on");
    INFO("graphs " << graphs);
    const Run run = small_run(folder, {{"run.cuda_graph", graphs}});
    for (const bool staged : {false, true}) {  // in collectives, in messages
        const Result result = train(staged ? run.with(stages) : run.with({{"train.lanes", "3"}}),
                                    staged ? 2 : 3, {{"TRIREME_EMU_NCCL_ERROR", "1:20"}});
        require_end(result, 1, "trireme: error: rank 1");
        REQUIRE_THAT(result.err, contains("NCCL"));
    }
}

TEST_CASE("a collective of NCCL that never ends is noticed by the watchdog", "[cuda-faults]") {
    const TempDir folder;
    const Run run = small_run(folder, {{"run.stall_timeout", "2 seconds"}});
    for (const Keys& more : {Keys{}, stages}) {
        const Result result = train(run.with(more), 2, {{"TRIREME_EMU_NCCL_STALL", "1:20"}});
        INFO(result.err);
        REQUIRE_FALSE(result.timed_out);
        REQUIRE(result.status == 1);
        REQUIRE_THAT(result.err, contains("run.stall_timeout"));
    }
}

TEST_CASE("stages whose connection fails say which ranks it was to join", "[cuda-faults]") {
    const TempDir folder;
    const Run run = small_run(folder, stages);
    require_end(train(run, 2, {{"TRIREME_EMU_NCCL_ERROR", "1:0"}}), 1,
                "NCCL connection of 1 bytes from rank 0 to rank 1 of 2 failed: NCCL reports: ");
}

TEST_CASE("commands that compute nothing take no GPU, so ranks need not have one each", "[cuda-faults]") {
    const TempDir folder;
    write_file(folder / "text.txt", std::string(300, 'a'));
    const Options options{.timeout = 60, .env = {{"TRIREME_EMU_DEVICES", "1"}}};
    const Result result = trireme::testing::trireme(
        2, {"import", folder / "text.txt", "--output=" + (folder / "text").string()}, options);
    INFO(result.err);
    REQUIRE(result.status == 0);
    require_end(train(small_run(folder), 2, {{"TRIREME_EMU_DEVICES", "1"}}), 2, "would both use GPU-");
}
