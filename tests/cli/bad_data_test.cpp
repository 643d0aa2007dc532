// Data files as users have them, through `train`: what is read alike, what is refused and how, and what may
// never be saved.
#include <cmath>

#include "support/catch.hpp"
#include "support/runs.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

namespace fs = std::filesystem;

Keys small_run(const std::string& train) {
    return {{"data.train", train}, {"model.width", "8"},  {"model.depth", "1"}, {"train.batch", "10"},
            {"train.epochs", "2"}, {"optim.name", "sgd"}, {"optim.lr", "0.05"}, {"run.threads", "1"}};
}

// Every rank ends with 3, one message names all of this, and nothing was trained.
void require_refused(const Run& run, int ranks, const std::vector<std::string>& named) {
    Result result;
    const std::vector<int> statuses = statuses_of_ranks(ranks, run.arguments(), &result);
    INFO(ranks << " ranks\n" << result.err);
    REQUIRE(statuses == std::vector<int>(static_cast<std::size_t>(ranks), 3));
    REQUIRE(count_of(result.err, "trireme: error:") == 1);
    for (const std::string& part : named) REQUIRE_THAT(result.err, contains(part));
    REQUIRE(run.train(0).status == 3);
    REQUIRE_FALSE(fs::exists(run.dir() / "metrics.jsonl"));
    REQUIRE_FALSE(fs::exists(run.dir() / "checkpoints"));
}

// A job that one rank ends: by status 3, with one message, and without a checkpoint that is not a number
// somewhere.
void require_ended(const Run& run, int ranks, int status, const std::vector<std::string>& named) {
    const Result result = run.expect(status, ranks);
    INFO(ranks << " ranks\n" << result.err);
    REQUIRE(result.seconds < 10);
    REQUIRE(count_of(result.err, "trireme: error:") == 1);
    for (const std::string& part : named) REQUIRE_THAT(result.err, contains(part));
    if (!fs::exists(run.dir() / "checkpoints")) return;
    for (const auto& entry : fs::directory_iterator(run.dir() / "checkpoints")) {
        INFO(entry.path());
        REQUIRE(entry.path().extension() == ".h5");
        REQUIRE(all_finite(read_checkpoint(entry.path()).weights));
    }
}

}  // namespace

TEST_CASE("case 21: every stored type and byte order trains to the same bits", "[cli-bad_data]") {
    const TempDir folder;
    const Samples samples = numbered_samples(50, Shape{5}, 3);
    const auto weights = [&](const std::string& name, const Storage& x, const Storage& y) {
        write_samples(folder / (name + ".h5"), samples, x, y);
        return Run(folder / name, small_run(folder / (name + ".h5")))
            .with({{"optim.lr", "0.001"}})
            .finish(0)
            .weights;
    };
    const Tensors plain = weights("f4-i4", {DType::f32}, {DType::i32});
    REQUIRE(all_finite(plain));
    REQUIRE(same_bits(plain, weights("big", {DType::f32, true}, {DType::i32, true})));
    REQUIRE(same_bits(plain, weights("f8-u1", {DType::f64}, {DType::u8})));
    REQUIRE(same_bits(plain, weights("u1-i8", {DType::u8}, {DType::i8})));
    REQUIRE(same_bits(plain, weights("f2-u2", {DType::f16}, {DType::u16, true})));
    REQUIRE(same_bits(plain, weights("i2-u8", {DType::i16, true, 7, 3}, {DType::u64, false, 5, 1})));
}

TEST_CASE("case 21: labels that are texts are refused by name", "[cli-bad_data]") {
    const TempDir folder;
    const std::string file = folder / "data.h5";
    add_dataset(file, "/x", Shape{3, 4}, std::vector<double>(12, 1));
    add_strings(file, "/y", {"cat", "dog", "cat"});
    require_refused(Run(folder / "run", small_run(file)), 2, {file, "/y", "string"});
}

TEST_CASE("case 22: shards that do not fit together are refused before step 0 on every rank",
          "[cli-bad_data]") {
    const TempDir folder;
    const Samples samples = numbered_samples(100, Shape{1, 8, 8});
    const std::string pattern = write_shards(folder / "data", samples, {25, 25, 25, 25});
    const fs::path third = folder / "data/part-2.h5";
    const Run run(folder / "run", small_run(pattern));
    SECTION("cut to 60 %") {
        truncate_file(third, 0.6);
        require_refused(run, 3, {third, "truncated"});
    }
    SECTION("without y") {
        fs::remove(third);
        add_dataset(third, "/x", Shape{25, 1, 8, 8}, std::vector<double>(25 * 64, 1));
        require_refused(run, 2, {third, "/y"});
    }
    SECTION("8x9 among 8x8") {
        write_samples(third, numbered_samples(25, Shape{1, 8, 9}));
        require_refused(run, 2, {third, "/x", "1x8x8", "1x8x9"});
    }
    SECTION("100 rows against 99 labels") {
        fs::remove(third);
        add_dataset(third, "/x", Shape{100, 1, 8, 8}, std::vector<double>(100 * 64, 1));
        add_dataset(third, "/y", Shape{99}, std::vector<double>(99, 1), {DType::i64});
        require_refused(run, 2, {third, "/y", "100", "99"});
    }
    SECTION("no file at all") {
        const std::string nowhere = folder / "nowhere-*.h5";
        require_refused(run.with({{"data.train", nowhere}}), 2, {nowhere});
    }
    SECTION("a validation set of another shape") {
        write_samples(folder / "valid.h5", numbered_samples(25, Shape{1, 8, 9}));
        require_refused(run.with({{"data.valid", folder / "valid.h5"}}), 2,
                        {folder / "valid.h5", "/x", "1x8x8", "1x8x9"});
    }
    SECTION("a label that is negative") {
        fs::remove(third);
        add_dataset(third, "/x", Shape{2, 1, 8, 8}, std::vector<double>(128, 1));
        add_dataset(third, "/y", Shape{2}, {1, -3}, {DType::i64});
        require_refused(run, 2, {third, "/y", "row 1", "-3"});
    }
}

