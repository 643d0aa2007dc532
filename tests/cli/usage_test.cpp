// What the program says and which status it ends with when it is called wrongly, and which of file and flags
// wins.
#include "support/catch.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "support/data_files.hpp"
#include "support/process.hpp"
#include "trireme/train/config.hpp"

using namespace trireme::testing;
using trireme::Config;

namespace {

/// A small data set and a configuration that trains on it for one epoch, in a directory of its own.
struct Workplace {
    TempDir dir;

    Workplace() {
        write_samples(dir / "train.h5", numbered_samples(12, {4}, 3));
        write("run.ini", "");
    }
    void write(const std::string& name, const std::string& more) const {
        write_file(dir / name,
                   "[data]\ntrain = train.h5\n[model]\nwidth = 4\n[train]\nepochs = 1\nbatch = 4\n" + more);
    }
    Result run(const std::vector<std::string>& args, int ranks = 0) const {
        return trireme::testing::trireme(ranks, args, {.timeout = 60, .env = {}, .cwd = dir.path()});
    }
    bool has(const std::string& name) const { return std::filesystem::exists(dir / name); }
    Config saved(const std::string& run) const {
        return trireme::config_from_text(read_file(dir / ("runs/" + run + "/config.ini")), "config.ini");
    }
};

/// This message, once, on stderr; after wrong usage nothing has been done.
void check_refused(const Workplace& place, const std::vector<std::string>& args, const std::string& message,
                   int status = 2) {
    const Result result = place.run(args);
    INFO(result.out << result.err);
    CHECK(result.status == status);
    CHECK(result.out.empty());
    CHECK_THAT(result.err, contains(message));
    CHECK(result.err.starts_with("trireme: error: "));
    CHECK(count_of(result.err, "\n") == 1);
    if (status == 2) CHECK_FALSE(place.has("runs/run"));
}

}  // namespace

TEST_CASE("help and version need no launcher", "[cli-usage]") {
    const Result none = trireme::testing::trireme(0, {});
    CHECK(none.status == 2);
    const Result help = trireme::testing::trireme(0, {"--help"});
    CHECK(help.status == 0);
    CHECK(help.out == none.out);
    CHECK(help.err.empty());
    for (const char* command :
         {"import", "train", "eval", "predict", "export", "report", "info", "doctor", "bench"}) {
        CHECK_THAT(help.out, contains(std::string("\n  ") + command));
        const Result own = trireme::testing::trireme(0, {command, "--help"});
        INFO(command);
        CHECK(own.status == 0);
        CHECK_THAT(own.out, contains(std::string("usage: trireme ") + command));
    }
    CHECK_THAT(help.out, contains("75 stopped early"));

    const Result train = trireme::testing::trireme(0, {"train", "--help"});
    for (const trireme::ConfigKey& key : trireme::config_keys())
        CHECK_THAT(train.out, contains("  " + key.key + (key.fallback.empty() ? "" : "=" + key.fallback)));

    const Result version = trireme::testing::trireme(0, {"--version"});
    CHECK(version.status == 0);
    for (const char* part : {"trireme ", "compiler", "MPI", "HDF5", "oneDNN", "CUDA", "NCCL"})
        CHECK_THAT(version.out, contains(part));
    const bool built = std::getenv("TRIREME_BUILT_PLUGIN") != nullptr;
    CHECK((version.out.find("not built") == std::string::npos || !built));
    CHECK((version.out.find(" for sm_") != std::string::npos) == built);
}

TEST_CASE("doc/configuration.md is what the table says", "[cli-usage]") {
    const Result markdown = trireme::testing::trireme(0, {"--help-markdown"});
    CHECK(markdown.status == 0);
    const bool same = markdown.out == read_file(source_dir() / "doc" / "configuration.md");
    INFO("to bring it up to date: build/release/trireme --help-markdown > doc/configuration.md");
    CHECK(same);
}

TEST_CASE("wrong commands and options are refused by name", "[cli-usage]") {
    const Workplace place;
    check_refused(place, {"trian", "run.ini"}, "unknown command trian; did you mean train?");
    check_refused(place, {"--train.batch=4", "train"}, "a command comes first");
    check_refused(place, {"train", "run.ini", "--train.bat=4"},
                  "unknown option --train.bat; did you mean --train.batch?");
    check_refused(place, {"train", "run.ini", "--train.bat", "4"}, "did you mean --train.batch?");
    check_refused(place, {"train", "run.ini", "--learning_rate=4"}, "did you mean --optim.lr?");
    check_refused(place, {"train", "run.ini", "--optim.lr"}, "--optim.lr needs a value");
    check_refused(place, {"train", "run.ini", "--run.threads=1000000"},
                  "run.threads=1000000: expected at most 4096");
    check_refused(place, {"train", "run.ini", "--train.lane_threads=5000"},
                  "train.lane_threads=5000: expected at most 4096");
    check_refused(place, {"train", "run.ini", "train.batch=4"}, "unexpected argument train.batch=4");
    check_refused(place, {"train", "run.ini", "other.ini"}, "unexpected argument other.ini");
    check_refused(place, {"train", "run.ini", "--train.batch=4", "--train.batch=5"},
                  "--train.batch is given twice");
    check_refused(place, {"eval"}, "`trireme eval`: an argument is missing");
    check_refused(place, {"eval", "x.h5", "--jso"}, "unknown option --jso; did you mean --json?");
    check_refused(place, {"predict", "x.h5"}, "`trireme predict` needs --output=FILE.h5");
}

