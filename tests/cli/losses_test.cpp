// Losses and targets end to end: regression, binary targets, label smoothing, labels that do not count.
#include <cmath>

#include "support/catch.hpp"
#include "support/runs.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

double softplus(double z) {
    return std::log1p(std::exp(z));
}

Keys plain(const std::string& data, const std::string& loss, const std::string& steps) {
    return {{"data.train", data},           {"data.valid", data},
            {"model.loss", loss},           {"model.layer", "linear out=outputs bias=false"},
            {"model.init", "zeros"},        {"optim.name", "sgd"},
            {"train.batch", "100"},         {"train.max_steps", steps},
            {"train.eval_every", "1 steps"}};
}

}  // namespace

TEST_CASE("regression learns a linear map, with targets [n] and [n, k]", "[cli-losses]") {
    const TempDir folder;
    for (const std::int64_t targets : {1, 3}) {
        const std::string data = folder / ("y" + std::to_string(targets) + ".h5");
        write_samples(data, linear_targets(200, 4, targets), {}, {DType::f64});
        const Run run(folder / std::to_string(targets), {{"data.train", data},
                                                         {"data.valid", data},
                                                         {"model.loss", "mse"},
                                                         {"model.layer", "linear out=outputs"},
                                                         {"optim.name", "sgd"},
                                                         {"optim.lr", "0.5"},
                                                         {"optim.momentum", "0.5"},
                                                         {"train.batch", "50"},
                                                         {"train.epochs", "40"}});
        const Checkpoint end = run.finish(2);
        const Event valid = run.events("valid").back();
        REQUIRE(valid["count"] == 200);
        REQUIRE(valid["loss"] < 1e-8);
        REQUIRE(valid["error"] < 1e-4);
        REQUIRE_FALSE(valid.has("accuracy"));
        REQUIRE(run.events("end")[0].has("best"));
        // The map itself: y_t = 0.25 + Σ_k (k - 1.5 t + 0.5) x_k.
        const std::vector<float>& weight = end.weights.at("0.linear.weight");
        REQUIRE(weight.size() == static_cast<std::size_t>(4 * targets));
        for (std::size_t i = 0; i < weight.size(); ++i) {
            const double row = static_cast<double>(i / 4), column = static_cast<double>(i % 4);
            REQUIRE(weight[i] == Approx(column - 1.5 * row + 0.5).margin(1e-3));
        }
        for (const float bias : end.weights.at("0.linear.bias")) REQUIRE(bias == Approx(0.25).margin(1e-3));
    }
}

TEST_CASE("binary cross-entropy on logits, by hand", "[cli-losses]") {
    const TempDir folder;
    const std::string data = folder / "data.h5";
    // x = 1 and targets (1, 0): the logits start at 0 and after one step of rate 4 are (1, -1): the gradient
    // of a logit is (sigmoid - target) / 2, the loss being the mean over two outputs.
    write_samples(data, {Shape{1}, {1, 1, 1}, {1, 0, 1, 0, 1, 0}, 2});
    const Run run(folder / "run", plain(data, "bce", "2"));
    run.with({{"optim.lr", "4"}}).finish(2);
    const std::vector<double> loss = run.column("step", "loss"), valid = run.column("valid", "loss");
    REQUIRE(loss[0] == Approx(std::log(2.0)).epsilon(1e-6));
    REQUIRE(loss[1] == Approx(softplus(-1)).epsilon(1e-6));
    REQUIRE(valid[0] == Approx(softplus(-1)).epsilon(1e-6));
    REQUIRE(run.column("valid", "accuracy")[0] == 1);
    REQUIRE(run.column("valid", "count")[0] == 3);
}

