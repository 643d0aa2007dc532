// Checkpoints that are written while the state goes on changing: what was ordered is what the file holds, and
// what fails is known to all.
#include <mpi.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <thread>

#include "comm/mpi_communicator.hpp"
#include "support/catch.hpp"
#include "support/checkpoint_state.hpp"
#include "support/process.hpp"
#include "support/shared_dir.hpp"
#include "trireme/base/error.hpp"
#include "trireme/checkpoint/writer.hpp"
#include "trireme/comm/agree.hpp"

using namespace trireme;
using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

CheckpointOrder order_of(const std::string& path, std::int64_t step) {
    CheckpointOrder order;
    order.path = path;
    order.meta = some_meta();
    order.meta.position.updates = step;
    order.meta.position.skipped = 0;
    return order;
}

std::map<std::string, std::string> content(const std::string& path) {
    return content_of(io::File(path, io::Access::read));
}

}  // namespace

TEST_CASE("a checkpoint holds the state at the time of its order", "[mpi][checkpoint]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    const SharedDir dir(world);
    for (const bool behind : {false, true})
        for (const int shards : {1, world.size()}) {
            INFO((behind ? "behind" : "at once") << ", " << shards << " shards");
            State state({.width = 512, .shards = shards, .shard = world.rank() % shards});
            std::vector<SavedCheckpoint> saved;
            {
                CheckpointWriter writer(world, state.table, state.arena, behind);
                for (const int step : {1, 2, 3}) {
                    state.fill(static_cast<std::uint64_t>(20 + step));
                    writer.save(order_of(dir / "best.h5", step));
                    CheckpointOrder last = order_of(step_checkpoint_path(dir.path(), step), step);
                    last.run_dir = dir.path();
                    last.keep = 2;
                    writer.save(last);
                    state.fill(99);  // training goes on
                }
                writer.finish();
                CHECK(writer.pending() == 0);
                CHECK_FALSE(writer.failed());
                saved = writer.take_saved();
                CHECK(writer.take_saved().empty());
            }
            REQUIRE(saved.size() == 6);
            for (std::size_t i = 0; i < 6; ++i) {
                CHECK(saved[i].step == static_cast<std::int64_t>(i / 2 + 1));
                CHECK(saved[i].path ==
                      (i % 2 == 0 ? dir / "best.h5" : step_checkpoint_path(dir.path(), saved[i].step)));
                CHECK(saved[i].bytes > 0);
                CHECK(saved[i].stall > 0);
                if (!behind) CHECK(saved[i].stall == saved[i].seconds);
            }
            CHECK(step_checkpoints(dir.path()) ==
                  std::vector{step_checkpoint_path(dir.path(), 3), step_checkpoint_path(dir.path(), 2)});
            for (const int step : {2, 3}) {
                state.fill(static_cast<std::uint64_t>(20 + step));
                const CheckpointOrder order = order_of(dir / "plain.h5", step);
                save_checkpoint(world, order.path, state.table, state.arena, order.meta);
                CHECK(content(step_checkpoint_path(dir.path(), step)) == content(order.path));
            }
            CHECK(content(dir / "best.h5") == content(dir / "plain.h5"));
            world.barrier();
        }
}

TEST_CASE("what is ordered is written, also by a writer that goes at once", "[mpi][checkpoint]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    const SharedDir dir(world);
    State state;
    state.fill(31);
    { CheckpointWriter(world, state.table, state.arena, true).save(order_of(dir / "c.h5", 1)); }
    State loaded;
    load_checkpoint(world, dir / "c.h5", loaded.table, loaded.arena, Part::training);
    CHECK(loaded.holds(31));
}

TEST_CASE("a failure behind training's back reaches all ranks, and nothing is written after it",
          "[mpi][checkpoint]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    const SharedDir dir(world);
    if (world.rank() == 0) write_file(dir / "file", "not a folder");
    world.barrier();
    for (const bool waits : {true, false}) {
        State state;
        CheckpointWriter writer(world, state.table, state.arena, true);
        writer.save(order_of(dir / "file/c.h5", 1));  // does not throw yet
        while (waits && !writer.failed()) std::this_thread::yield();
        writer.save(order_of(dir / "after.h5", 1));  // of the same step: is not waited for either
        const Error next = agreed_error(world, [&] { writer.save(order_of(dir / "next.h5", 2)); });
        CHECK(next.status() == Status::failed);
        CHECK_THAT(next.what(), contains(dir / "file/c.h5"));
        const Error end = agreed_error(world, [&] { writer.finish(); });
        CHECK(std::string(end.what()) == next.what());
        CHECK(writer.failed());
        CHECK(writer.take_saved().empty());
        CHECK(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()) == 1);
        world.barrier();
    }
}
