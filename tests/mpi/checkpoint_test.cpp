// Checkpoints of several ranks: the same file however many write it and whatever part each holds, and errors
// that all ranks raise alike.
#include <mpi.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <optional>

#include "comm/mpi_communicator.hpp"
#include "support/catch.hpp"
#include "support/checkpoint_state.hpp"
#include "support/process.hpp"
#include "support/shared_dir.hpp"
#include "trireme/base/error.hpp"
#include "trireme/comm/agree.hpp"

using namespace trireme;
using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

std::map<std::string, std::string> content(const std::string& path) {
    return content_of(io::File(path, io::Access::read));
}

// From how many elements on a parameter is written by all ranks: everything, some, nothing.
constexpr std::int64_t thresholds[] = {0, 16, parallel_from_elements_default};

}  // namespace

TEST_CASE("any number of ranks writes the same checkpoint", "[mpi][checkpoint]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    const auto self = world.split(world.rank(), 0);
    const SharedDir dir(world);
    State state;
    state.fill(11);
    if (world.rank() == 0) save_checkpoint(*self, dir / "alone.h5", state.table, state.arena, some_meta());
    for (const std::int64_t threshold : thresholds) {
        const auto saved =
            save_checkpoint(world, dir / "together.h5", state.table, state.arena, some_meta(), threshold);
        CHECK(saved.bytes == static_cast<double>(fs::file_size(dir / "together.h5")));
        CHECK(content(dir / "together.h5") == content(dir / "alone.h5"));
        CHECK(same_meta(read_checkpoint_meta(world, dir / "together.h5"), some_meta()));
    }
}

TEST_CASE("any number of ranks loads what any number has saved", "[mpi][checkpoint]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    const SharedDir dir(world);
    for (int savers = 1; savers <= world.size(); ++savers) {
        const auto group = world.split(world.rank() < savers ? 0 : 1, world.rank());
        State state;
        state.fill(static_cast<std::uint64_t>(savers));
        if (world.rank() < savers)
            save_checkpoint(*group, dir / "c.h5", state.table, state.arena, some_meta(), 0);
        world.barrier();
        State loaded;
        load_checkpoint(world, dir / "c.h5", loaded.table, loaded.arena, Part::training);
        CHECK(loaded.holds(static_cast<std::uint64_t>(savers)));
    }
}

TEST_CASE("shards make up the whole, and any shard is loaded from it", "[mpi][checkpoint]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    const auto self = world.split(world.rank(), 0);
    const SharedDir dir(world);
    State whole;
    whole.fill(12);
    if (world.rank() == 0) save_checkpoint(*self, dir / "alone.h5", whole.table, whole.arena, some_meta());

    // One shard a rank, and two shards of which several ranks hold copies.
    for (const int shards : {world.size(), std::min(2, world.size())}) {
        const StateOptions options{.shards = shards, .shard = world.rank() % shards};
        State shard(options);
        shard.fill(12);
        save_checkpoint(world, dir / "shards.h5", shard.table, shard.arena, some_meta());
        CHECK(content(dir / "shards.h5") == content(dir / "alone.h5"));

        State loaded(options);
        load_checkpoint(world, dir / "alone.h5", loaded.table, loaded.arena, Part::training);
        CHECK(loaded.holds(12));
    }

    if (world.size() == 1) return;
    State half({.shards = 2, .shard = 0});  // nobody holds the other
    const Error error = agreed_error(
        world, [&] { save_checkpoint(world, dir / "half.h5", half.table, half.arena, some_meta()); });
    CHECK_THAT(error.what(), contains("0.linear.weight"));
    CHECK_FALSE(fs::exists(dir / "half.h5"));
}