TEST_CASE("label smoothing, by hand", "[cli-losses]") {
    const TempDir folder;
    const std::string data = folder / "data.h5";
    write_samples(data, {Shape{1}, {1, 1, 0, 0}, {0, 0, 1, 1}});
    const Run run = Run(folder / "run", plain(data, "cross_entropy", "2"))
                        .with({{"optim.lr", "2"}, {"train.label_smoothing", "0.2"}});
    run.finish(2);
    // Targets 0.9 and 0.1: the gradient of the logits of the samples with x = 1 is -+0.4, and half of them
    // have it. After one step of rate 2 their logits are (0.4, -0.4); those of the others stay 0.
    const double smoothed = 0.9 * softplus(-0.8) + 0.1 * softplus(0.8);
    const std::vector<double> loss = run.column("step", "loss");
    REQUIRE(loss[0] == Approx(std::log(2.0)).epsilon(1e-6));
    REQUIRE(loss[1] == Approx((smoothed + std::log(2.0)) / 2).epsilon(1e-6));
}

TEST_CASE("labels to be ignored count neither in the loss nor in the gradient", "[cli-losses]") {
    const TempDir folder;
    for (const std::string label : {"-100", "-1", "255"}) {
        INFO("train.ignore_index=" << label);
        const double ignored = std::stod(label);
        const std::string data = folder / ("data" + label + ".h5");
        // Samples that count are the second and the fifth; the others would pull hard.
        write_samples(data, {Shape{1}, {50, 1, -70, 60, 0, 90}, {ignored, 0, ignored, ignored, 1, ignored}});
        for (const int ranks : {0, 2, 3}) {
            const Run run =
                Run(folder / (label + "on" + std::to_string(ranks)), plain(data, "cross_entropy", "2"))
                    .with({{"optim.lr", "2"}, {"train.ignore_index", label}});
            run.finish(ranks);
            // As with two samples: after one step of rate 2 the logits of the first are (0.5, -0.5).
            const std::vector<double> loss = run.column("step", "loss"), valid = run.column("valid", "loss");
            const double expected = (softplus(-1) + std::log(2.0)) / 2;
            REQUIRE(loss[0] == Approx(std::log(2.0)).epsilon(1e-6));
            REQUIRE(loss[1] == Approx(expected).epsilon(1e-6));
            REQUIRE(valid[0] == Approx(expected).epsilon(1e-6));
            REQUIRE(run.column("valid", "count")[0] == 2);
        }
    }
}

TEST_CASE("case 22: images are read as rows by columns, not the other way round", "[cli-losses]") {
    const TempDir folder;
    const std::string data = folder / "data.h5";
    // One pixel is set: channel 1, row 1, column 0 of [2, 2, 3], the tenth number of the sample.
    Samples samples{Shape{2, 2, 3}, std::vector<double>(24), {1, 1}};
    samples.x[9] = samples.x[21] = 1;
    write_samples(data, samples, {}, {DType::f32});
    const std::vector<std::string> head = {"flatten", "linear out=1 bias=false name=head"};
    for (const bool convolved : {false, true}) {
        Keys layers;
        if (convolved) layers.emplace_back("model.layer", "conv out=2 kernel=1 bias=false");
        for (const std::string& line : head) layers.emplace_back("model.layer", line);
        const Run run = Run(folder / (convolved ? "conv" : "flat"), plain(data, "mse", "1"))
                            .with(layers)
                            .with({{"model.init", "constant value=0.5"}, {"optim.lr", "0.1"}});
        const Checkpoint end = run.finish(0);
        const std::vector<float>& weights = end.weights.at("head.weight");
        REQUIRE(weights.size() == 12);
        for (std::size_t i = 0; i < weights.size(); ++i) {
            // A 1x1 convolution mixes channels only: row 1, column 0 is then set in both.
            const bool seen = i == 9 || (convolved && i == 3);
            INFO((convolved ? "conv" : "flat") << ", weight " << i);
            REQUIRE((weights[i] != 0.5F) == seen);
        }
    }
}

