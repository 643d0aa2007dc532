// Importers: what foreign files become, and what is said of those that are not right.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/data_files.hpp"
#include "support/process.hpp"
#include "trireme/base/error.hpp"
#include "trireme/data/import.hpp"

using namespace trireme;
using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

using Values = std::vector<double>;

struct Case {
    TempDir dir;
    ImportOptions options;

    Case() { options.output = (dir / "out").string(); }
    ImportResult run(const std::string& content, const std::string& name = "in.csv") {
        write_file(dir / name, content);
        options.inputs = {(dir / name).string()};
        return import_data(options);
    }
    std::string refused(const std::string& content, Status status = Status::bad_data) {
        try {
            run(content);
        } catch (const Error& error) {
            CHECK(error.status() == status);
            CHECK((!fs::exists(options.output) || fs::is_empty(options.output)));
            return error.what();
        }
        return "no error";
    }
    Values x(const std::string& file = "train-000.h5") {
        return read_values(fs::path(options.output) / file, "/x");
    }
    Values y(const std::string& file = "train-000.h5") {
        return read_values(fs::path(options.output) / file, "/y");
    }
    std::vector<std::string> files() const {
        std::vector<std::string> names;
        for (const auto& entry : fs::directory_iterator(options.output))
            names.push_back(entry.path().filename().string());
        std::sort(names.begin(), names.end());
        return names;
    }
};

std::string numbered_csv(int rows) {
    std::string text;
    for (int i = 0; i < rows; ++i)
        text += std::to_string(i) + "," + std::to_string(2 * i) + "," + std::to_string(i % 3) + "\n";
    return text;
}

}  // namespace

TEST_CASE("a CSV file becomes rows of float32 and integer labels", "[unit][data]") {
    Case it;
    const ImportResult result = it.run("1,2.5,0\n-3,4e2,2\n");
    CHECK(it.x() == Values{1, 2.5, -3, 400});
    CHECK(it.y() == Values{0, 2});
    CHECK(result.sample == Shape{2});
    CHECK(result.x_type == "float32");
    CHECK(result.y_type == "int32");
    CHECK(result.classes == 3);
    REQUIRE(result.parts.size() == 1);
    CHECK(result.parts[0].rows == 2);
    CHECK(result.parts[0].files == std::vector<std::string>{it.options.output + "/train-000.h5"});
}

TEST_CASE("headers, quotes, separators, blank lines and line ends are as programs write them",
          "[unit][data]") {
    Case it;
    const std::string text =
        GENERATE("a,b,c\n1,2,3\n4,5,6\n", "a,b,c\r\n1,2,3\r\n\r\n4,5,6", "a;b;c\n1;2;3\n4;5;6\n",
                 "a\tb\tc\n1\t2\t3\n4\t5\t6\n", "\"a\",\"b, \"\"two\"\"\",c\n\"1\",2,\"3\"\n\n 4 , 5, 6 \n",
                 "\xEF\xBB\xBF"
                 "a,b,c\n1,2,3\n4,5,6\n",
                 "\"a\nline\",b,c\n1,2,3\n\n\n4,5,6\n", "1,2,3\n4,5,6");
    it.run(text);
    CHECK(it.x() == Values{1, 2, 4, 5});
    CHECK(it.y() == Values{3, 6});
}

TEST_CASE("blanks separate when asked to", "[unit][data]") {
    Case it;
    it.options.separator = "space";
    it.run("  1   2 3\n4 5\t6  \n");
    CHECK(it.x() == Values{1, 2, 4, 5});
    CHECK(it.y() == Values{3, 6});
}

TEST_CASE("the label column is found by name, index or place", "[unit][data]") {
    Case it;
    const auto [label, expected] =
        GENERATE(std::pair<std::string, double>{"b", 2}, std::pair<std::string, double>{"0", 1},
                 std::pair<std::string, double>{"-1", 3}, std::pair<std::string, double>{"last", 3});
    it.options.label = label;
    it.run("a,b,c\n1,2,3\n");
    CHECK(it.y() == Values{expected});
    CHECK(it.x().size() == 2);
}

TEST_CASE("without a label there is no y", "[unit][data]") {
    Case it;
    it.options.label = "none";
    const ImportResult result = it.run("1,2\n3,4\n");
    CHECK(it.x() == Values{1, 2, 3, 4});
    CHECK(result.y_type == "none");
    CHECK_THROWS(it.y());
}

