// Files and data sets of several ranks together: every rank takes part in every collective call, and the
// content does not depend on how many there are.
#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "comm/mpi_communicator.hpp"
#include "support/catch.hpp"
#include "support/data_files.hpp"
#include "support/process.hpp"
#include "trireme/base/error.hpp"
#include "trireme/comm/agree.hpp"
#include "trireme/data/dataset.hpp"
#include "trireme/io/hdf5.hpp"

using namespace trireme;
using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

struct Ranks {
    MpiCommunicator comm{MPI_COMM_WORLD, false};
    MpiCommunicator alone{MPI_COMM_SELF, false};
    TempDir own;
    fs::path dir;  // the one of rank 0

    Ranks() : dir(broadcast_text(comm, own.path().string())) {}
    ~Ranks() { comm.barrier(); }  // nobody removes what another one reads
    bool first() const { return comm.rank() == 0; }
    template <class Action>
    void once(Action action) {
        if (first()) action();
        comm.barrier();
    }
};

std::vector<double> counted(std::int64_t count) {
    std::vector<double> values(static_cast<std::size_t>(count));
    std::iota(values.begin(), values.end(), 1.0);
    return values;
}

/// Rank 0 lays out the file, all ranks write their parts of the flattened whole, odd places included.
void write_together(Ranks& ranks, const fs::path& path, const Shape& shape, const std::vector<Range>& parts,
                    std::int64_t transfer) {
    ranks.once([&] {
        io::File file(path, io::Access::create);
        file.create("/model/weight", DType::f32, shape);
        file.close();
    });
    io::File file(path, io::Access::append, ranks.comm);
    file.limit_transfers(transfer);
    io::Dataset dataset = file.open("/model/weight");
    const Range mine = parts[static_cast<std::size_t>(ranks.comm.rank())];
    std::vector<float> values;
    for (std::int64_t i = mine.begin; i < mine.end; ++i) values.push_back(static_cast<float>(i + 1));
    dataset.write_flat(mine, DType::f32, values.data());
    file.flush();
    file.close();
}

}  // namespace

TEST_CASE("a parameter of three rows is written by any number of ranks", "[mpi][io]") {
    Ranks ranks;
    const Shape shape = GENERATE(Shape{3}, Shape{3, 5}, Shape{3, 2, 3, 3});
    const std::int64_t transfer = GENERATE(std::int64_t{1} << 30, std::int64_t{16});
    std::vector<Range> parts;  // whole rows: ranks without one write nothing
    const std::int64_t row = shape.count() / 3;
    for (int r = 0; r < ranks.comm.size(); ++r) {
        const Range rows = part_of({0, 3}, ranks.comm.size(), r);
        parts.push_back({rows.begin * row, rows.end * row});
    }
    const fs::path path = ranks.dir / "rows.h5";
    write_together(ranks, path, shape, parts, transfer);
    CHECK(read_values(path, "/model/weight") == counted(shape.count()));
    ranks.comm.barrier();
}

TEST_CASE("flat intervals meet at odd places, and are read at others", "[mpi][io]") {
    Ranks ranks;
    const Shape shape = GENERATE(Shape{7, 11}, Shape{5, 3, 4}, Shape{1, 1, 13});
    const std::int64_t count = shape.count(), transfer = GENERATE(std::int64_t{1} << 30, std::int64_t{20});
    std::vector<Range> parts;
    for (int r = 0; r < ranks.comm.size(); ++r) parts.push_back(part_of({0, count}, ranks.comm.size(), r));
    const fs::path path = ranks.dir / "flat.h5";
    write_together(ranks, path, shape, parts, transfer);
    CHECK(read_values(path, "/model/weight") == counted(count));

    // Read through another cut: the last rank takes almost everything, the others little or nothing.
    const Range mine = ranks.comm.rank() + 1 == ranks.comm.size()
                           ? Range{2, count}
                           : Range{0, std::min<std::int64_t>(ranks.comm.rank(), 2)};
    std::vector<float> found(static_cast<std::size_t>(mine.size()));
    io::File file(path, io::Access::read, ranks.comm);
    file.limit_transfers(transfer);
    file.open("/model/weight").read_flat(mine, DType::f32, found.data());
    for (std::size_t i = 0; i < found.size(); ++i)
        REQUIRE(found[i] == static_cast<float>(mine.begin) + static_cast<float>(i + 1));
    file.close();
    ranks.comm.barrier();
}

TEST_CASE("a parallel file converts on its way and knows its attributes", "[mpi][io]") {
    Ranks ranks;
    const fs::path path = ranks.dir / "half.h5";
    {
        io::File file(path, io::Access::create, ranks.comm);
        io::Dataset dataset = file.create("/v", DType::f16, Shape{4, 3});
        file.set_attribute("/", "step", std::int64_t{42});
        const Range mine = part_of({0, 12}, ranks.comm.size(), ranks.comm.rank());
        std::vector<float> values;
        for (std::int64_t i = mine.begin; i < mine.end; ++i) values.push_back(static_cast<float>(i + 1));
        dataset.write_flat(mine, DType::f32, values.data());
        file.close();
    }
    CHECK(read_values(path, "/v") == counted(12));
    const io::File file(path, io::Access::read, ranks.comm);
    CHECK(file.int_attribute("/", "step") == 42);
    ranks.comm.barrier();
}

