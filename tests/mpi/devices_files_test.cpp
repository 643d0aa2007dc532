// Files and checkpoints of ranks that are threads of one process or of several: opened and closed once in
// each process, and written by all, while other threads use the library too.
#include <mpi.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <thread>

#include "support/catch.hpp"
#include "support/checkpoint_state.hpp"
#include "support/data_files.hpp"
#include "support/process.hpp"
#include "support/teams.hpp"
#include "trireme/base/error.hpp"
#include "trireme/comm/agree.hpp"

using namespace trireme;
using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

/// One directory for all processes.
struct Place {
    MpiCommunicator processes{MPI_COMM_WORLD, false};
    TempDir own;
    fs::path dir = broadcast_text(processes, own.path().string());
    ~Place() { processes.barrier(); }
};

/// Reads a file again and again, as a loader does beside the training.
class Reader {
public:
    explicit Reader(const fs::path& path) {
        thread_ = std::thread([this, path] {
            while (!stop_) {
                const io::File file(path, io::Access::read);
                float value = 0;
                file.open("/x").read_flat({0, 1}, DType::f32, &value);
                std::this_thread::sleep_for(std::chrono::milliseconds(2));
            }
        });
    }
    ~Reader() {
        stop_ = true;
        thread_.join();
    }

private:
    std::atomic<bool> stop_ = false;
    std::thread thread_;
};

std::string said_by(const std::function<void()>& action) {
    try {
        action();
    } catch (const Error& error) {
        return (error.scope() == Scope::all_ranks ? "all: " : "one: ") + std::string(error.what());
    }
    return "nothing was thrown";
}

}  // namespace

TEST_CASE("threads of several processes write one file together", "[mpi][devices]") {
    Place place;
    const fs::path path = place.dir / "together.h5", other = place.dir / "other.h5";
    if (place.processes.rank() == 0) add_dataset(other, "/x", Shape{1}, {5});
    place.processes.barrier();
    constexpr std::int64_t count = 1009;
    for (const int threads : {1, 2, 3}) {
        CHECK(on_team(place.processes, threads, [&](Communicator& comm, Faults& faults) {
                  const Reader reader(other);
                  const Range mine = part_of({0, count}, comm.size(), comm.rank());
                  std::vector<float> values;
                  for (std::int64_t i = mine.begin; i < mine.end; ++i)
                      values.push_back(static_cast<float>(i + 1));
                  for (int round = 0; round < 3; ++round) {
                      io::File file(path.string(), io::Access::create, comm);
                      file.limit_transfers(256);
                      io::Dataset dataset = file.create("/group/values", DType::f32, Shape{count});
                      file.create_group("/empty");
                      file.set_attribute("/group", "round", std::int64_t{round});
                      file.set_attribute("/", "name", std::string("team"));
                      file.write_text("/text", "said once");
                      dataset.write_flat(mine, DType::f32, values.data());
                      file.flush();
                      file.close();
                  }
                  {
                      io::File file(path.string(), io::Access::append, comm);
                      io::Dataset dataset = file.open("/group/values");
                      dataset.write_rows(mine, DType::f32, values.data());
                  }  // closed by whoever is last
                  comm.barrier();
                  const io::File file(path.string(), io::Access::read, comm);
                  faults.expect(file.int_attribute("/group", "round") == 2, "an attribute");
                  faults.expect(file.read_text("/text") == "said once", "a text");
                  std::vector<float> all(count);
                  file.open("/group/values").read_flat({0, count}, DType::f32, all.data());
                  for (std::int64_t i = 0; i < count; ++i)
                      faults.expect(all[static_cast<std::size_t>(i)] == static_cast<float>(i + 1), "a value");
              }) == "");
        place.processes.barrier();
        CHECK(read_values(path, "/group/values").back() == count);
    }
}

TEST_CASE("threads of several processes write the same checkpoint as one rank", "[mpi][devices]") {
    Place place;
    const auto content = [](const fs::path& path) {
        return content_of(io::File(path.string(), io::Access::read));
    };
    const fs::path alone = place.dir / "alone.h5";
    if (place.processes.rank() == 0) {
        MpiCommunicator self(MPI_COMM_SELF, false);
        State state;
        state.fill(11);
        save_checkpoint(self, alone.string(), state.table, state.arena, some_meta());
    }
    place.processes.barrier();
    for (const int threads : {2, 3})
        CHECK(on_team(place.processes, threads, [&](Communicator& comm, Faults& faults) {
                  // From how many elements on all ranks write a parameter: everything, some, nothing.
                  for (const std::int64_t threshold :
                       {std::int64_t{0}, std::int64_t{16}, std::int64_t{1} << 20}) {
                      State state;
                      state.fill(11);
                      const std::string path = (place.dir / "together.h5").string();
                      save_checkpoint(comm, path, state.table, state.arena, some_meta(), threshold);
                      if (comm.rank() == 0) faults.expect(content(path) == content(alone), "the whole");
                      State loaded;
                      load_checkpoint(comm, path, loaded.table, loaded.arena, Part::training);
                      faults.expect(loaded.holds(11), "what is loaded");
                      comm.barrier();
                  }
                  // Each rank holds a shard.
                  State shard({.shards = comm.size(), .shard = comm.rank()});
                  shard.fill(11);
                  const std::string path = (place.dir / "shards.h5").string();
                  save_checkpoint(comm, path, shard.table, shard.arena, some_meta(), 0);
                  if (comm.rank() == 0) faults.expect(content(path) == content(alone), "of shards");
                  comm.barrier();
              }) == "");
}

TEST_CASE("what cannot be opened or saved is the same error on all threads", "[mpi][devices]") {
    Place place;
    const fs::path file = place.dir / "file";
    if (place.processes.rank() == 0) write_file(file, "not a folder");
    place.processes.barrier();
    for (const int threads : {2, 3})
        CHECK(
            on_team(place.processes, threads, [&](Communicator& comm, Faults& faults) {
                const std::string missing =
                    said_by([&] { io::File((place.dir / "none.h5").string(), io::Access::append, comm); });
                faults.expect(missing.starts_with("all: ") && missing.ends_with("found no such file"),
                              missing);
                // A failed creation leaves nothing behind in any process.
                const std::string no_folder =
                    said_by([&] { io::File((file / "c.h5").string(), io::Access::create, comm); });
                faults.expect(no_folder.starts_with("all: ") &&
                                  no_folder.find("cannot be created") != std::string::npos,
                              no_folder);
                State state;
                const std::string save = said_by([&] {
                    save_checkpoint(comm, (file / "c.h5").string(), state.table, state.arena, some_meta(), 0);
                });
                faults.expect(save.starts_with("all: ") && save.find("file/c.h5") != std::string::npos, save);
                for (const std::string& text : gather_texts(comm, missing + no_folder + save))
                    faults.expect(text == missing + no_folder + save, "not the same everywhere: " + text);
                const std::string path = (place.dir / "good.h5").string();
                save_checkpoint(comm, path, state.table, state.arena, some_meta(), 0);
                faults.expect(fs::exists(path), "saving after the failure");
            }) == "");
}
