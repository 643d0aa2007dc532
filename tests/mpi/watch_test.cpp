// Whether the ranks are together, and who waits for whom.
#include <array>
#include <chrono>
#include <thread>

#include "support/catch.hpp"
#include "support/data_files.hpp"
#include "support/process.hpp"
#include "support/runs.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/recorder.hpp"
#include "trireme/comm/agree.hpp"
#include "trireme/comm/lockstep.hpp"
#include "trireme/comm/session.hpp"
#include "trireme/train/profile.hpp"
#include "trireme/train/trainer.hpp"

using namespace trireme;
using namespace trireme::testing;
using Catch::Matchers::Contains;

namespace {

struct World {
    int argc = 0;
    char** argv = nullptr;
    Session session{argc, argv};
    Communicator& comm = session.world();
};

/// A run of all ranks in a folder of rank 0.
struct SmallRun {
    explicit SmallRun(Communicator& world) : comm(world) {
        std::string dir;
        if (comm.rank() == 0) {
            folder = std::make_unique<TempDir>();
            dir = folder->path().string();
            write_samples(*folder / "data.h5", clusters(64, Shape{6}, 4));
        }
        dir = broadcast_text(comm, dir);
        config.data.train = dir + "/data.h5";
        config.run.dir = dir + "/run";
        config.train.batch = 16;
        config.train.epochs = 0;
    }
    void train(Session& session, int threads, const std::function<bool()>& stop_requested) const {
        Recorder recorder;
        const Recorder::Member member(&recorder, Recorder::main);
        const auto device = make_device("cpu");
        Mesh mesh(comm, 1, 1);
        const Log log(comm.rank(), LogLevel::error);
        Runtime runtime{.session = session,
                        .mesh = mesh,
                        .device = *device,
                        .log = log,
                        .threads = threads,
                        .stop_requested = stop_requested};
        run_training(runtime, config);
        comm.barrier();
    }
    Communicator& comm;
    Config config;
    std::unique_ptr<TempDir> folder;
};

template <class Action>
std::string said_by(const Action& action) {
    try {
        action();
    } catch (const Error& error) {
        return (error.scope() == Scope::all_ranks ? "all: " : "one: ") + std::string(error.what());
    }
    return "";
}

}  // namespace

TEST_CASE("ranks that are not in lockstep are named on all ranks", "[mpi][watch]") {
    World world;
    Communicator& comm = world.comm;
    const auto check = [&](std::uint32_t fingerprint, const std::string& words) {
        const double sum = all_reduce_value(comm, static_cast<double>(fingerprint));
        return said_by([&] { require_lockstep(comm, fingerprint, sum, [&] { return words; }); });
    };
    CHECK(check(0xffffffff, "step 7").empty());
    if (comm.size() == 1) return;
    const bool odd = comm.rank() == 1;
    const std::string said = check(odd ? 5 : 4000000000, odd ? "step 8" : "step 7");
    CHECK_THAT(said, Catch::StartsWith("all: the ranks are not in lockstep: "));
    CHECK_THAT(said, Contains("rank 1: step 8"));
    CHECK_THAT(said, Contains(comm.size() == 2 ? "rank 0: step 7" : "step 7"));
    if (comm.size() > 2) CHECK(said.find("rank 1: step 8") < said.find("step 7"));
}

TEST_CASE("collectives of a group are counted alike on its ranks", "[mpi][watch]") {
    World world;
    const std::uint64_t before = world.comm.sequence();
    all_reduce_value(world.comm, 1.0);
    const std::uint64_t after = world.comm.sequence();
    CHECK(after != before);
    CHECK(broadcast_value(world.comm, after) == after);
}

TEST_CASE("replicas that differ are named, whichever group they are in", "[mpi][watch]") {
    World world;
    Communicator& comm = world.comm;
    const auto groups = comm.split(comm.rank() % 2, comm.rank());
    CHECK(said_by([&] { require_same(comm, *groups, 5, "the weights"); }).empty());
    if (comm.size() < 3) return;
    // Rank 2 differs from rank 0; ranks 1 and 3 are another group, and learn of it too.
    const std::string said =
        said_by([&] { require_same(comm, *groups, comm.rank() == 2 ? 6 : 5, "the weights"); });
    CHECK_THAT(said, Catch::StartsWith("all: the weights should be the same"));
    CHECK_THAT(said, Contains("rank 2 from rank 0"));
}

TEST_CASE("case 29: waiting for a slow rank is communication of the others", "[mpi][watch]") {
    World world;
    Communicator& comm = world.comm;
    constexpr int steps = 10;
    static constexpr double delay = 0.2;
    SmallRun small(comm);
    small.config.train.max_steps = steps;
    small.config.profile.enable = true;
    const bool slow = comm.rank() == comm.size() - 1 && comm.size() > 1;
    small.train(world.session, 1, [slow] {
        if (slow) std::this_thread::sleep_for(std::chrono::duration<double>(delay));
        return false;
    });
    if (comm.rank() != 0) return;

    const std::string metrics = read_file(small.config.run.dir + "/metrics.jsonl");
    const auto numbers = [&](const std::string& key) {
        std::vector<double> found;
        const std::string mark = "\"" + key + "\":";
        const std::size_t begin = metrics.find("{\"event\":\"profile\""), end = metrics.find('\n', begin);
        for (std::size_t at = metrics.find(mark, begin); at < end; at = metrics.find(mark, at + 1))
            found.push_back(std::stod(metrics.substr(at + mark.size())));
        return found;
    };
    const std::vector<double> communication = numbers("communication_s"), waiting = numbers("waiting_s"),
                              wall = numbers("wall_s");
    REQUIRE(wall.size() == static_cast<std::size_t>(comm.size()));
    std::vector<double> sums(wall.size());
    for (int activity = 0; activity < activities; ++activity) {
        const std::vector<double> part = numbers(name_of(static_cast<Activity>(activity)) + "_s");
        REQUIRE(part.size() >= wall.size());
        for (std::size_t r = 0; r < wall.size(); ++r) sums[r] += part[r];
    }
    for (std::size_t r = 0; r < wall.size(); ++r) {
        CHECK(sums[r] <= wall[r] * 1.001);
        CHECK(sums[r] >= wall[r] * 0.99);
    }
    if (comm.size() == 1) {
        CHECK(communication[0] + waiting[0] == 0);
        return;
    }
    const double waited = communication[0] + waiting[0];
    CHECK(waited >= 0.9 * steps * delay);
    CHECK(waited <= wall[0]);
    // The slow rank's own delay is its own, not communication.
    CHECK(communication.back() + waiting.back() < wall.back() - 0.9 * steps * delay);
}

TEST_CASE("ranks of nodes that differ in their cores train together", "[mpi][watch]") {
    World world;
    SmallRun small(world.comm);
    small.config.train.max_steps = 3;
    small.train(world.session, world.comm.rank() == 0 ? 2 : 1, [] { return false; });
    // Nobody has waited for a collective that others do not call.
    if (world.comm.rank() == 0)
        CHECK_THAT(read_file(small.config.run.dir + "/metrics.jsonl"), Contains("\"max_steps\""));
}