TEST_CASE("a file that cannot be opened is the same error on all ranks", "[mpi][io]") {
    Ranks ranks;
    ranks.once([&] {
        add_dataset(ranks.dir / "cut.h5", "/x", Shape{100}, counted(100));
        truncate_file(ranks.dir / "cut.h5", 0.6);
    });
    for (const char* name : {"none.h5", "cut.h5"}) {
        std::string message;
        try {
            io::File(ranks.dir / name, io::Access::append, ranks.comm);
        } catch (const Error& error) {
            message = error.what();
            CHECK(error.status() == Status::bad_data);
        }
        REQUIRE_THAT(message, contains(std::string(name) + ": expected"));
        CHECK(gather_texts(ranks.comm, message) ==
              std::vector<std::string>(static_cast<std::size_t>(ranks.comm.size()), message));
    }
}

TEST_CASE("all ranks get the layout of a data set, or the same verdict", "[mpi][io]") {
    Ranks ranks;
    std::string pattern = ranks.dir / "part-*.h5";
    ranks.once([&] {
        write_shards(ranks.dir, numbered_samples(30, Shape{1, 4, 3}), {10, 0, 20}, {DType::u8});
    });
    const DatasetLayout layout = open_dataset(ranks.comm, pattern);
    CHECK(layout.rows() == 30);
    CHECK(layout.sample == Shape{1, 4, 3});
    CHECK(layout.x_type == DType::u8);
    CHECK(layout.place_of(10, "/x") == (ranks.dir / "part-2.h5").string() + ":/x row 0");

    ranks.once([&] { truncate_file(ranks.dir / "part-2.h5", 0.6); });
    try {
        open_dataset(ranks.comm, pattern);
        FAIL("a truncated shard was accepted");
    } catch (const Error& error) {
        CHECK(error.status() == Status::bad_data);
        CHECK(error.scope() == Scope::all_ranks);
        REQUIRE_THAT(std::string(error.what()), contains("part-2.h5: expected a file of"));
    }
}

TEST_CASE("classes and statistics have the same bits on any number of ranks", "[mpi][io]") {
    Ranks ranks;
    const Shape sample = GENERATE(Shape{5}, Shape{3, 4, 4});
    const std::int64_t rows = GENERATE(2, 131);  // fewer rows than ranks, and more than there are segments
    ranks.once([&] {
        Samples samples = numbered_samples(rows, sample, 7);
        for (std::size_t i = 0; i < samples.x.size(); ++i) samples.x[i] = samples.x[i] / 7.0 + 1000.0;
        write_shards(ranks.dir, samples, {1, 0, rows - 1}, {DType::f64});
    });
    const DatasetLayout layout = open_dataset(ranks.comm, ranks.dir / "part-*.h5");
    CHECK(count_classes(ranks.comm, layout, -100) == std::min<std::int64_t>(rows, 7));
    const Normalization together = make_normalization(ranks.comm, layout, "standard");
    const Normalization alone = make_normalization(ranks.alone, layout, "standard");
    CHECK(together.shift == alone.shift);
    CHECK(together.scale == alone.scale);
}

TEST_CASE("all ranks get the same windows and the same vocabulary", "[mpi][io]") {
    Ranks ranks;
    ranks.once([&] {
        add_dataset(ranks.dir / "part-0.h5", "/tokens", Shape{3}, {5, 0, 2}, {DType::u8});
        add_dataset(ranks.dir / "part-1.h5", "/tokens", Shape{8}, {1, 2, 3, 4, 300, 6, 7, 8}, {DType::u16});
    });
    const DatasetLayout layout = open_dataset(ranks.comm, ranks.dir / "part-*.h5", {.context = 4});
    CHECK(layout.is_tokens());
    CHECK(layout.rows() == 3);
    CHECK(layout.sample == Shape{4});
    CHECK(layout.x_type == DType::u16);
    CHECK(count_classes(ranks.comm, layout, -100) == 301);
}

TEST_CASE("a bad label is the same error on all ranks", "[mpi][io]") {
    Ranks ranks;
    ranks.once([&] {
        Samples samples = numbered_samples(20, Shape{2});
        samples.y[19] = -5;
        write_samples(ranks.dir / "a.h5", samples);
    });
    const DatasetLayout layout = open_dataset(ranks.comm, ranks.dir / "a.h5");
    try {
        count_classes(ranks.comm, layout, -100);
        FAIL("a negative label was accepted");
    } catch (const Error& error) {
        CHECK(error.scope() == Scope::all_ranks);
        REQUIRE_THAT(std::string(error.what()),
                     contains("a.h5:/y row 19: expected a class label (an integer from 0), found -5"));
    }
}
