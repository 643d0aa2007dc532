// The seeded bugs, each in the builds that must catch it, in every order of threads and streams: they are
// what makes the emulation's silence mean something.
#include <regex>
#include <set>
#include <sstream>

#include "support/catch.hpp"
#include "support/process.hpp"

using trireme::testing::Result;

namespace {

const char* const plain = "";
const char* const asan = "_asan";
const char* const tsan = "_tsan";

struct Orders {
    const char *threads, *streams;
};
constexpr Orders orders[] = {{"forward", "lazy"}, {"reverse", "others_first"}, {"shuffled", "shuffled"}};

Result probe(const std::string& name, const char* build, Orders order,
             std::map<std::string, std::string> env = {}) {
    env["TRIREME_EMU_DEVICES"] = "2";
    env["TRIREME_EMU_THREADS"] = order.threads;
    env["TRIREME_EMU_STREAMS"] = order.streams;
    env["TSAN_OPTIONS"] = "halt_on_error=1:symbolize=0";  // names take time
    return trireme::testing::run({std::string(CUDAEMU_PROBE) + build, name}, {.timeout = 60, .env = env});
}

struct Bug {
    const char *name, *build, *sign;
    bool every_order = true;
};

// Without a race detector the order decides whether anything is seen, so that only some of them do.
constexpr Bug bugs[] = {
    {"past_the_end", asan, "AddressSanitizer: use-after-poison"},
    {"past_shared", asan, "runtime error: store to address"},
    {"past_dynamic", asan, "AddressSanitizer: heap-buffer-overflow"},
    {"overflow_int", asan, "runtime error: signed integer overflow"},
    {"misaligned", asan, "runtime error: store to misaligned address"},
    {"missing_barrier", tsan, "ThreadSanitizer: data race"},
    {"missing_barrier", plain, "wrong: the sum", false},
    {"missing_barrier_reuse", tsan, "ThreadSanitizer: data race"},
    {"racing_blocks", tsan, "ThreadSanitizer: data race"},
    {"missing_event", tsan, "ThreadSanitizer: data race|wrong: what was produced"},
    {"missing_event", plain, "wrong: what was produced", false},
    {"missing_event_between_kernels", tsan, "ThreadSanitizer: data race"},
    {"overwritten_in_flight", tsan, "ThreadSanitizer: data race"},
    {"overwritten_in_flight", plain, "wrong: what was copied", false},
    {"pinned_too_early", tsan, "ThreadSanitizer: data race"},
    {"pinned_too_early", plain, "wrong: what was copied"},
    {"missing_edge_in_graph", tsan, "ThreadSanitizer: data race"},
    {"shared_workspace", tsan, "ThreadSanitizer: data race"},
    {"nccl_without_event_before", tsan, "ThreadSanitizer: data race"},
    {"nccl_without_event_after", tsan, "ThreadSanitizer: data race"},
    {"not_waited", plain, "wrong: what was copied"},
    {"divergent_barrier", plain, "is stuck: of 64 threads 47 ended"},
    {"lost_lane", plain, "a shuffle reads from a lane that is not in its mask"},
    {"host_reads_device", asan, "AddressSanitizer: SEGV"},
    {"kernel_gets_host", plain, "argument 0 of kernel .* points to memory that the device cannot reach"},
    {"use_after_free", plain, "argument 0 of kernel .* points to memory that the device cannot reach"},
    {"freed_under_way", plain, "told: cudaErrorInvalidValue"},
    {"uninitialised", plain, "wrong: the sum is -?nan"},
    {"default_stream", plain, "the default stream is not emulated"},
};

constexpr const char* twins[] = {
    "with_event",    "with_event_between_kernels", "with_wait", "pinned_in_time", "with_edge_in_graph",
    "own_workspace", "nccl_with_events",           "samples"};

}  // namespace

TEST_CASE("every seeded bug is caught", "[cudaemu-bugs]") {
    for (const Bug& bug : bugs) {
        int seen = 0;
        std::string said;
        for (const Orders order : orders) {
            const Result r = probe(bug.name, bug.build, order);
            const bool caught = r.status != 0 && std::regex_search(r.err, std::regex(bug.sign));
            seen += caught ? 1 : 0;
            if (!caught) said += std::string(order.threads) + ": " + r.err.substr(0, 500) + "\n";
        }
        INFO(bug.name << bug.build << " was caught in " << seen << " orders; else it said\n" << said);
        CHECK(seen >= (bug.every_order ? 3 : 1));
    }
}

TEST_CASE("nothing is said about their twins without the bug", "[cudaemu-twins]") {
    for (const char* twin : twins) {
        for (const char* build : {plain, asan, tsan}) {
            for (const Orders order : orders) {
                const Result r = probe(twin, build, order);
                INFO(twin << build << ", " << order.threads << ": " << r.err);
                CHECK(r.status == 0);
                CHECK(r.err.empty());
            }
        }
    }
}

// Each barrier of the sample kernels is left out in turn.
TEST_CASE("no barrier of the sample kernels can be left out unseen", "[cudaemu-mutants]") {
    const Result all = probe("samples", plain, orders[0], {{"TRIREME_EMU_LIST_BARRIERS", "1"}});
    REQUIRE(all.status == 0);
    std::set<std::string> sites;
    std::istringstream lines(all.err);
    for (std::string line; std::getline(lines, line);) {
        const std::string prefix = "cudaemu: barrier ";
        if (line.starts_with(prefix)) sites.insert(line.substr(prefix.size()));
    }
    CHECK(sites.size() == 5);
    for (const auto& site : sites) {
        for (const Orders order : orders) {
            const Result r = probe("samples", tsan, order, {{"TRIREME_EMU_DROP_BARRIER", site}});
            INFO("without " << site << ", " << order.threads << ": " << r.err.substr(0, 500));
            CHECK(r.status != 0);
            CHECK_THAT(r.err, trireme::testing::contains("ThreadSanitizer: data race"));
        }
    }
}