TEST_CASE("all ranks refuse alike what does not fit", "[mpi][checkpoint]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    const SharedDir dir(world);
    State state;
    save_checkpoint(world, dir / "c.h5", state.table, state.arena, some_meta(), 0);

    State wide({.width = 16});
    const Error shapes = agreed_error(
        world, [&] { load_checkpoint(world, dir / "c.h5", wide.table, wide.arena, Part::training); });
    CHECK(shapes.status() == Status::bad_data);
    CHECK_THAT(shapes.what(), contains("parameter 0.linear.weight is 8x7 in the file, 16x7 in the model"));

    const Error missing = agreed_error(world, [&] { read_checkpoint_meta(world, dir / "missing.h5"); });
    CHECK(missing.status() == Status::bad_data);
    CHECK_THAT(missing.what(), contains(dir / "missing.h5"));
}

TEST_CASE("all ranks agree that a checkpoint cannot be written", "[mpi][checkpoint]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    const SharedDir dir(world);
    if (world.rank() == 0) write_file(dir / "file", "not a folder");
    State state;
    for (const std::string& place : {dir / "file/c.h5", std::string("/proc/trireme/c.h5")}) {
        const Error error = agreed_error(
            world, [&] { save_checkpoint(world, place, state.table, state.arena, some_meta(), 0); });
        CHECK(error.status() == Status::failed);
        CHECK_THAT(error.what(), contains(place));
    }
}

TEST_CASE("a full disk on one rank or all leaves the older checkpoint", "[mpi][checkpoint]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    const SharedDir dir(world);
    const StateOptions large{.width = 4096};
    State older(large), newer(large), loaded(large);
    older.fill(13);
    newer.fill(14);
    const auto save = [&](State& state) {
        save_checkpoint(world, dir / "c.h5", state.table, state.arena, some_meta(), 0);
    };
    for (const int full : {0, world.size() - 1, -1}) {  // the rank without space; -1: all
        save(older);
        rlimit usual{};
        getrlimit(RLIMIT_FSIZE, &usual);
        auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{16384, usual.rlim_max};
        if (full == -1 || full == world.rank()) setrlimit(RLIMIT_FSIZE, &limit);
        bool failed = false;
        try {
            save(newer);
        } catch (const Error& error) {
            failed = true;
            CHECK(error.scope() == Scope::all_ranks);
            CHECK_THAT(error.what(), contains(dir / "c.h5"));
        }
        setrlimit(RLIMIT_FSIZE, &usual);
        std::signal(SIGXFSZ, handler);

        // MPI-IO may let a rank with space write for one without: then nothing fails.
        const int failures = all_reduce_value(world, failed ? 1 : 0);
        CHECK((failures == world.size() || (failures == 0 && full > 0)));
        load_checkpoint(world, dir / "c.h5", loaded.table, loaded.arena, Part::training);
        CHECK(loaded.holds(failed ? 13 : 14));
        CHECK(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()) == 1);
        world.barrier();
    }
}

TEST_CASE("one rank finds the newest checkpoint for all", "[mpi][checkpoint]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    const SharedDir dir(world);
    std::vector<std::string> rejected;
    CHECK_FALSE(newest_checkpoint(world, dir.path(), rejected).has_value());

    State state;
    for (const int step : {9, 10, 100})
        save_checkpoint(world, step_checkpoint_path(dir.path(), step), state.table, state.arena, some_meta(),
                        0);
    CHECK(newest_checkpoint(world, dir.path(), rejected) == step_checkpoint_path(dir.path(), 100));
    CHECK(rejected.empty());

    world.barrier();
    if (world.rank() == 0) fs::resize_file(step_checkpoint_path(dir.path(), 100), 1000);
    CHECK(newest_checkpoint(world, dir.path(), rejected) == step_checkpoint_path(dir.path(), 10));
    REQUIRE(rejected.size() == 1);
    CHECK_THAT(rejected[0], contains(step_checkpoint_path(dir.path(), 100)));

    retain_checkpoints(world, dir.path(), 1);
    CHECK(step_checkpoints(dir.path()).size() == 2);  // the damaged newest one, and the one that is kept
}
