// HDF5 files of one process: types, intervals, attributes, texts and what is said of files that are not
// whole.
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <numeric>
#include <vector>

#include "support/catch.hpp"
#include "support/data_files.hpp"
#include "support/process.hpp"
#include "trireme/base/error.hpp"
#include "trireme/io/hdf5.hpp"

using namespace trireme;
using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

std::vector<std::int32_t> counted(std::int64_t count) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(count));
    std::iota(values.begin(), values.end(), 0);
    return values;
}

std::string message_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const Error& error) {
        return error.what();
    }
    return "no error";
}

}  // namespace

TEST_CASE("any stored number type is read by the type that holds it", "[unit][io]") {
    const TempDir dir;
    const std::vector<double> values{0, 1, 2, 100, 127};
    for (const bool big_endian : {false, true})
        for (const DType type : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8, DType::u8,
                                 DType::i16, DType::u16, DType::i32, DType::u32, DType::i64, DType::u64}) {
            INFO(name_of(type) << (big_endian ? " big-endian" : " little-endian"));
            const fs::path path = dir / "types.h5";
            fs::remove(path);
            add_dataset(path, "/v", Shape{5}, values, {type, big_endian});
            const io::File file(path, io::Access::read);
            const io::Dataset dataset = file.open("/v");
            CHECK(dataset.info().dtype == type);
            CHECK(dataset.info().shape == Shape{5});
            CHECK_FALSE(dataset.info().chunk);
            std::vector<float> as_floats(5);
            dataset.read_rows({0, 5}, DType::f32, as_floats.data());
            CHECK(std::vector<double>(as_floats.begin(), as_floats.end()) == values);
        }
}

TEST_CASE("what is no number is refused by name", "[unit][io]") {
    const TempDir dir;
    add_strings(dir / "a.h5", "/names", {"one", "two"});
    add_compounds(dir / "a.h5", "/pairs", 2);
    const io::File file(dir / "a.h5", io::Access::read);
    REQUIRE_THAT(message_of([&] { file.open("/names"); }),
                 contains("a.h5:/names: expected numbers, found strings"));
    REQUIRE_THAT(message_of([&] { file.open("/pairs"); }),
                 contains("a.h5:/pairs: expected numbers, found compound"));
    REQUIRE_THAT(message_of([&] { file.open("/none"); }),
                 contains("a.h5:/none: expected a data set, found none"));
    REQUIRE_THAT(message_of([&] { file.open("/"); }), contains("found a group"));
}

TEST_CASE("files that are missing, damaged or something else are refused by path", "[unit][io]") {
    const TempDir dir;
    const auto open = [&](const std::string& name) {
        return message_of([&] { io::File(dir / name, io::Access::read); });
    };
    write_file(dir / "text.h5", "x,y\n1,2\n");
    write_file(dir / "empty.h5", "");
    add_dataset(dir / "cut.h5", "/x", Shape{1000}, std::vector<double>(1000, 1.0));
    const auto whole = fs::file_size(dir / "cut.h5");
    truncate_file(dir / "cut.h5", 0.6);
    REQUIRE_THAT(open("none.h5"), contains("none.h5: expected an HDF5 file, found no such file"));
    REQUIRE_THAT(open(""), contains("found a directory"));
    REQUIRE_THAT(open("text.h5"), contains("text.h5: expected an HDF5 file, found something else"));
    REQUIRE_THAT(open("empty.h5"), contains("empty.h5: expected an HDF5 file"));
    REQUIRE_THAT(open("cut.h5"),
                 contains("cut.h5: expected a file of " + std::to_string(whole) + " bytes, found " +
                          std::to_string(fs::file_size(dir / "cut.h5")) + " bytes: it is truncated"));
    try {
        io::File(dir / "none.h5", io::Access::read);
    } catch (const Error& error) {
        CHECK(error.status() == Status::bad_data);
    }
    REQUIRE_THAT(message_of([&] { io::File(dir / "no" / "such" / "a.h5", io::Access::create); }),
                 contains("a.h5: cannot be created: No such file or directory"));
}

