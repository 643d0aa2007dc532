// One process: what a checkpoint file holds, what is refused, and what a failed save leaves behind.
#include <mpi.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <optional>

#include "comm/mpi_communicator.hpp"
#include "support/catch.hpp"
#include "support/checkpoint_state.hpp"
#include "support/process.hpp"
#include "trireme/base/error.hpp"

using namespace trireme;
using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

MpiCommunicator alone() {
    return {MPI_COMM_SELF, false};
}

Error error_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const Error& error) {
        return error;
    }
    FAIL("no error was raised");
    throw;
}

std::string save(const fs::path& path, State& state, const CheckpointMeta& meta = some_meta()) {
    auto comm = alone();
    return save_checkpoint(comm, path.string(), state.table, state.arena, meta).path;
}

Error load_error(const std::string& path, const StateOptions& options, bool with_states = true) {
    auto comm = alone();
    State state(options);
    const Error error = error_of([&] {
        load_checkpoint(comm, path, state.table, state.arena, with_states ? Part::training : Part::weights);
    });
    CHECK(error.status() == Status::bad_data);
    CHECK(error.scope() == Scope::all_ranks);
    CHECK_THAT(error.what(), contains(path));
    return error;
}

std::vector<std::string> names_in(const fs::path& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder))
        names.push_back(entry.path().filename().string());
    return names;
}

// This process cannot write files beyond so many bytes: a full disk without a disk.
class SmallDisk {
public:
    explicit SmallDisk(rlim_t bytes) {
        getrlimit(RLIMIT_FSIZE, &before_);
        handler_ = std::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{bytes, before_.rlim_max};
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    ~SmallDisk() {
        setrlimit(RLIMIT_FSIZE, &before_);
        std::signal(SIGXFSZ, handler_);
    }
    SmallDisk(const SmallDisk&) = delete;
    SmallDisk& operator=(const SmallDisk&) = delete;

private:
    rlimit before_{};
    void (*handler_)(int) = nullptr;
};

}  // namespace

TEST_CASE("weights, moments and meta data come back bit for bit", "[unit][checkpoint]") {
    const TempDir dir;
    State saved;
    saved.fill(1);
    auto comm = alone();
    const auto report =
        save_checkpoint(comm, (dir / "a/b/c.h5").string(), saved.table, saved.arena, some_meta());
    CHECK(report.path == (dir / "a/b/c.h5").string());
    CHECK(report.bytes == static_cast<double>(fs::file_size(report.path)));
    CHECK(report.seconds > 0);
    CHECK(names_in(dir / "a/b") == std::vector<std::string>{"c.h5"});

    CHECK(same_meta(read_checkpoint_meta(comm, report.path), some_meta()));
    State loaded;
    loaded.fill(2);
    load_checkpoint(comm, report.path, loaded.table, loaded.arena, Part::weights);
    CHECK(loaded.holds(1, false));
    CHECK_FALSE(loaded.holds(1));
    load_checkpoint(comm, report.path, loaded.table, loaded.arena, Part::training);
    CHECK(loaded.holds(1));
}

TEST_CASE("empty texts, no normalization and no optimizer states are ordinary", "[unit][checkpoint]") {
    const TempDir dir;
    const StateOptions options{.states = {}};
    State saved(options);
    saved.fill(3);
    CheckpointMeta meta;
    meta.optimizer = "sgd";
    meta.position.best = std::numeric_limits<double>::infinity();
    const std::string path = save(dir / "c.h5", saved, meta);
    auto comm = alone();
    CHECK(same_meta(read_checkpoint_meta(comm, path), meta));
    State loaded(options);
    load_checkpoint(comm, path, loaded.table, loaded.arena, Part::training);
    CHECK(loaded.holds(3));
}

TEST_CASE("the layout of the file is the documented one", "[unit][checkpoint]") {
    const TempDir dir;
    State state;
    state.fill(4);
    const io::File file(save(dir / "c.h5", state), io::Access::read);
    CHECK(file.text_attribute("/", "format") == "trireme-checkpoint");
    CHECK(file.int_attribute("/", "version") == 1);
    CHECK(file.text_attribute("/", "trireme").has_value());
    CHECK(file.text_attribute("/", "created").value().size() == std::string("2024-01-31T12:34:56Z").size());
    CHECK(file.int_attribute("/position", "updates") == 1234567890123);
    CHECK(file.real_attribute("/position", "scale") == 0.1);
    CHECK(file.text_attribute("/data", "sample") == "3x28x30");
    CHECK(file.text_attribute("/optim", "name") == "adam");
    CHECK(file.text_attribute("/optim", "states") == "m,v");
    CHECK(file.children("/") == std::vector<std::string>{"config", "data", "model", "optim", "position"});
    CHECK(file.children("/model").size() == 6);
    CHECK(file.children("/optim/m").size() == 5);  // statistics have no moments
    CHECK_FALSE(file.has("/optim/v/1.batchnorm.mean"));
    CHECK(file.open("/model/2.rows.weight").info().shape == Shape{3, 2, 1, 5});
    CHECK(file.open("/model/3.scale").info().shape == Shape{});
    CHECK_FALSE(file.open("/model/0.linear.weight").info().chunk.has_value());
}