TEST_CASE("targets and labels that the model was not made for are refused by file", "[cli-losses]") {
    const TempDir folder;
    const std::string wide = folder / "wide.h5", narrow = folder / "narrow.h5";
    write_samples(wide, linear_targets(20, 4, 3), {}, {DType::f64});
    write_samples(narrow, linear_targets(20, 4, 1), {}, {DType::f64});
    const Run linear = Run(folder / "linear", plain(wide, "mse", "2"));
    REQUIRE_THAT(linear.with({{"data.valid", narrow}}).expect(3, 2).err, contains(narrow + ":/y"));
    linear.expect(0, 2);
    const std::string checkpoint = linear.checkpoint_path(2);
    for (const int ranks : {0, 2}) {
        const Result result = trireme::testing::trireme(ranks, {"eval", checkpoint, "--data=" + narrow});
        REQUIRE(result.status == 3);
        REQUIRE_THAT(result.err, contains(narrow + ":/y: expected 3 numbers a sample"));
    }
    REQUIRE_THAT(linear.with({{"data.train", narrow}, {"data.valid", narrow}, {"train.max_steps", "4"}})
                     .expect(3, 2)
                     .err,
                 contains(narrow + ":/y") && contains("; this goes on from " + checkpoint) &&
                     contains("run.resume=none, begins a new run"));

    const std::string few = folder / "few.h5", many = folder / "many.h5";
    write_samples(few, clusters(20, Shape{4}, 3));
    write_samples(many, clusters(20, Shape{4}, 5));
    const Run classes = Run(folder / "classes", plain(few, "cross_entropy", "2"));
    const Result beyond = classes.with({{"data.valid", many}}).expect(3, 2);
    REQUIRE_THAT(beyond.err, contains(many));
    REQUIRE_THAT(beyond.err, contains("label 4"));
    classes.expect(0, 2);
    const Result eval = trireme::testing::trireme(2, {"eval", classes.checkpoint_path(2), "--data=" + many});
    REQUIRE(eval.status == 3);
    // Either rank has such a row; whoever comes to its own first says so.
    REQUIRE_THAT(eval.err, contains(many + ":/y row ") && contains("from 0 to 2"));
}

TEST_CASE("targets that a loss cannot mean are refused by file and row", "[cli-losses]") {
    const TempDir folder;
    Samples rows = linear_targets(10, 3, 1);
    for (double& y : rows.y) y = 0.5;
    rows.y[7] = 1.25;
    write_samples(folder / "bce.h5", rows, {}, {DType::f64});
    const Run bce(folder / "bce", plain(folder / "bce.h5", "bce", "2"));
    REQUIRE_THAT(bce.expect(3).err, contains("bce.h5:/y row 7") && contains("1.25"));

    Samples labels = clusters(10, Shape{3}, 2);
    labels.y[4] = 2000000000;
    write_samples(folder / "huge.h5", labels, {}, {DType::i64});
    const Run huge(folder / "huge", plain(folder / "huge.h5", "cross_entropy", "2"));
    REQUIRE_THAT(huge.expect(3, 2).err, contains("huge.h5") && contains("2000000000"));
}

TEST_CASE("labels that never count are no success", "[cli-losses]") {
    const TempDir folder;
    Samples none = clusters(10, Shape{3}, 2);
    for (double& y : none.y) y = -100;
    write_samples(folder / "none.h5", none, {}, {DType::i32});
    write_samples(folder / "some.h5", clusters(10, Shape{3}, 2));
    const Run train(folder / "train", plain(folder / "none.h5", "cross_entropy", "2"));
    REQUIRE_THAT(train.expect(3).err, contains("none.h5") && contains("ignore_index"));

    const Run valid = Run(folder / "valid", plain(folder / "some.h5", "cross_entropy", "2"))
                          .with({{"data.valid", folder / "none.h5"}});
    REQUIRE_THAT(valid.expect(0).err, contains("no sample of data.valid counts"));
    REQUIRE_FALSE(std::filesystem::exists(valid.best_path()));
}
