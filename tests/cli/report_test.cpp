// report: one page about runs, made from what they left behind.
#include "support/catch.hpp"
#include "support/markup.hpp"
#include "support/runs.hpp"

using namespace trireme;
using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

Result report(const std::vector<std::string>& arguments, int status = 0, int ranks = 0) {
    std::vector<std::string> words = {"report"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    const Result result = trireme::testing::trireme(ranks, words);
    INFO(result.out << result.err);
    REQUIRE(result.status == status);
    return result;
}

/// Nothing is fetched from anywhere.
void require_whole(const std::string& page) {
    REQUIRE(markup_fault(page) == "");
    for (const char* outside : {"http:", "https:", "src=", "href=", "url(", "@import", "fetch(", "import("})
        REQUIRE(page.find(outside) == std::string::npos);
    REQUIRE_THAT(page, contains("prefers-color-scheme: dark"));
    REQUIRE_THAT(page, contains("name=\"viewport\""));
}

}  // namespace

TEST_CASE("two runs side by side: curves, best values, differences", "[cli-report]") {
    const TempDir folder;
    write_samples(folder / "train.h5", clusters(40, Shape{4}, 3));
    write_samples(folder / "valid.h5", clusters(20, Shape{4}, 3, 2));
    const Run slow(folder / "slow", {{"data.train", folder / "train.h5"},
                                     {"data.valid", folder / "valid.h5"},
                                     {"train.batch", "8"},
                                     {"train.epochs", "3"},
                                     {"optim.lr", "0.0005"}});
    const Run fast = slow.at(folder / "fast").with({{"optim.lr", "0.01"}, {"schedule.name", "cosine"}});
    slow.expect(0, 2);
    fast.expect(0);
    const std::string output = folder / "new/page.html";
    const Result result = report({slow.dir(), fast.dir().string() + ".ini", "--output=" + output});
    CHECK_THAT(result.out, contains("2 runs in " + output));
    const std::string page = read_file(output);
    require_whole(page);
    for (const char* part :
         {"<h2>Loss</h2>", "<h2>Accuracy</h2>", "<h2>Learning rate</h2>", "<h2>Gradient norm</h2>",
          "<h2>Throughput</h2>", "Where the time of the steps goes", "<svg ", "slow", "fast"})
        CHECK_THAT(page, contains(part));
    CHECK_THAT(page, contains("optim.<wbr>lr</td><td>0.0005</td><td>0.01</td>"));
    CHECK_THAT(page, contains("schedule.<wbr>name</td><td>constant</td><td>cosine</td>"));
    CHECK(page.find("train.<wbr>batch") == std::string::npos);  // the same in both
    CHECK(page.find("run.<wbr>dir") == std::string::npos);
    CHECK_THAT(page, contains("<td>2 × 1</td>"));
    // The curves hold what the lines say.
    for (const Run* run : {&slow, &fast}) {
        const std::vector<double> loss = run->column("step", "loss");
        CHECK(loss.size() == 15);
        const std::vector<double> accuracy = run->column("valid", "accuracy");
        const double best = *std::max_element(accuracy.begin(), accuracy.end());
        char text[32];
        std::snprintf(text, sizeof text, "%.2f %%", 100 * best);
        CHECK_THAT(page, contains(text));
        std::snprintf(text, sizeof text, "\"y\":[%.4g", loss.front());
        CHECK_THAT(page, contains(text));
    }
    // Twice the same, on two ranks as well.
    report({slow.dir(), fast.dir().string() + ".ini", "--output=" + output}, 0, 2);
    CHECK(read_file(output) == page);
    CHECK(std::distance(fs::directory_iterator(folder / "new"), fs::directory_iterator()) == 1);

    report({slow.dir(), "--output=" + output});
    const std::string alone = read_file(output);
    require_whole(alone);
    CHECK_THAT(alone, contains("Settings other than the defaults"));
    CHECK_THAT(alone, contains("optim.<wbr>lr</td><td>0.0005</td>"));
}

