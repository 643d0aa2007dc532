// Continuing a text with a saved model.
#include "support/catch.hpp"
#include "support/runs.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

Result generate(int ranks, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"generate"};
    words.insert(words.end(), more.begin(), more.end());
    return trireme::testing::trireme(ranks, words);
}

}  // namespace

TEST_CASE("a model that has learned a line by heart says it, on any number of ranks", "[cli-generate]") {
    const TempDir folder;
    std::string text;
    for (int i = 0; i < 60; ++i) text += "abcdefgh.";
    write_file(folder / "text.txt", text);
    REQUIRE(trireme::testing::trireme(
                0, {"import", folder / "text.txt", "--output=" + (folder / "data").string()})
                .status == 0);
    const Run run(folder / "run", {{"data.train", folder / "data/train-*.h5"},
                                   {"model.arch", "gpt"},
                                   {"model.layers", "1"},
                                   {"model.d_model", "32"},
                                   {"model.heads", "2"},
                                   {"model.context", "10"},
                                   {"train.batch", "8"},
                                   {"train.max_steps", "120"},
                                   {"optim.lr", "0.01"},
                                   {"run.threads", "1"}});
    run.expect(0, 0);
    const std::string dir = run.dir().string();
    // Longer than the context, from a prompt shorter than it.
    const std::vector<std::string> likeliest = {dir, "--prompt=ab", "--tokens=25", "--temperature=0"};
    for (const int ranks : {0, 2}) {
        const Result result = generate(ranks, likeliest);
        INFO(result.err);
        REQUIRE(result.status == 0);
        REQUIRE(result.out == "abcdefgh.abcdefgh.abcdefgh.\n");
    }
    const std::vector<std::string> drawn = {dir, "--prompt=c", "--tokens=30", "--temperature=3", "--seed=7"};
    const std::string once = generate(0, drawn).out;
    REQUIRE(once.size() == 32);
    REQUIRE(generate(0, drawn).out == once);
    std::vector<std::string> other = drawn;
    other.back() = "--seed=8";
    REQUIRE(generate(0, other).out != once);
    other.push_back("--top_k=1");
    REQUIRE(generate(0, other).out == "cdefgh.abcdefgh.abcdefgh.abcdef\n");

    const Result foreign = generate(0, {dir, "--prompt=~"});
    CHECK(foreign.status == 3);
    CHECK_THAT(foreign.err, contains("token 126"));
    for (const char* option : {"--tokens=-1", "--temperature=nan"}) {
        const Result wrong = generate(0, {dir, option});
        CHECK(wrong.status == 2);
        CHECK_THAT(wrong.err, contains(option));
    }
}

TEST_CASE("a model of samples cannot continue a text", "[cli-generate]") {
    const TempDir folder;
    write_samples(folder / "data.h5", clusters(20, Shape{4}, 3));
    const Run run(folder / "run", {{"data.train", folder / "data.h5"}, {"train.max_steps", "1"}});
    run.expect(0, 0);
    const Result result = generate(0, {run.dir().string(), "--prompt=a"});
    CHECK(result.status == 3);
    CHECK_THAT(result.err, contains("model of tokens"));
}