TEST_CASE("labels with a point are real targets, large ones 64-bit", "[unit][data]") {
    Case it;
    CHECK(it.run("1,2.5\n1,3\n").y_type == "float32");
    CHECK(it.y() == Values{2.5, 3});
    const ImportResult large = it.run("1,5000000000\n1,3\n");
    CHECK(large.y_type == "int64");
    CHECK(large.classes == 0);
    CHECK(it.y() == Values{5e9, 3});
    CHECK(it.run("1,-2\n1,3\n").classes == 0);
}

TEST_CASE("columns take a shape and a type", "[unit][data]") {
    Case it;
    it.options.shape = Shape{1, 2, 2};
    it.options.dtype = "uint8";
    CHECK(it.run("1,2,3,255,0\n").x_type == "uint8");
    CHECK(read_shape(fs::path(it.options.output) / "train-000.h5", "/x") == Shape{1, 1, 2, 2});
    CHECK(it.x() == Values{1, 2, 3, 255});
}

TEST_CASE("CSV files that are not right are refused with file, line and column", "[unit][data]") {
    Case it;
    REQUIRE_THAT(it.refused(""), contains("in.csv: expected rows of numbers, found an empty file"));
    REQUIRE_THAT(it.refused("\n\n"), contains("in.csv: expected rows of numbers, found an empty file"));
    REQUIRE_THAT(it.refused("a,b\n"), contains("in.csv: expected rows of numbers, found only a header"));
    REQUIRE_THAT(it.refused("a,b\n1,2\n3\n"), contains("in.csv line 3: expected 2 columns, found 1"));
    REQUIRE_THAT(it.refused("a,b\n1,2\n,4\n"),
                 contains("in.csv line 3, column a: expected a number, found an empty cell"));
    REQUIRE_THAT(it.refused("1,2\n3,x\n"), contains("in.csv line 2, column 1: expected a number, found 'x'"));
    REQUIRE_THAT(it.refused("1,2\nnan,3\n"), contains("line 2, column 0: expected a number, found 'nan'"));
    REQUIRE_THAT(it.refused("1,2\n\n\"3,4\n"),
                 contains("in.csv line 3: expected a closing quote, found none"));
    REQUIRE_THAT(it.refused("1,2\n\"3\"4,5\n"),
                 contains("in.csv line 2: expected a separator after a closing quote"));
    it.options.header = "no";
    REQUIRE_THAT(it.refused("a,b\n1,2\n"), contains("in.csv line 1, column 1: expected a number, found 'b'"));
    it.options.header = "auto";
    it.options.dtype = "uint8";
    REQUIRE_THAT(it.refused("1,0\n256,0\n"),
                 contains("line 2, column 0: expected a whole number from 0 to 255, found '256'"));
    REQUIRE_THAT(it.refused("1,0\n1.5,0\n"), contains("found '1.5'"));
}

TEST_CASE("options that contradict the input are wrong usage", "[unit][data]") {
    Case it;
    it.options.label = "colour";
    REQUIRE_THAT(it.refused("a,color\n1,2\n", Status::bad_usage), contains("did you mean 'color'?"));
    it.options.label = "2";
    REQUIRE_THAT(it.refused("1,2\n", Status::bad_usage), contains("its index below 2"));
    it.options.label = "last";
    it.options.shape = Shape{2, 2};
    REQUIRE_THAT(it.refused("1,2,3\n", Status::bad_usage),
                 contains("expected extents that hold 2 values, found 2x2, which hold 4"));
    it.options.shape = Shape{};
    it.options.split = {0.5, 0.4};
    REQUIRE_THAT(it.refused("1,2\n", Status::bad_usage),
                 contains("split: expected fractions with the sum 1, found 0.9"));
    it.options.split = {};
    it.options.kind = "parquet";
    REQUIRE_THAT(it.refused("1,2\n", Status::bad_usage), contains("kind: expected auto, csv, idx or text"));
}

TEST_CASE("a missing input is named", "[unit][data]") {
    Case it;
    it.options.inputs = {(it.dir / "none.csv").string()};
    REQUIRE_THROWS_WITH(import_data(it.options), contains("none.csv: cannot be opened: No such file"));
}

