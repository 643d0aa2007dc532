// import and info as commands: options, what they print, statuses.
#include "support/catch.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/data_files.hpp"
#include "support/process.hpp"

using namespace trireme::testing;

namespace {

/// Twenty rows of four columns and a label, with a header line.
std::string csv() {
    std::string text = "a,b,c,d,kind\n";
    for (int row = 0; row < 20; ++row) {
        for (int column = 0; column < 4; ++column) text += std::to_string(row + column) + ",";
        text += std::to_string(row % 3) + "\n";
    }
    return text;
}

struct Workplace {
    TempDir dir;

    Workplace() { write_file(dir / "table.csv", csv()); }
    Result run(const std::vector<std::string>& args, int ranks = 0) const {
        return trireme::testing::trireme(ranks, args, {.timeout = 60, .env = {}, .cwd = dir.path()});
    }
    nlohmann::json info(const std::vector<std::string>& args, int ranks = 0) const {
        std::vector<std::string> words = {"info", "--json"};
        words.insert(words.end(), args.begin(), args.end());
        const Result result = run(words, ranks);
        INFO(result.out << result.err);
        REQUIRE(result.status == 0);
        return nlohmann::json::parse(result.out);
    }
};

void check_refused(const std::vector<std::string>& args, const std::string& message, int status = 2) {
    const Workplace place;
    const Result result = place.run(args);
    INFO(result.out << result.err);
    CHECK(result.status == status);
    CHECK_THAT(result.err, contains(message));
    CHECK_FALSE(std::filesystem::exists(place.dir / "out"));
}

}  // namespace

TEST_CASE("import says what it wrote and what comes next", "[cli-import]") {
    const Workplace place;
    const Result result = place.run({"import", "table.csv", "--output=out", "--split=0.8,0.2", "--shards=2",
                                     "--shape=1,2,2", "--dtype", "u8", "--label", "kind"});
    INFO(result.out << result.err);
    REQUIRE(result.status == 0);
    CHECK_THAT(result.out, contains("16 rows  2 files  out/train-*.h5"));
    CHECK_THAT(result.out, contains("4 rows  2 files  out/valid-*.h5"));
    CHECK_THAT(result.out, contains("each sample 1x2x2 uint8, labels"));
    CHECK_THAT(result.out, contains("of 3 classes"));
    CHECK_THAT(result.out,
               contains("next: trireme train --data.train='out/train-*.h5' --data.valid='out/valid-*.h5'"));

    const auto train = place.info({"out/train-*.h5"});
    const auto valid = place.info({"out/valid-000.h5", "out/valid-001.h5"});
    CHECK(train["rows"] == 16);
    CHECK(train["files"].size() == 2);
    CHECK(train["sample"] == std::vector<int>{1, 2, 2});
    CHECK(train["x_type"] == "uint8");
    CHECK(train["x"]["max"].get<double>() <= 22);
    int labels[3] = {0, 0, 0};
    for (int label = 0; label < 3; ++label)
        for (const auto& part : {train, valid})
            labels[label] += part["labels"].value(std::to_string(label), 0);
    CHECK(labels[0] == 7);
    CHECK(labels[1] == 7);
    CHECK(labels[2] == 6);
}

TEST_CASE("import and info do their work once on several ranks", "[cli-import]") {
    const Workplace place;
    const Result result = place.run({"import", "table.csv", "--output=out", "--name=test"}, 2);
    INFO(result.out << result.err);
    REQUIRE(result.status == 0);
    CHECK(result.out.find("20 rows") == result.out.rfind("20 rows"));
    CHECK_THAT(result.out, contains("out/test-000.h5"));
    const auto info = place.info({"out"}, 2);
    CHECK(info["rows"] == 20);
    CHECK(info["labels"]["0"] == 7);

    const Result missing = place.run({"import", "missing.csv", "--output=other"}, 2);
    CHECK(missing.status == 3);
    CHECK_THAT(missing.err, contains("missing.csv"));
    CHECK(missing.err.find("trireme: error: ") == missing.err.rfind("trireme: error: "));
}

TEST_CASE("info describes data for a person", "[cli-import]") {
    const Workplace place;
    REQUIRE(place.run({"import", "table.csv", "--output=out", "--chunk-rows=8", "--deflate=1"}).status == 0);
    const Result info = place.run({"info", "out/train-000.h5"});
    INFO(info.out << info.err);
    CHECK(info.status == 0);
    for (const char* part : {"20 in 1 file", "float32, 0 to 22", "3 labels", "35.00 %"})
        CHECK_THAT(info.out, contains(part));

    const TempDir real;
    write_samples(real / "real.h5", {.sample = {2}, .x = {1, 2, 3, 4}, .y = {0.5, 1.5}, .targets = 0}, {},
                  {trireme::DType::f32});
    const auto targets = place.info({(real / "real.h5").string()});
    CHECK(targets["y"]["mean"] == 1.0);
    CHECK_FALSE(targets.contains("labels"));
}

TEST_CASE("info describes this build", "[cli-import]") {
    const Result text = trireme::testing::trireme(0, {"info"});
    CHECK(text.status == 0);
    for (const char* part : {"trireme ", "MPI", "oneDNN", "processor", "threads"})
        CHECK_THAT(text.out, contains(part));
    const auto build = nlohmann::json::parse(trireme::testing::trireme(0, {"info", "--json"}).out);
    CHECK(build["kind"] == "build");
    if (std::getenv("TRIREME_BUILT_PLUGIN") == nullptr)
        CHECK(build["cuda"].is_null());
    else
        CHECK_THAT(build["cuda"].get<std::string>(), contains(" for sm_"));
}

TEST_CASE("wrong imports are refused by name", "[cli-import]") {
    check_refused({"import"}, "`trireme import`: an argument is missing; usage: trireme import INPUT");
    check_refused({"import", "table.csv"}, "`trireme import` needs --output=DIR");
    check_refused({"import", "table.csv", "--output=out", "--shard=2"},
                  "unknown option --shard; did you mean --shards?");
    check_refused({"import", "table.csv", "--output=out", "--shards=0"}, "--shards=0: expected an integer");
    check_refused({"import", "table.csv", "--output=out", "--split=0.8,0.4"},
                  "--split=0.8,0.4: expected fractions");
    check_refused({"import", "table.csv", "--output=out", "--split=0.8,x"},
                  "--split=0.8,x: expected fractions");
    check_refused({"import", "table.csv", "--output=out", "--shape=2xx"}, "--shape=2xx: expected");
    check_refused({"import", "table.csv", "--output=out", "--dtype=f16"}, "--dtype=f16: expected");
    check_refused({"import", "table.csv", "--output=out", "--kind=png"}, "--kind=png: expected");
    check_refused({"import", "table.csv", "--output=out", "--deflate=1"}, "--chunk-rows");
    check_refused({"import", "table.csv", "--output=out", "--train.batch=1"}, "unknown option --train.batch");
    check_refused({"import", "missing.csv", "--output=out"}, "missing.csv", 3);
    check_refused({"info", "missing.h5"}, "missing.h5", 3);
    check_refused({"info", "table.csv"}, "table.csv", 3);
}
