// Sharded data sets: what is agreed before the first step, and what is said when shards do not fit together.
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>

#include "comm/mpi_communicator.hpp"
#include "support/catch.hpp"
#include "support/data_files.hpp"
#include "support/process.hpp"
#include "trireme/base/error.hpp"
#include "trireme/data/dataset.hpp"

using namespace trireme;
using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

/// The message of a bad data set, which all ranks get alike.
std::string refusal(const std::function<void()>& action) {
    try {
        action();
    } catch (const Error& error) {
        CHECK(error.status() == Status::bad_data);
        CHECK(error.scope() == Scope::all_ranks);
        return error.what();
    }
    return "no error";
}

struct Alone {
    TempDir dir;
    MpiCommunicator comm{MPI_COMM_SELF, false};

    DatasetLayout open(const std::string& pattern = "*.h5") {
        return open_dataset(comm, (dir / pattern).string());
    }
    std::string refused(const std::string& pattern = "*.h5") {
        return refusal([&] { open(pattern); });
    }
};

}  // namespace

TEST_CASE("shards are one sequence, empty ones included", "[unit][data]") {
    Alone alone;
    write_shards(alone.dir.path(), numbered_samples(100, Shape{1, 4, 3}), {1, 50, 0, 29, 20}, {DType::u8});
    const DatasetLayout layout = alone.open();
    CHECK(layout.rows() == 100);
    CHECK(layout.sample == Shape{1, 4, 3});
    CHECK(layout.target == Shape{});
    CHECK(layout.x_type == DType::u8);
    CHECK(layout.y_type == DType::i64);
    CHECK(layout.shards.size() == 5);
    CHECK(layout.shards[2].ids.empty());
    REQUIRE_THAT(layout.place_of(0, "/x"), contains("part-0.h5:/x row 0"));
    REQUIRE_THAT(layout.place_of(50, "/x"), contains("part-1.h5:/x row 49"));
    REQUIRE_THAT(layout.place_of(51, "/y"), contains("part-3.h5:/y row 0"));
    REQUIRE_THAT(layout.place_of(99, "/x"), contains("part-4.h5:/x row 19"));
}

TEST_CASE("the layout holds the widest type of all shards", "[unit][data]") {
    Alone alone;
    const Samples samples = numbered_samples(4, Shape{2});
    write_samples(alone.dir / "a.h5", samples, {DType::u8}, {DType::i8});
    write_samples(alone.dir / "b.h5", samples, {DType::i8, true}, {DType::u32});
    const DatasetLayout layout = alone.open();
    CHECK(layout.x_type == DType::i16);
    CHECK(layout.y_type == DType::i64);
    write_samples(alone.dir / "a.h5", samples, {DType::f16}, {DType::i8});
    write_samples(alone.dir / "b.h5", samples, {DType::bf16}, {DType::i8});
    CHECK(alone.open().x_type == DType::f32);
}

TEST_CASE("one number a sample and targets of several columns are data sets too", "[unit][data]") {
    Alone alone;
    add_dataset(alone.dir / "a.h5", "/x", Shape{3}, {1, 2, 3});
    add_dataset(alone.dir / "a.h5", "/y", Shape{3, 2}, {1, 2, 3, 4, 5, 6});
    const DatasetLayout layout = alone.open();
    CHECK(layout.sample == Shape{1});
    CHECK(layout.target == Shape{2});
    CHECK(layout.y_type == DType::f32);
}

TEST_CASE("a pattern without files is refused by name", "[unit][data]") {
    Alone alone;
    REQUIRE_THAT(alone.refused("train-*.h5"), contains("train-*.h5: expected HDF5 files, found no file"));
    write_samples(alone.dir / "a.h5", numbered_samples(4, Shape{2}));
    REQUIRE_THAT(alone.refused("a.h5," + (alone.dir / "b.h5").string()),
                 contains("b.h5: expected HDF5 files"));
}

TEST_CASE("each kind of shard that does not fit is refused with file, data set, expected and found",
          "[unit][data]") {
    Alone alone;
    const Samples samples = numbered_samples(40, Shape{8, 8});
    write_shards(alone.dir.path(), samples, {10, 10, 10, 10});
    const fs::path third = alone.dir / "part-2.h5";

    SECTION("cut to 60 %") {
        truncate_file(third, 0.6);
        const std::string message = alone.refused();
        REQUIRE_THAT(message, contains("part-2.h5: expected a file of "));
        REQUIRE_THAT(message, contains("truncated"));
        REQUIRE_THAT(message, contains("/x and /y"));
    }
    SECTION("without y") {
        fs::remove(third);
        add_dataset(third, "/x", Shape{10, 8, 8}, std::vector<double>(640, 0.0));
        REQUIRE_THAT(alone.refused(), contains("part-2.h5:/y: expected a data set, found none"));
    }
    SECTION("8x9 among 8x8") {
        write_samples(third, numbered_samples(10, Shape{8, 9}));
        REQUIRE_THAT(alone.refused(), contains("part-2.h5:/x: expected samples of 8x8 as in "));
        REQUIRE_THAT(alone.refused(), contains("part-0.h5, found 8x9"));
    }
    SECTION("100 rows against 99 labels") {
        fs::remove(third);
        add_dataset(third, "/x", Shape{100, 8, 8}, std::vector<double>(6400, 0.0));
        add_dataset(third, "/y", Shape{99}, std::vector<double>(99, 0.0), {DType::i64});
        REQUIRE_THAT(alone.refused(), contains("part-2.h5:/y: expected 100 rows as in /x, found 99"));
    }
    SECTION("reals among integers") {
        write_samples(third, numbered_samples(10, Shape{8, 8}), {}, {DType::f32});
        REQUIRE_THAT(alone.refused(), contains("part-2.h5:/y: expected integers as in "));
        REQUIRE_THAT(alone.refused(), contains("found float32"));
    }
    SECTION("texts as labels") {
        fs::remove(third);
        add_dataset(third, "/x", Shape{1, 8, 8}, std::vector<double>(64, 0.0));
        add_strings(third, "/y", {"seven"});
        REQUIRE_THAT(alone.refused(), contains("part-2.h5:/y: expected numbers, found strings"));
    }
    SECTION("no rows at all") {
        write_shards(alone.dir / "none", samples, {0, 0});
        REQUIRE_THAT(alone.refused("none/*.h5"),
                     contains("/x: expected at least one sample, found 0 rows in 2 file(s)"));
    }
}