TEST_CASE("case 23: compressed chunks train to the same bits, also read by two jobs at once",
          "[cli-bad_data]") {
    const TempDir folder;
    const Samples samples = clusters(20000, Shape{3}, 4);
    fs::create_directories(folder / "data");
    write_samples(folder / "data/plain.h5", samples);
    write_samples(folder / "data/chunks.h5", samples, {DType::f32, false, 1000, 4},
                  {DType::i64, false, 1000, 4});
    fs::permissions(folder / "data", fs::perms::owner_read | fs::perms::owner_exec);
    const Keys keys = {
        {"train.batch", "1000"}, {"train.epochs", "1"}, {"data.cache", "none"}, {"run.log", "warning"}};
    const Run plain = Run(folder / "plain", small_run(folder / "data/plain.h5")).with(keys);
    const Run chunks = Run(folder / "chunks", small_run(folder / "data/chunks.h5")).with(keys);
    const Run other = chunks.at(folder / "other");
    Process first = chunks.start(0), second = other.start(0);
    const Tensors weights = plain.finish(0).weights;
    for (Process* job : {&first, &second}) {
        const Result result = job->wait();
        INFO(result.err);
        REQUIRE(result.status == 0);
    }
    fs::permissions(folder / "data", fs::perms::owner_all);
    REQUIRE(same_bits(weights, chunks.last().weights));
    REQUIRE(same_bits(weights, other.last().weights));
}

TEST_CASE("case 24: a NaN in the input ends the run by file and row, and none is saved", "[cli-bad_data]") {
    const TempDir folder;
    Samples samples = clusters(60, Shape{4}, 3);
    samples.x[(20 + 17) * 4 + 2] = std::nan("");  // row 17 of the second shard
    const std::string pattern = write_shards(folder / "data", samples, {20, 20, 20});
    const Run run = Run(folder / "run", small_run(pattern)).with({{"checkpoint.every", "1 steps"}});
    for (const int ranks : {0, 1, 2, 3})
        for (const std::string cache : {"memory", "none"})
            if (ranks != 1 || cache == "none")
                require_ended(run.at(folder / (cache + std::to_string(ranks))).with({{"data.cache", cache}}),
                              ranks, 3, {folder / "data/part-1.h5", "/x", "row 17", "nan"});
    SECTION("while the statistics of the training set are taken") {
        require_refused(run.at(folder / "standard").with({{"data.normalize", "standard"}}), 2,
                        {folder / "data/part-1.h5", "/x", "row 17", "nan"});
    }
    SECTION("in the validation set") {
        const Run clean =
            run.at(folder / "valid")
                .with({{"data.train", folder / "data/part-0.h5"}, {"data.valid", folder / "data/part-1.h5"}});
        require_ended(clean, 2, 3, {folder / "data/part-1.h5", "/x", "row 17"});
    }
    SECTION("infinite targets") {
        Samples linear = linear_targets(30, 4, 1);
        linear.y[11] = INFINITY;
        write_samples(folder / "targets.h5", linear, {}, {DType::f32});
        require_ended(
            run.at(folder / "targets").with({{"data.train", folder / "targets.h5"}, {"model.loss", "mse"}}),
            2, 3, {folder / "targets.h5", "/y", "row 11", "inf"});
    }
}

TEST_CASE("a run that diverges fails, says so, and saves nothing that is not finite", "[cli-bad_data]") {
    const TempDir folder;
    const Run run = Run(folder / "run", single_weight(folder / "data.h5"))
                        .with({{"checkpoint.every", "1 steps"}, {"checkpoint.keep", "30"}});
    for (const int ranks : {0, 2}) {
        const std::string on = std::to_string(ranks);
        require_ended(run.at(folder / ("loss" + on)).with({{"optim.lr", "1e30"}}), ranks, 1, {"diverged"});
        require_ended(
            run.at(folder / ("clipped" + on)).with({{"optim.lr", "1e30"}, {"train.clip_norm", "1"}}), ranks,
            1, {"diverged"});
        // The update itself overflows, while loss and gradient are finite.
        require_ended(run.at(folder / ("update" + on)).with({{"optim.lr", "3e38"}}), ranks, 1, {"diverged"});
        require_ended(run.at(folder / ("last" + on)).with({{"optim.lr", "3e38"}, {"train.max_steps", "1"}}),
                      ranks, 1, {"diverged"});
    }
}