TEST_CASE("a state that does not fit is refused by name and shapes", "[unit][checkpoint]") {
    const TempDir dir;
    State state;
    state.fill(5);
    const std::string path = save(dir / "c.h5", state), less = (dir / "less.h5").string();

    SECTION("another width") {
        const Error error = load_error(path, {.width = 16});
        CHECK_THAT(error.what(), contains("parameter 0.linear.weight is 8x7 in the file, 16x7 in the model"));
        CHECK_THAT(error.what(), contains("parameter 0.linear.bias is 8 in the file, 16 in the model"));
    }
    SECTION("a data set removed") {
        copy_without(path, less, "/model/2.rows.weight");
        CHECK_THAT(load_error(less, {}, false).what(),
                   contains("parameter 2.rows.weight (3x2x1x5) is missing in the file"));
    }
    SECTION("a parameter that the model lacks") {
        copy_without(path, less, "/nothing");
        {
            io::File file(less, io::Access::append);
            const float value[6] = {};
            file.create("/model/9.extra", DType::f32, Shape{2, 3}).write_flat({0, 6}, DType::f32, value);
            file.close();
        }
        CHECK_THAT(load_error(less, {}).what(),
                   contains("parameter 9.extra (2x3) of the file is not in the model"));
    }
    SECTION("the group of an optimizer state removed") {
        copy_without(path, less, "/optim/v");
        CHECK_THAT(load_error(less, {}).what(),
                   contains("optimizer state /optim/v is missing (the file was saved with adam)"));
        auto comm = alone();
        State weights_only;
        load_checkpoint(comm, less, weights_only.table, weights_only.arena, Part::weights);
        CHECK(weights_only.holds(5, false));
    }
    SECTION("one moment removed") {
        copy_without(path, less, "/optim/m/3.scale");
        CHECK_THAT(load_error(less, {}).what(),
                   contains("optimizer state m of 3.scale (scalar) is missing in the file"));
    }
    SECTION("the whole optimizer group removed") {
        copy_without(path, less, "/optim");
        CHECK_THAT(load_error(less, {}).what(), contains("/optim is missing"));
    }
    SECTION("another optimizer") {
        const Error error = load_error(path, {.states = {"momentum"}});
        CHECK_THAT(error.what(),
                   contains("optimizer state /optim/momentum is missing (the file was saved with adam)"));
        CHECK_THAT(error.what(),
                   contains("optimizer state v of the file (saved with adam) is not one of this optimizer"));
    }
    SECTION("a lost attribute of the position") {
        copy_without(path, less, "/position@updates");
        CHECK_THAT(load_error(less, {}).what(), contains("/position has no attribute updates"));
    }
}

TEST_CASE("what is no whole checkpoint is refused", "[unit][checkpoint]") {
    const TempDir dir;
    auto comm = alone();
    const auto refusal = [&](const fs::path& path) {
        const Error error = error_of([&] { read_checkpoint_meta(comm, path.string()); });
        CHECK(error.status() == Status::bad_data);
        CHECK(error.scope() == Scope::all_ranks);
        CHECK_THAT(error.what(), contains(path.string()));
        return std::string(error.what());
    };

    CHECK_THAT(refusal(dir / "missing.h5"), contains("no such file"));
    write_file(dir / "text.h5", "a text");
    refusal(dir / "text.h5");
    write_file(dir / "empty.h5", "");
    refusal(dir / "empty.h5");
    {
        io::File foreign((dir / "foreign.h5").string(), io::Access::create);
        const float value = 1;
        foreign.create("/model/0.linear.weight", DType::f32, Shape{1}).write_flat({0, 1}, DType::f32, &value);
        foreign.close();
    }
    CHECK_THAT(refusal(dir / "foreign.h5"), contains("no Trireme checkpoint"));

    State state;
    const std::string path = save(dir / "c.h5", state);
    {
        io::File file(path, io::Access::append);
        file.set_attribute("/", "version", std::int64_t{2});
        file.set_attribute("/", "trireme", std::string("9.9.9"));
        file.close();
    }
    const std::string newer = refusal(path);
    CHECK_THAT(newer, contains("version 2"));
    CHECK_THAT(newer, contains("9.9.9"));
}

TEST_CASE("where a checkpoint cannot be written, the path is named", "[unit][checkpoint]") {
    const TempDir dir;
    State state;
    write_file(dir / "file", "not a folder");
    fs::create_directories(dir / "taken.h5/inside");
    fs::create_directories(dir / "read-only");
    fs::permissions(dir / "read-only", fs::perms::owner_read | fs::perms::owner_exec);
    std::vector<fs::path> places = {dir / "file/c.h5", dir / "taken.h5", "/proc/trireme/c.h5", "/proc/c.h5"};
    if (geteuid() != 0) places.push_back(dir / "read-only/c.h5");
    for (const fs::path& place : places) {
        const Error error = error_of([&] { save(place, state); });
        CHECK(error.status() == Status::failed);
        CHECK(error.scope() == Scope::all_ranks);
        CHECK_THAT(error.what(), contains(place.string()));
    }
    CHECK(names_in(dir.path()).size() == 3);
    CHECK(names_in(dir / "taken.h5") == std::vector<std::string>{"inside"});
}

TEST_CASE("a save that fails half-way leaves the older file and nothing else", "[unit][checkpoint]") {
    const TempDir dir;
    State state;
    state.fill(6);
    const std::string path = save(dir / "c.h5", state);
    const std::string before = read_file(path);

    state.fill(7);
    for (const rlim_t bytes : {rlim_t{0}, rlim_t{100}, rlim_t{4096}, rlim_t{before.size() - 1}}) {
        std::optional<SmallDisk> disk(bytes);
        const Error error = error_of([&] { save(path, state); });
        disk.reset();
        CHECK(error.status() == Status::failed);
        CHECK_THAT(error.what(), contains(path));
        CHECK(names_in(dir.path()) == std::vector<std::string>{"c.h5"});
        CHECK(read_file(path) == before);
    }

    save(path, state);
    auto comm = alone();
    load_checkpoint(comm, path, state.table, state.arena, Part::training);
    CHECK(state.holds(7));
}
