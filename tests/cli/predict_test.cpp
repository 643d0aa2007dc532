// predict: the outputs of a saved model in the order of the input, the same on any number of ranks.
#include <cmath>

#include "support/catch.hpp"
#include "support/runs.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

Result predict(int ranks, const std::string& checkpoint, const std::string& data, const std::string& output) {
    const Result result =
        trireme::testing::trireme(ranks, {"predict", checkpoint, "--data=" + data, "--output=" + output});
    INFO(ranks << " ranks\n" << result.out << result.err);
    REQUIRE(result.status == 0);
    return result;
}

}  // namespace

TEST_CASE("predictions agree with the accuracy of eval and do not depend on the ranks", "[cli-predict]") {
    const TempDir folder;
    write_samples(folder / "train.h5", clusters(60, Shape{1, 8, 8}, 3));
    const Samples test = clusters(29, Shape{1, 8, 8}, 3, 7);
    const std::string shards = write_shards(folder / "test", test, {10, 0, 19});
    const Run run(folder / "run", {{"data.train", folder / "train.h5"},
                                   {"model.arch", "cnn"},
                                   {"model.channels", "2"},
                                   {"model.batchnorm", "true"},
                                   {"train.batch", "16"},
                                   {"train.epochs", "1"}});
    run.finish(2);
    const std::string checkpoint = run.checkpoint_path(run.saved_steps().back());
    const Event eval = evaluate(2, checkpoint, shards);
    REQUIRE(eval["count"] == 29);
    std::vector<double> first;
    for (const int ranks : {0, 1, 2, 3}) {
        const std::string output = folder / ("out" + std::to_string(ranks) + ".h5");
        predict(ranks, checkpoint, shards, output);
        REQUIRE(read_shape(output, "/output") == Shape{29, 3});
        REQUIRE(read_shape(output, "/prediction") == Shape{29});
        const std::vector<double> outputs = read_values(output, "/output"),
                                  chosen = read_values(output, "/prediction");
        int right = 0;
        for (std::size_t i = 0; i < chosen.size(); ++i) {
            for (std::size_t c = 0; c < 3; ++c)
                REQUIRE(outputs[3 * i + c] <= outputs[3 * i + static_cast<std::size_t>(chosen[i])]);
            right += chosen[i] == test.y[i] ? 1 : 0;
        }
        REQUIRE(eval["accuracy"] == Approx(right / 29.0).epsilon(1e-12));
        if (first.empty()) first = outputs;
        for (std::size_t i = 0; i < first.size(); ++i) REQUIRE(outputs[i] == Approx(first[i]).margin(1e-5));
    }
}

TEST_CASE("predictions keep the order of the input, with more ranks than samples in a batch",
          "[cli-predict]") {
    const TempDir folder;
    Samples rows{Shape{1}, {}, {}};
    for (int i = 0; i < 23; ++i) {
        rows.x.push_back(i);
        rows.y.push_back(0);
    }
    write_samples(folder / "rows.h5", rows, {DType::i32}, {DType::f32});
    const Run run = Run(folder / "run", single_weight(folder / "data.h5")).with({{"train.batch", "2"}});
    const Checkpoint end = run.finish(0);
    const double weight = end.weights.at("0.linear.weight").at(0);
    const std::string checkpoint = run.checkpoint_path(run.saved_steps().back());
    for (const int ranks : {0, 2, 3}) {
        const std::string output = folder / ("out" + std::to_string(ranks) + ".h5");
        predict(ranks, checkpoint, folder / "rows.h5", output);
        REQUIRE(read_shape(output, "/output") == Shape{23, 1});
        const std::vector<double> outputs = read_values(output, "/output");
        for (int i = 0; i < 23; ++i)
            REQUIRE(outputs[static_cast<std::size_t>(i)] == Approx(weight * i).margin(1e-4));
    }
}

TEST_CASE("predict never writes over what it reads, and needs no labels", "[cli-predict]") {
    const TempDir folder;
    const std::string data = folder / "data.h5", bare = folder / "bare.h5", output = folder / "out.h5";
    write_samples(data, clusters(20, Shape{4}, 3));
    const Run run(folder / "run", {{"data.train", data}, {"train.batch", "10"}, {"train.epochs", "1"}});
    run.finish();
    const std::string checkpoint = run.checkpoint_path(run.saved_steps().back());
    std::filesystem::create_directory(folder / "there");
    const std::string other = folder / "other.h5", text = folder / "notes.txt",
                      nothing = folder / "nothing.h5";
    std::filesystem::copy_file(checkpoint, other);  // another run's
    write_file(text, "words");
    for (const std::string& precious :
         {data, checkpoint, other, text, std::string(folder / "there"), std::string("/dev/null")}) {
        const std::string before = std::filesystem::is_regular_file(precious) ? read_file(precious) : "";
        const Result result =
            trireme::testing::trireme(2, {"predict", checkpoint, "--data=" + data, "--output=" + precious});
        REQUIRE(result.status == 2);
        REQUIRE_THAT(result.err, contains("--output=" + precious));
        if (!before.empty()) REQUIRE(read_file(precious) == before);
    }
    REQUIRE(std::filesystem::is_character_file("/dev/null"));

    write_file(nothing, "");
    predict(1, checkpoint, data, nothing);
    predict(1, checkpoint, data, output);
    const std::vector<double> with_labels = read_values(output, "/output");
    add_dataset(bare, "/x", Shape{20, 4}, clusters(20, Shape{4}, 3).x);
    predict(2, checkpoint, bare, output);
    REQUIRE(read_values(output, "/output") == with_labels);
}