TEST_CASE("a flat interval is written and read wherever it begins and ends", "[unit][io]") {
    const TempDir dir;
    const Shape shape = GENERATE(Shape{60}, Shape{12, 5}, Shape{3, 4, 5}, Shape{5, 1, 12}, Shape{2, 3, 2, 5});
    const std::int64_t transfer =
        GENERATE(std::int64_t{1} << 30, std::int64_t{28});  // in one piece, in pieces of seven
    const std::vector<std::int32_t> all = counted(60);
    for (std::int64_t begin = 0; begin <= 60; begin += 7)
        for (std::int64_t end = begin; end <= 60; end += 1 + (end % 3)) {
            const fs::path path = dir / "flat.h5";
            {
                io::File file(path, io::Access::create);
                file.limit_transfers(transfer);
                io::Dataset dataset = file.create("/group/v", DType::i32, shape);
                const std::vector<std::int32_t> zeros(60, 0);
                dataset.write_flat({0, 60}, DType::i32, zeros.data());
                dataset.write_flat({begin, end}, DType::i32, all.data() + begin);
            }
            std::vector<std::int32_t> expected(60, 0), found(60, -1), part(60, -1);
            std::copy(all.begin() + begin, all.begin() + end, expected.begin() + begin);
            io::File file(path, io::Access::read);
            file.limit_transfers(transfer);
            const io::Dataset dataset = file.open("/group/v");
            dataset.read_flat({0, 60}, DType::i32, found.data());
            REQUIRE(found == expected);
            dataset.read_flat({begin, end}, DType::i32, part.data());
            REQUIRE(std::equal(part.begin(), part.begin() + (end - begin), all.begin() + begin));
        }
}

TEST_CASE("intervals outside the data set are refused", "[unit][io]") {
    const TempDir dir;
    io::File file(dir / "a.h5", io::Access::create);
    io::Dataset dataset = file.create("/v", DType::f32, Shape{3, 2});
    float values[8] = {};
    REQUIRE_THAT(message_of([&] {
                     dataset.read_rows({2, 4}, DType::f32, values);
                 }),
                 contains("a.h5:/v: expected rows 2 to 4, found 3"));
    REQUIRE_THAT(message_of([&] {
                     dataset.write_flat({0, 7}, DType::f32, values);
                 }),
                 contains("expected elements 0 to 7, found 6"));
}

TEST_CASE("16-bit reals keep their bits and convert to float32", "[unit][io]") {
    const TempDir dir;
    const DType type = GENERATE(DType::f16, DType::bf16);
    const std::vector<float> values{1.5f, -2.0f, 0.0f, 96.0f};
    io::File file(dir / "a.h5", io::Access::create);
    io::Dataset dataset = file.create("/v", type, Shape{4});
    CHECK(dataset.info().dtype == type);
    dataset.write_rows({0, 4}, DType::f32, values.data());
    std::vector<std::uint16_t> bits(4);
    dataset.read_rows({0, 4}, type, bits.data());
    CHECK(bits[0] == (type == DType::f16 ? 0x3E00 : 0x3FC0));
    CHECK(bits[1] == 0xC000);
    dataset.write_rows({0, 4}, type, bits.data());
    std::vector<float> found(4);
    dataset.read_flat({0, 4}, DType::f32, found.data());
    CHECK(found == values);
}

TEST_CASE("a chunked data set grows along its rows and is read back compressed", "[unit][io]") {
    const TempDir dir;
    const std::vector<std::int32_t> values = counted(50);
    {
        io::File file(dir / "a.h5", io::Access::create);
        io::Dataset dataset = file.create("/v", DType::i32, Shape{0, 2}, 4, 6);
        dataset.write_rows({0, 7}, DType::i32, values.data());
        dataset.write_rows({7, 25}, DType::i32, values.data() + 14);
        file.flush();
        file.close();
    }
    const io::File file(dir / "a.h5", io::Access::read);
    const io::Dataset dataset = file.open("/v");
    CHECK(dataset.info().shape == Shape{25, 2});
    REQUIRE(dataset.info().chunk);
    CHECK(*dataset.info().chunk == Shape{4, 2});
    CHECK(dataset.info().compressed);
    std::vector<std::int32_t> found(50);
    dataset.read_rows({0, 25}, DType::i32, found.data());
    CHECK(found == values);
}