TEST_CASE("gzip files are read as they are, cut ones refused", "[unit][data]") {
    Case it;
    const std::string text = numbered_csv(50000), packed = gzip_bytes(text);
    it.run(packed, "in.csv.gz");
    const Values x = it.x();
    CHECK(x.size() == 100000);
    CHECK(x[99999] == 99998);
    fs::remove_all(it.options.output);
    for (const double part : {0.3, 0.9}) {
        const auto size = static_cast<std::size_t>(static_cast<double>(packed.size()) * part);
        REQUIRE_THAT(it.refused(packed.substr(0, size)),
                     contains("in.csv: expected a whole gzip file, found a truncated one"));
    }
    REQUIRE_THAT(it.refused(packed.substr(0, packed.size() - 3)), contains("truncated"));
}

TEST_CASE("several files with the same columns are one table", "[unit][data]") {
    Case it;
    write_file(it.dir / "a.csv", "p,q\n1,0\n2,1\n");
    write_file(it.dir / "b.csv", "p,q\n3,2\n");
    write_file(it.dir / "c.csv", "p,r\n3,2\n");
    it.options.inputs = {(it.dir / "a.csv").string(), (it.dir / "b.csv").string()};
    CHECK(import_data(it.options).classes == 3);
    CHECK(it.x() == Values{1, 2, 3});
    it.options.inputs[1] = (it.dir / "c.csv").string();
    REQUIRE_THROWS_WITH(import_data(it.options), contains("c.csv: expected the same header as in "));
}

TEST_CASE("a split holds every row once, by seed, in the order of the input", "[unit][data]") {
    Case it;
    it.options.split = {0.8, 0.1, 0.1};
    it.options.shards = 3;
    const auto rows_of = [&](const ImportedPart& part) {
        Values all;
        for (const std::string& file : part.files)
            for (const double y : read_values(file, "/x")) all.push_back(y);
        Values first;
        for (std::size_t i = 0; i < all.size(); i += 2) first.push_back(all[i]);
        return first;
    };
    const ImportResult result = it.run(numbered_csv(101));
    REQUIRE(result.parts.size() == 3);
    CHECK(result.parts[0].rows == 81);
    CHECK(result.parts[1].rows == 10);
    CHECK(result.parts[2].rows == 10);
    Values all;
    for (const ImportedPart& part : result.parts) {
        const Values rows = rows_of(part);
        CHECK(static_cast<std::int64_t>(rows.size()) == part.rows);
        CHECK(std::is_sorted(rows.begin(), rows.end()));
        all.insert(all.end(), rows.begin(), rows.end());
    }
    const Values valid = rows_of(result.parts[1]);
    std::sort(all.begin(), all.end());
    Values expected;
    for (int i = 0; i < 101; ++i) expected.push_back(i);
    CHECK(all == expected);
    CHECK(rows_of(it.run(numbered_csv(101)).parts[1]) == valid);
    it.options.seed = 2;
    CHECK(rows_of(it.run(numbered_csv(101)).parts[1]) != valid);
}

TEST_CASE("shards are even, may be empty, and replace those of an earlier import", "[unit][data]") {
    Case it;
    it.options.shards = 5;
    it.run(numbered_csv(3));
    CHECK(it.files() == std::vector<std::string>{"train-000.h5", "train-001.h5", "train-002.h5",
                                                 "train-003.h5", "train-004.h5"});
    CHECK(it.x("train-001.h5") == Values{1, 2});
    CHECK(it.x("train-004.h5").empty());
    write_file(fs::path(it.options.output) / "train-notes.h5", "");
    it.options.shards = 2;
    it.run(numbered_csv(7));
    CHECK(it.files() == std::vector<std::string>{"train-000.h5", "train-001.h5", "train-notes.h5"});
    CHECK(it.x("train-000.h5").size() == 8);
    CHECK(it.x("train-001.h5").size() == 6);
}

TEST_CASE("chunks and compression change how values lie, not what they are", "[unit][data]") {
    Case it;
    it.run(numbered_csv(1000));
    const Values x = it.x(), y = it.y();
    it.options.chunk_rows = 64;
    it.options.deflate = GENERATE(0, 5);
    it.run(numbered_csv(1000));
    CHECK(it.x() == x);
    CHECK(it.y() == y);
}

TEST_CASE("an import that fails leaves the earlier files as they were", "[unit][data]") {
    Case it;
    it.run(numbered_csv(5));
    const Values x = it.x();
    REQUIRE_THROWS(it.run("1,2,0\n3,x,1\n"));
    CHECK(it.files() == std::vector<std::string>{"train-000.h5"});
    CHECK(it.x() == x);
}