TEST_CASE("classes are counted and bad labels named", "[unit][data]") {
    Alone alone;
    Samples samples = numbered_samples(30, Shape{2}, 7);
    const DType type = GENERATE(DType::i64, DType::u8, DType::f64);
    write_shards(alone.dir.path(), samples, {10, 0, 20}, {}, {type});
    CHECK(count_classes(alone.comm, alone.open(), -100) == 7);
    if (type == DType::u8) return;
    samples.y[12] = -3;
    write_shards(alone.dir.path(), samples, {10, 0, 20}, {}, {type});
    const DatasetLayout layout = alone.open();
    CHECK(count_classes(alone.comm, layout, -3) == 7);
    REQUIRE_THAT(refusal([&] { count_classes(alone.comm, layout, -100); }),
                 contains("part-2.h5:/y row 2: expected a class label (an integer from 0), found -3"));
    if (type != DType::f64) return;
    samples.y[12] = 1.5;
    write_shards(alone.dir.path(), samples, {10, 0, 20}, {}, {type});
    REQUIRE_THAT(refusal([&] { count_classes(alone.comm, layout, -100); }),
                 contains("row 2: expected a class label"));
}

TEST_CASE("unit normalisation divides by the stored type's maximum", "[unit][data]") {
    Alone alone;
    const auto [type, scale] =
        GENERATE(std::pair{DType::u8, 1 / 255.0f}, std::pair{DType::i16, 1 / 32767.0f});
    write_samples(alone.dir / "a.h5", numbered_samples(3, Shape{2}), {type});
    const Normalization unit = make_normalization(alone.comm, alone.open(), "unit");
    CHECK(unit.shift == std::vector<float>{0.0f});
    CHECK(unit.scale == std::vector<float>{scale});
    CHECK(make_normalization(alone.comm, alone.open(), "none").identity());
    REQUIRE_THROWS_WITH(make_normalization(alone.comm, alone.open(), "max"), contains("data.normalize"));
}

TEST_CASE("standard normalisation has each channel's mean and deviation", "[unit][data]") {
    Alone alone;
    const Shape sample = GENERATE(Shape{3}, Shape{3, 4, 5}, Shape{3, 11});
    const std::int64_t rows = GENERATE(1, 5, 200), area = sample.count() / 3;
    Samples samples{sample, {}, std::vector<double>(static_cast<std::size_t>(rows), 0.0)};
    // Far from zero: a sum of squares would lose the deviation. The last channel is constant.
    for (std::int64_t i = 0; i < rows * sample.count(); ++i) {
        const std::int64_t channel = i % sample.count() / area;
        samples.x.push_back(
            channel == 2 ? 5.0 : 1e6 * static_cast<double>(channel) + static_cast<double>(i * 37 % 11));
    }
    write_samples(alone.dir / "a.h5", samples, {DType::f64});
    const Normalization standard = make_normalization(alone.comm, alone.open(), "standard");
    REQUIRE(standard.shift.size() == 3);
    for (std::int64_t c = 0; c < 3; ++c) {
        double mean = 0, squares = 0;
        const auto each = [&](const std::function<void(double)>& use) {
            for (std::int64_t i = 0; i < rows * sample.count(); ++i)
                if (i % sample.count() / area == c) use(samples.x[static_cast<std::size_t>(i)]);
        };
        each([&](double value) { mean += value / static_cast<double>(rows * area); });
        each([&](double value) {
            squares += (value - mean) * (value - mean) / static_cast<double>(rows * area);
        });
        const double scale = squares > 1e-12 ? 1 / std::sqrt(squares) : 1.0;
        CHECK(standard.shift[static_cast<std::size_t>(c)] == Approx(mean).epsilon(1e-6));
        CHECK(standard.scale[static_cast<std::size_t>(c)] == Approx(scale).epsilon(1e-5));
    }
}

TEST_CASE("a value that is not finite is named when the mean is taken", "[unit][data]") {
    Alone alone;
    Samples samples = numbered_samples(60, Shape{4});
    samples.x[(20 + 17) * 4 + 2] = std::numeric_limits<double>::quiet_NaN();
    write_shards(alone.dir.path(), samples, {20, 20, 20});
    REQUIRE_THAT(refusal([&] { make_normalization(alone.comm, alone.open(), "standard"); }),
                 contains("part-1.h5:/x row 17: value nan is not a finite number"));
}