TEST_CASE("wrong keys and values are refused before any work", "[cli-usage]") {
    const Workplace place;
    place.write("bad.ini", "[optim]\nlearning_rat = 0.5\n");
    check_refused(place, {"train", "bad.ini"},
                  "bad.ini line 9: unknown key optim.learning_rat; did you mean optim.lr?");
    check_refused(place, {"train", "missing.ini"}, "missing.ini: there is no such configuration file");
    check_refused(place, {"train", "run.ini", "--optim.lr=0,1"}, "--optim.lr=0,1: expected a number");
    check_refused(place, {"train", "run.ini", "--checkpoint.async=perhaps"},
                  "--checkpoint.async=perhaps: expected");
    check_refused(place, {"train", "run.ini", "--run.device=cuda"}, "run.device=cuda");
    check_refused(place, {"train", "run.ini", "--train.epochs=0"}, "train.epochs or train.max_steps");
    check_refused(place, {"train", "run.ini", "--train.early_stop=2"}, "data.valid");
    check_refused(place, {"train", "run.ini", "--data.train=nothing-*.h5"}, "nothing-*.h5", 3);
    CHECK_FALSE(place.has("runs/bad"));
}

TEST_CASE("an error that all ranks share is said once", "[cli-usage]") {
    const Workplace place;
    place.write("bad.ini", "[optim]\nlearning_rat = 0.5\n");
    for (const char* argument : {"bad.ini", "missing.ini", "--train.bat=4"}) {
        const Result result = place.run({"train", argument}, 2);
        INFO(result.err);
        CHECK(result.status == 2);
        CHECK(count_of(result.err, "trireme: error: ") == 1);
        CHECK(result.seconds < 15);
    }
    const Result result = place.run({"train", "run.ini", "--data.train=nothing-*.h5"}, 2);
    INFO(result.err);
    CHECK(result.status == 3);
    CHECK(count_of(result.err, "trireme: error: ") == 1);
}

TEST_CASE("the command line wins over the file, the file over the defaults", "[cli-usage]") {
    const Workplace place;
    place.write("rate.ini", "[optim]\nlr = 0.2  # a comment\n");
    const Result plain = place.run({"train", "rate.ini"});
    INFO(plain.err);
    REQUIRE(plain.status == 0);
    CHECK(place.saved("rate").optim.lr == 0.2);
    CHECK(place.saved("rate").optim.name == "adamw");

    const Result flag = place.run({"train", "rate.ini", "--optim.lr=0.3", "--run.dir=runs/flag"});
    INFO(flag.err);
    REQUIRE(flag.status == 0);
    CHECK(place.saved("flag").optim.lr == 0.3);

    // What is written can be run as it stands, and by keys alone.
    const Result again = place.run({"train", "runs/flag/config.ini", "--run.dir=runs/again"});
    INFO(again.err);
    REQUIRE(again.status == 0);
    CHECK(trireme::config_differences(place.saved("flag"), place.saved("again")).size() == 1);
    const Result keys =
        place.run({"train", "--data.train=train.h5", "--train.max_steps=2", "--model.width=4"});
    INFO(keys.err);
    REQUIRE(keys.status == 0);
    CHECK(place.saved("train").train.max_steps == 2);
}

TEST_CASE("numbers keep their point under a comma locale", "[cli-usage]") {
    const Workplace place;
    place.write("rate.ini", "[optim]\nlr = 0.1\n");
    // Without the locale installed this is the C locale, which the unit tests complete.
    const Result result = trireme::testing::trireme(
        0, {"train", "rate.ini"},
        {.timeout = 60, .env = {{"LC_ALL", "de_DE.UTF-8"}}, .cwd = place.dir.path()});
    INFO(result.err);
    REQUIRE(result.status == 0);
    CHECK(place.saved("rate").optim.lr == 0.1);
    const std::string metrics = read_file(place.dir / "runs/rate/metrics.jsonl");
    CHECK_THAT(metrics, contains("\"lr\":0.1"));
}

TEST_CASE("a wrong TRIREME_WAIT is said once", "[cli-usage]") {
    const Workplace place;
    for (const int ranks : {0, 2}) {
        const Result result = trireme::testing::trireme(
            ranks, {"train", "run.ini"},
            {.timeout = 60, .env = {{"TRIREME_WAIT", "nap"}}, .cwd = place.dir.path()});
        INFO(result.err);
        CHECK(result.status == 2);
        CHECK(count_of(result.err, "TRIREME_WAIT=nap: expected auto, rest or block") == 1);
        CHECK_FALSE(place.has("runs/run"));
    }
}
