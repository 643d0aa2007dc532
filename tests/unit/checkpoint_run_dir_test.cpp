// The checkpoints of a run directory: which one is the newest whole one, and which ones stay.
#include <mpi.h>

#include <chrono>
#include <filesystem>

#include "comm/mpi_communicator.hpp"
#include "support/catch.hpp"
#include "support/checkpoint_state.hpp"
#include "support/process.hpp"

using namespace trireme;
using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

// A run directory with checkpoints of these steps.
class Run {
public:
    explicit Run(const std::vector<std::int64_t>& steps) {
        State state;
        for (const std::int64_t step : steps) {
            CheckpointMeta meta = some_meta();
            meta.position.updates = step;
            save_checkpoint(comm_, path(step), state.table, state.arena, meta);
        }
    }

    std::string dir() const { return dir_.path().string(); }
    std::string path(std::int64_t step) const { return step_checkpoint_path(dir(), step); }
    fs::path folder() const { return dir_ / "checkpoints"; }

    // The step of the newest whole checkpoint, or -1.
    std::int64_t newest() {
        const auto found = newest_checkpoint(comm_, dir(), rejected);
        return found ? read_checkpoint_meta(comm_, *found).position.updates : -1;
    }
    std::vector<std::string> retain(std::int64_t keep) {
        retain_checkpoints(comm_, dir(), keep);
        std::vector<std::string> names;
        for (const auto& entry : fs::directory_iterator(folder()))
            names.push_back(entry.path().filename().string());
        std::sort(names.begin(), names.end());
        return names;
    }

    std::vector<std::string> rejected;

private:
    TempDir dir_;
    MpiCommunicator comm_{MPI_COMM_SELF, false};
};

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("checkpoint paths of a run directory", "[unit][checkpoint]") {
    CHECK(step_checkpoint_path("runs/a", 42) == "runs/a/checkpoints/step-00000042.h5");
    CHECK(step_checkpoint_path("runs/a", 1234567890) == "runs/a/checkpoints/step-1234567890.h5");
    CHECK(best_checkpoint_path("runs/a") == "runs/a/checkpoints/best.h5");
    CHECK(step_checkpoints("/nowhere").empty());
}

TEST_CASE("the newest checkpoint is that of the highest step, whatever the files' times say",
          "[unit][checkpoint]") {
    Run run({9, 10, 100});
    const auto now = fs::file_time_type::clock::now();
    fs::last_write_time(run.path(9), now);
    fs::last_write_time(run.path(100), now - std::chrono::hours(2));
    fs::last_write_time(run.path(10), now - std::chrono::hours(1));
    CHECK(run.newest() == 100);
    CHECK(run.rejected.empty());
    CHECK(step_checkpoints(run.dir()) == Names{run.path(100), run.path(10), run.path(9)});

    // Numbers, not texts, are compared.
    fs::rename(run.path(9), run.folder() / "step-9.h5");
    fs::rename(run.path(100), run.folder() / "step-000000000100.h5");
    CHECK(run.newest() == 100);
}

TEST_CASE("no checkpoint at all is an ordinary answer", "[unit][checkpoint]") {
    Run run({});
    CHECK(run.newest() == -1);
    fs::create_directories(run.folder());
    for (const char* name : {"step-.h5", "step-x1.h5", "step-1.h5.bak", "best.h5", "step--1.h5"})
        write_file(run.folder() / name, "something else");
    CHECK(run.newest() == -1);
    CHECK(run.rejected.empty());
}

TEST_CASE("a truncated newest checkpoint is named and the one before is taken", "[unit][checkpoint]") {
    Run run({9, 10, 100});
    const std::string whole = read_file(run.path(100));
    const auto size = whole.size();
    for (const std::size_t left :
         {size - 1, size - 100, size / 2, size / 3, std::size_t{600}, std::size_t{1}, std::size_t{0}}) {
        fs::resize_file(run.path(100), left);
        CHECK(run.newest() == 10);
        REQUIRE(run.rejected.size() == 1);
        CHECK_THAT(run.rejected[0], contains(run.path(100) + ": "));
        write_file(run.path(100), whole);
    }
    CHECK(run.newest() == 100);

    fs::resize_file(run.path(100), size / 2);
    fs::remove(run.path(10));
    fs::create_directory(run.path(10));
    CHECK(run.newest() == 9);
    REQUIRE(run.rejected.size() == 2);
    CHECK_THAT(run.rejected[1], contains(run.path(10) + ": "));

    write_file(run.path(9), "nothing");
    CHECK(run.newest() == -1);
    CHECK(run.rejected.size() == 3);
}

TEST_CASE("a checkpoint that lost an object is not taken for whole", "[unit][checkpoint]") {
    for (const char* object : {"/optim/m", "/optim", "/model", "/data/scale", "/config", "/position@epoch",
                               "/@version", "/optim@states"}) {
        Run run({1, 2});
        copy_without(run.path(2), run.path(3), object);
        CHECK(run.newest() == 2);
        CHECK(run.rejected.size() == 1);
    }
}

TEST_CASE("what a killed writer left is never picked up, and goes", "[unit][checkpoint]") {
    Run run({7});
    const std::string whole = read_file(run.path(7));
    write_file(run.path(8) + ".tmp-0badf00d", whole.substr(0, whole.size() / 2));
    write_file(run.path(9) + ".tmp-12345678", whole);
    write_file(best_checkpoint_path(run.dir()) + ".tmp-00000001", "");
    CHECK(run.newest() == 7);
    CHECK(run.rejected.empty());
    CHECK(run.retain(3) == Names{"step-00000007.h5"});
}

TEST_CASE("retention keeps the newest whole checkpoints and everything else", "[unit][checkpoint]") {
    Run run({9, 10, 100, 1000});
    fs::copy_file(run.path(9), best_checkpoint_path(run.dir()));
    write_file(run.folder() / "notes.txt", "mine");
    CHECK(run.retain(10).size() == 6);
    CHECK(run.retain(3) ==
          Names{"best.h5", "notes.txt", "step-00000010.h5", "step-00000100.h5", "step-00001000.h5"});

    // A damaged newer one is not counted, and is not removed before a whole one has passed it.
    fs::resize_file(run.path(1000), 700);
    CHECK(run.retain(1) == Names{"best.h5", "notes.txt", "step-00000100.h5", "step-00001000.h5"});
    CHECK(run.retain(0) == Names{"best.h5", "notes.txt", "step-00000100.h5", "step-00001000.h5"});
    fs::copy_file(run.path(100), run.path(2000));
    CHECK(run.retain(1) == Names{"best.h5", "notes.txt", "step-00002000.h5"});
}