TEST_CASE("IDX images get their channel and labels stay whole numbers", "[unit][data]") {
    Case it;
    write_file(it.dir / "images", idx_bytes({3, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 255}));
    write_file(it.dir / "labels.gz", gzip_bytes(idx_bytes({3}, {7, 0, 9})));
    it.options.inputs = {(it.dir / "images").string(), (it.dir / "labels.gz").string()};
    const ImportResult result = import_data(it.options);
    CHECK(result.sample == Shape{1, 2, 2});
    CHECK(result.x_type == "uint8");
    CHECK(result.classes == 10);
    CHECK(it.x() == Values{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 255});
    CHECK(it.y() == Values{7, 0, 9});
    it.options.dtype = "float32";
    CHECK(import_data(it.options).x_type == "float32");
    CHECK(it.x()[11] == 255);
}

TEST_CASE("IDX elements of several bytes are big-endian", "[unit][data]") {
    Case it;
    const auto [code, bytes, expected] =
        GENERATE(std::tuple<char, std::string, double>{'\x0B', "\xFF\xFE", -2},
                 std::tuple<char, std::string, double>{'\x0C', std::string("\x00\x01\x00\x02", 4), 65538},
                 std::tuple<char, std::string, double>{'\x0D', std::string("\x3F\xC0\x00\x00", 4), 1.5},
                 std::tuple<char, std::string, double>{'\x0E', std::string("\x3F\xF8\0\0\0\0\0\0", 8), 1.5},
                 std::tuple<char, std::string, double>{'\x09', "\xFF", -1});
    write_file(it.dir / "x", std::string{'\0', '\0', code, '\x01', '\0', '\0', '\0', '\x01'} + bytes);
    it.options.inputs = {(it.dir / "x").string()};
    it.options.label = "none";
    import_data(it.options);
    CHECK(it.x() == Values{expected});
}

TEST_CASE("IDX files that are not right are refused by name", "[unit][data]") {
    Case it;
    const std::string images = idx_bytes({3, 2, 2}, std::vector<std::uint8_t>(12, 1));
    const auto refused = [&](const std::string& x, const std::string& y) -> std::string {
        write_file(it.dir / "x", x);
        write_file(it.dir / "y", y);
        it.options.kind = "idx";
        it.options.inputs = {(it.dir / "x").string(), (it.dir / "y").string()};
        try {
            import_data(it.options);
        } catch (const Error& error) {
            CHECK((!fs::exists(it.options.output) || fs::is_empty(it.options.output)));
            return error.what();
        }
        return "no error";
    };
    const std::string labels = idx_bytes({3}, {1, 2, 3});
    REQUIRE_THAT(refused(images, idx_bytes({2}, {1, 2})),
                 contains("/y: expected 3 labels as there are images in "));
    REQUIRE_THAT(refused(images, idx_bytes({3}, {1, 2})), contains("/y: expected 3 rows, found only 2"));
    REQUIRE_THAT(refused(images.substr(0, 20), labels), contains("/x: expected 3 rows, found only 1"));
    REQUIRE_THAT(refused(images + "a", labels), contains("/x: expected 3 rows, found more data"));
    REQUIRE_THAT(refused("1,2,3\n", labels), contains("/x: expected an IDX file, found something else"));
    REQUIRE_THAT(refused(labels, images), contains("/y: expected labels [n], found 3x2x2"));
    REQUIRE_THAT(refused(gzip_bytes(images).substr(0, 25), labels),
                 contains("/x: expected a whole gzip file"));
}

TEST_CASE("MNIST's own files are imported", "[unit][data]") {
    const fs::path folder = shared_dir() / "data" / "mnist10k";
    if (shared_dir().empty() || !fs::exists(folder)) return;
    Case it;
    it.options.inputs = {(folder / "t10k-images-idx3-ubyte.gz").string(),
                         (folder / "t10k-labels-idx1-ubyte.gz").string()};
    const ImportResult result = import_data(it.options);
    CHECK(result.classes == 10);
    CHECK(read_shape(fs::path(it.options.output) / "train-000.h5", "/x") == Shape{10000, 1, 28, 28});
    CHECK(read_shape(fs::path(it.options.output) / "train-000.h5", "/y") == Shape{10000});
    CHECK(it.y()[0] == 7);
}
