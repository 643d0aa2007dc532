// Tokens as users meet them: a text imported, described, and what is said where they do not belong.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/data_files.hpp"
#include "support/process.hpp"

using namespace trireme::testing;

namespace {

/// 1000 bytes of which the largest is 'z'.
std::string text() {
    std::string text;
    for (int i = 0; i < 1000; ++i) text.push_back(i % 50 == 49 ? '\n' : static_cast<char>('a' + i % 26));
    return text;
}

struct Workplace {
    TempDir dir;

    Workplace() { write_file(dir / "text.txt", text()); }
    Result run(const std::vector<std::string>& args, int ranks = 0) const {
        return trireme::testing::trireme(ranks, args, {.timeout = 60, .env = {}, .cwd = dir.path()});
    }
    std::string tokens(const std::string& file) const {
        std::string found;
        for (const double value : read_values(dir / file, "/tokens"))
            found.push_back(static_cast<char>(value));
        return found;
    }
    void check_refused(const std::vector<std::string>& args, const std::string& message,
                       int status = 2) const {
        const Result result = run(args);
        INFO(result.out << result.err);
        CHECK(result.status == status);
        CHECK_THAT(result.err, contains(message));
    }
};

}  // namespace

TEST_CASE("a text becomes tokens, its first part to train", "[cli-tokens]") {
    const Workplace place;
    const Result result =
        place.run({"import", "text.txt", "--kind=text", "--output=out", "--split=0.9,0.1", "--shards=2"});
    INFO(result.out << result.err);
    REQUIRE(result.status == 0);
    CHECK_THAT(result.out, contains("900 tokens  2 files  out/train-*.h5"));
    CHECK_THAT(result.out, contains("100 tokens  2 files  out/valid-*.h5"));
    CHECK_THAT(result.out, contains("each token a byte, the largest 122"));
    CHECK_THAT(result.out, contains("--data.valid='out/valid-*.h5' --model.arch=gpt"));
    CHECK(place.tokens("out/train-000.h5") + place.tokens("out/train-001.h5") == text().substr(0, 900));
    CHECK(place.tokens("out/valid-000.h5") + place.tokens("out/valid-001.h5") == text().substr(900));
}

TEST_CASE("a compressed text is known by its name", "[cli-tokens]") {
    const Workplace place;
    write_file(place.dir / "text.txt.gz", gzip_bytes(text()));
    const Result result = place.run({"import", "text.txt.gz", "--output=out"}, 2);
    INFO(result.out << result.err);
    REQUIRE(result.status == 0);
    CHECK(place.tokens("out/train-000.h5") == text());
}

TEST_CASE("info counts tokens and windows", "[cli-tokens]") {
    const Workplace place;
    REQUIRE(place.run({"import", "text.txt", "--output=out", "--shards=3"}).status == 0);
    const Result person = place.run({"info", "out", "--context=64"});
    INFO(person.out << person.err);
    CHECK(person.status == 0);
    for (const char* part : {"1,000 in 3 files", "uint8, the largest 122", "16 of 64 tokens", "334 tokens"})
        CHECK_THAT(person.out, contains(part));
    const Result plain = place.run({"info", "out/train-*.h5"});
    CHECK(plain.out.find("windows") == std::string::npos);

    const Result machine = place.run({"info", "--json", "out", "--context=1000"}, 2);
    INFO(machine.out << machine.err);
    REQUIRE(machine.status == 0);
    const auto info = nlohmann::json::parse(machine.out);
    CHECK(info["kind"] == "tokens");
    CHECK(info["tokens"] == 1000);
    CHECK(info["type"] == "uint8");
    CHECK(info["largest"] == 122);
    CHECK(info["context"] == 1000);
    CHECK(info["windows"] == 1);
    CHECK(info["files"].size() == 3);
    CHECK(info["files"][0]["tokens"] == 334);
}

TEST_CASE("wrong imports of texts are refused by name", "[cli-tokens]") {
    const Workplace place;
    write_file(place.dir / "empty.txt", "");
    place.check_refused({"import", "text.txt", "--output=out", "--dtype=float32"},
                        "dtype: expected uint8 for text");
    place.check_refused({"import", "text.txt", "--output=out", "--shape=2,2"},
                        "shape: expected none for text");
    place.check_refused({"import", "empty.txt", "--output=out"},
                        "empty.txt: expected text, found an empty file", 3);
    place.check_refused({"import", "none.txt", "--output=out"}, "none.txt: cannot be opened", 3);
    std::string damaged = gzip_bytes(text());
    damaged.resize(damaged.size() / 2);
    write_file(place.dir / "damaged.txt.gz", damaged);
    place.check_refused({"import", "damaged.txt.gz", "--output=out"},
                        "damaged.txt.gz: expected a whole gzip file, found a truncated one", 3);
    CHECK_FALSE(std::filesystem::exists(place.dir / "out"));
    place.check_refused({"info", "text.txt", "--context=0"}, "--context=0: expected an integer");
}

TEST_CASE("what does not go with tokens is refused by name", "[cli-tokens]") {
    const Workplace place;
    REQUIRE(place.run({"import", "text.txt", "--output=out"}).status == 0);
    const auto train = [&](const std::vector<std::string>& keys, const std::string& message) {
        std::vector<std::string> args = {"train", "--data.train=out/*.h5", "--train.epochs=1"};
        args.insert(args.end(), keys.begin(), keys.end());
        place.check_refused(args, message);
    };
    train({}, "model.arch=mlp takes samples, but out/train-000.h5 holds tokens");
    train({"--model.layer=linear out=classes"},
          "layer = linear out=classes takes samples, but out/train-000.h5 holds tokens");
    const std::string held = ", but out/train-000.h5 holds tokens";
    train({"--data.normalize=unit"}, "data.normalize=unit: expected none" + held);
    train({"--data.kind=tokens", "--data.augment=flip"}, "data.augment=flip: expected none" + held);
    train({"--model.loss=mse"}, "model.loss=mse: expected cross_entropy" + held);
    train({"--model.context=0"}, "model.context=0");
    place.check_refused({"train", "--data.train=out/*.h5", "--train.epochs=1", "--data.kind=samples"},
                        "out/train-000.h5:/x: expected a data set, found none", 3);
}