TEST_CASE("a regression has an error in place of an accuracy", "[cli-report]") {
    const TempDir folder;
    const Run run = Run(folder / "run", single_weight(folder / "data.h5"))
                        .with({{"data.valid", folder / "data.h5"}, {"train.max_steps", "4"}});
    run.expect(0);
    report({run.dir(), "--output=" + (folder / "page.html").string()});
    const std::string page = read_file(folder / "page.html");
    require_whole(page);
    CHECK_THAT(page, contains("<h2>Mean absolute error</h2>"));
    CHECK(page.find("<h2>Accuracy</h2>") == std::string::npos);
}

TEST_CASE("odd runs do not break the page, and long ones do not swell it", "[cli-report]") {
    const TempDir folder;
    write_file(folder / "empty/metrics.jsonl", "");
    write_file(folder / "<b>&odd\"'/metrics.jsonl",
               "{\"event\":\"step\",\"step\":1,\"loss\":NaN}\n{\"event\":\"st");
    write_file(folder / "<b>&odd\"'/config.ini", "[nothing\n");
    write_file(folder / "one/metrics.jsonl", "{\"event\":\"step\",\"step\":1,\"loss\":2,\"lr\":0.1}\n");
    std::string lines;
    for (int i = 1; i <= 100000; ++i)
        lines += "{\"event\":\"step\",\"step\":" + std::to_string(i) +
                 ",\"epoch\":1,\"loss\":" + std::to_string(1.0 / i + i % 7) +
                 ",\"lr\":0.1,\"grad_norm\":" + std::to_string(i % 13) +
                 ",\"samples\":" + std::to_string(8 * i) + ",\"samples_per_s\":100}\n";
    write_file(folder / "long/metrics.jsonl", lines);
    const std::string output = folder / "page.html";
    report({folder / "empty", folder / "<b>&odd\"'", folder / "one", folder / "long", "--output=" + output});
    const std::string page = read_file(output);
    require_whole(page);
    CHECK(page.size() < 120000);
    CHECK_THAT(page, contains("&lt;b&gt;&amp;odd&quot;&#39;: 2 lines of metrics.jsonl could not be read"));
    CHECK_THAT(page, contains("empty: no step is in metrics.jsonl"));
    CHECK_THAT(page, contains("100,000"));

    // More runs than colours.
    std::vector<std::string> many = {"--output=" + output};
    for (int i = 0; i < 20; ++i) {
        write_file(folder / ("many/" + std::to_string(i) + "/metrics.jsonl"), lines.substr(0, 2000));
        many.push_back(folder / ("many/" + std::to_string(i)));
    }
    report(many);
    require_whole(read_file(output));
}

TEST_CASE("report names what is no run, and writes over nothing that a run needs", "[cli-report]") {
    const TempDir folder;
    write_file(folder / "run/metrics.jsonl", "");
    const std::string metrics = folder / "run/metrics.jsonl", page = folder / "page.html";
    for (const fs::path& wrong : {folder / "missing", folder.path(), fs::path(metrics)})
        CHECK_THAT(report({wrong, "--output=" + page}, 3).err,
                   contains(wrong.string() + ": expected a run directory with metrics.jsonl"));
    CHECK_FALSE(fs::exists(page));
    CHECK_THAT(report({folder / "run", "--output=" + metrics}, 2).err, contains("this is a file of a run"));
    CHECK_THAT(report({folder / "run", "--output=" + folder.path().string()}, 2).err,
               contains("expected the name of a file to write"));
    CHECK_THAT(report({folder / "run", "--output=/proc/none/page.html"}, 1).err, contains("/proc/none"));
    write_file(folder / "run.ini", "[run]\n");
    CHECK_THAT(report({folder / "run", "--output=" + (folder / "run.ini").string()}, 2).err,
               contains("there is such a file, and it is no page of this kind"));
    CHECK(read_file(folder / "run.ini") == "[run]\n");
    CHECK_THAT(report({}, 2).err, contains("`trireme report`: an argument is missing"));
    CHECK(read_file(metrics).empty());
}