TEST_CASE("groups, attributes and texts come back as they were written", "[unit][io]") {
    const TempDir dir;
    {
        io::File file(dir / "a.h5", io::Access::create);
        file.create_group("/model/deep");
        file.create("/model/b", DType::f32, Shape{});
        file.create("/model/a", DType::f32, Shape{0, 3});
        file.set_attribute("/", "format", std::string("first"));
        file.set_attribute("/", "format", std::string("trireme ±"));
        file.set_attribute("/", "version", std::int64_t{-7});
        file.set_attribute("/model", "best", 0.25);
        file.set_attribute("/model", "empty", std::string());
        file.write_text("/config", "[run]\nseed = 1\n");
        file.write_text("/nothing", "");
        file.close();
    }
    io::File file(dir / "a.h5", io::Access::append);
    CHECK(file.children("/model") == std::vector<std::string>{"a", "b", "deep"});
    CHECK(file.children("/none").empty());
    CHECK(file.has("/model/a"));
    CHECK(file.has("/"));
    CHECK_FALSE(file.has("/model/none/deeper"));
    CHECK(file.is_dataset("/model/a"));
    CHECK_FALSE(file.is_dataset("/model"));
    CHECK(file.text_attribute("/", "format") == "trireme ±");
    CHECK(file.text_attribute("/model", "empty") == "");
    CHECK(file.int_attribute("/", "version") == -7);
    CHECK(file.real_attribute("/model", "best") == 0.25);
    CHECK_FALSE(file.int_attribute("/", "none"));
    CHECK_FALSE(file.int_attribute("/none", "none"));
    CHECK(file.read_text("/config") == "[run]\nseed = 1\n");
    CHECK(file.read_text("/nothing").empty());
    REQUIRE_THAT(message_of([&] { file.int_attribute("/", "format"); }),
                 contains("attribute format: expected numbers"));
    REQUIRE_THAT(message_of([&] { file.text_attribute("/", "version"); }),
                 contains("attribute version: expected one text"));
    float value = 2;
    file.open("/model/b").write_flat({0, 1}, DType::f32, &value);
    file.open("/model/b").read_flat({0, 1}, DType::f32, &value);
    CHECK(value == 2);
}

TEST_CASE("a read-only directory and a file in use can be read", "[unit][io]") {
    const TempDir dir;
    add_dataset(dir / "sub.h5", "/x", Shape{3}, {1, 2, 3});
    fs::permissions(dir / "sub.h5", fs::perms::owner_read);
    fs::permissions(dir.path(), fs::perms::owner_read | fs::perms::owner_exec);
    const io::File one(dir / "sub.h5", io::Access::read);
    const io::File two(dir / "sub.h5", io::Access::read);
    CHECK(one.open("/x").info().shape == two.open("/x").info().shape);
    fs::permissions(dir.path(), fs::perms::owner_all);
}

TEST_CASE("patterns give sorted paths without repetition", "[unit][io]") {
    const TempDir dir;
    for (const char* name : {"b-1.h5", "b-0.h5", "a.h5", "c.txt"}) write_file(dir / name, "");
    const std::string folder = dir.path().string() + "/";
    CHECK(io::glob_paths(folder + "b-*.h5, " + folder + "*.h5") ==
          std::vector<std::string>{folder + "a.h5", folder + "b-0.h5", folder + "b-1.h5"});
    CHECK(io::glob_paths(folder + "none-*.h5").empty());
    CHECK(io::glob_paths("").empty());
}
