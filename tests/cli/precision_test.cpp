// Mixed precision through the program: loss scaling by hand (cases 9 and 10), an end where there is no way on
// (case 24), averages of weights, and one precision after another.
#include <cmath>

#include "support/catch.hpp"
#include "support/runs.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

float weight_of(const Checkpoint& checkpoint) {
    return checkpoint.weights.at("0.linear.weight").at(0);
}

// A small classifier with everything that has a precision of its own.
Run classifier(const TempDir& folder) {
    write_samples(folder / "train.h5", clusters(96, Shape{12}, 4));
    write_samples(folder / "valid.h5", clusters(40, Shape{12}, 4, 2));
    return Run(folder / "run", {{"data.train", folder / "train.h5"},
                                {"data.valid", folder / "valid.h5"},
                                {"model.width", "24"},
                                {"model.batchnorm", "true"},
                                {"model.dropout", "0.2"},
                                {"train.batch", "24"},
                                {"train.epochs", "5"},
                                {"train.lanes", "4"},
                                {"optim.lr", "0.01"},
                                {"run.threads", "1"}});
}

}  // namespace

TEST_CASE("case 9: skipped steps move neither schedule nor optimizer", "[cli-precision]") {
    const TempDir folder;
    // The gradient at the start is 2: with a scale of 2^20 ... 2^15 it is beyond 65504.
    const Run run = Run(folder / "run", single_weight(folder / "data.h5"))
                        .with({{"train.precision", "fp16"},
                               {"train.max_steps", "10"},
                               {"scaler.init", "1048576"},
                               {"scaler.growth", "1"},
                               {"schedule.name", "linear"},
                               {"schedule.steps", "1000000000"}});
    for (const int ranks : {0, 2, 3}) {
        const Run here = run.at(folder / std::to_string(ranks));
        REQUIRE_THAT(here.expect(0, ranks).err, contains("done: 10 steps (6 of them skipped) in "));
        const Checkpoint end = here.last();
        REQUIRE(here.saved_steps().back() == 10);
        REQUIRE(end.position.at("skipped") == 6);
        REQUIRE(end.position.at("updates") == 4);
        REQUIRE(end.position.at("scale") == 16384);
        REQUIRE(weight_of(end) == Approx(1 - std::pow(0.9, 4)).margin(1e-3));
        const Event last = here.events("step").back();
        REQUIRE(last["step"] == 10);
        REQUIRE(last["scale"] == 16384);
        REQUIRE(last["skipped"] == 6);
        const std::vector<double> lr = here.column("step", "lr");
        for (int k = 0; k < 7; ++k) REQUIRE(lr[static_cast<std::size_t>(k)] == lr[0]);
        REQUIRE(lr[9] < lr[6]);
        const std::vector<Event> steps = here.events("step");
        for (std::size_t k = 0; k < 6; ++k) REQUIRE_FALSE(steps[k].has("grad_norm"));  // null: there is none
        for (std::size_t k = 6; k < 10; ++k)
            REQUIRE(steps[k]["grad_norm"] == Approx(2 * std::pow(0.9, k - 6)).epsilon(1e-3));
    }
}

TEST_CASE("the scale grows after good steps and is saved with what its growth depends on",
          "[cli-precision]") {
    const TempDir folder;
    const Run run = Run(folder / "run", single_weight(folder / "data.h5"))
                        .with({{"train.precision", "fp16"},
                               {"scaler.init", "1024"},
                               {"scaler.interval", "4"},
                               {"train.max_steps", "10"}});
    run.with({{"train.max_steps", "6"}}).expect(0, 2);
    REQUIRE(run.last().position.at("scale") == 2048);
    REQUIRE(run.last().position.at("growth") == 2);
    run.expect(0, 0);
    REQUIRE(run.column("step", "scale") ==
            std::vector<double>{1024, 1024, 1024, 2048, 2048, 2048, 2048, 4096, 4096, 4096});
    const Run whole = run.at(folder / "whole");
    REQUIRE(same_bits(whole.finish(2).weights, run.last().weights));
    REQUIRE(whole.last().position == run.last().position);
}

TEST_CASE("case 10: the norm before clipping is that of the unscaled gradient", "[cli-precision]") {
    const TempDir folder;
    const Run run = classifier(folder).with({{"train.clip_norm", "0.5"}, {"train.max_steps", "6"}});
    run.expect(0, 2);
    const std::vector<double> exact = run.column("step", "grad_norm");
    for (const char* precision : {"fp16", "bf16"}) {
        const Run low = run.at(folder / precision).with({{"train.precision", precision}});
        low.expect(0, 2);
        const std::vector<double> norms = low.column("step", "grad_norm");
        REQUIRE(norms.size() == exact.size());
        const double tolerance = std::string(precision) == "fp16" ? 0.01 : 0.06;
        for (std::size_t k = 0; k < norms.size(); ++k)
            REQUIRE(norms[k] == Approx(exact[k]).epsilon(tolerance));
        REQUIRE(low.last().position.at("skipped") == 0);
    }
}

TEST_CASE("case 10: gradients of 40000 on two ranks do not overflow in their sum", "[cli-precision]") {
    const TempDir folder;
    // The mean of two gradients of -40000; their sum would be beyond float16.
    add_dataset(folder / "data.h5", "/x", Shape{2, 1}, {1, 1});
    add_dataset(folder / "data.h5", "/y", Shape{2, 1}, {20000, 20000});
    Keys keys = single_weight(folder / "unused.h5", 1e-9);
    const Run run = Run(folder / "run", keys)
                        .with({{"data.train", folder / "data.h5"},
                               {"train.precision", "fp16"},
                               {"scaler.init", "1"},
                               {"train.batch", "2"},
                               {"train.max_steps", "1"}});
    for (const char* wire : {"fp32", "bf16"}) {
        const Run here = run.at(folder / wire).with({{"parallel.reduce_dtype", wire}});
        here.expect(0, 2);
        REQUIRE(here.last().position.at("skipped") == 0);
        REQUIRE(here.column("step", "grad_norm")[0] == Approx(40000).epsilon(0.005));
    }
}

TEST_CASE("case 24: where nothing helps, the run ends and names who went first", "[cli-precision]") {
    const TempDir folder;
    // A rate that blows the weights up within a few steps: from then on every step is skipped.
    const Run run =
        Run(folder / "run", single_weight(folder / "data.h5", 1e6))
            .with({{"train.precision", "fp16"}, {"train.max_steps", "300"}, {"checkpoint.every", "1 steps"}});
    SECTION("too many in a row") {
        const Result result = run.with({{"scaler.max_skips", "7"}, {"scaler.min", "1e-30"}}).expect(1, 2);
        REQUIRE_THAT(result.err, contains("7"));
        REQUIRE_THAT(result.err, contains("0.linear.weight"));
        REQUIRE_THAT(result.err, contains("optim.lr"));
    }
    SECTION("the scale has fallen too low") {
        const Result result = run.with({{"scaler.min", "1024"}}).expect(1, 0);
        REQUIRE_THAT(result.err, contains("scaler.min"));
        REQUIRE_THAT(result.err, contains("0.linear.weight"));
    }
    for (const std::int64_t step : run.saved_steps()) REQUIRE(all_finite(run.checkpoint(step).weights));
}

TEST_CASE("a run goes on in another precision, and is evaluated in any", "[cli-precision]") {
    const TempDir folder;
    const Run run = classifier(folder);
    const auto in = [&](const char* precision, const char* epochs) {
        run.with({{"train.precision", precision}, {"train.epochs", epochs}}).expect(0, 2);
    };
    in("fp32", "2");
    REQUIRE(run.last().position.at("scale") == 1);
    in("fp16", "4");
    REQUIRE(run.last().position.at("scale") == 65536);
    in("bf16", "6");
    REQUIRE(run.last().position.at("scale") == 1);
    REQUIRE(run.last().position.at("updates") == 24);
    const double accuracy = run.column("valid", "accuracy").back();
    REQUIRE(accuracy > 0.9);
    const Event same = evaluate(1, run.checkpoint_path(24), folder / "valid.h5");
    REQUIRE(same["accuracy"] == accuracy);
    for (const char* precision : {"fp32", "fp16", "bf16"}) {
        const Event other = evaluate(2, run.checkpoint_path(24), folder / "valid.h5",
                                     {std::string("--train.precision=") + precision});
        REQUIRE(other["count"] == 40);
        REQUIRE(std::abs(other["accuracy"] - accuracy) <= 0.05);
        REQUIRE(other["loss"] == Approx(same["loss"]).epsilon(0.03));
        const Result predicted = trireme::testing::trireme(
            2, {"predict", run.checkpoint_path(24), "--data=" + (folder / "valid.h5").string(),
                "--output=" + (folder / "out.h5").string(), std::string("--train.precision=") + precision});
        INFO(predicted.err);
        REQUIRE(predicted.status == 0);
        REQUIRE(read_shape(folder / "out.h5", "/output") == Shape{40, 4});
    }
}

TEST_CASE("bf16 has the same bits on any number of ranks in the reproducible mode", "[cli-precision]") {
    const TempDir folder;
    const Run run = classifier(folder).with({{"train.precision", "bf16"},
                                             {"train.reduction", "reproducible"},
                                             {"train.lanes", "8"},
                                             {"train.epochs", "2"}});
    const Tensors one = run.at(folder / "1").finish(0).weights;
    for (const int ranks : {2, 3, 4})
        REQUIRE(same_bits(run.at(folder / std::to_string(ranks)).finish(ranks).weights, one));
    const Result refused = run.with({{"parallel.reduce_dtype", "bf16"}}).expect(2, 0);
    REQUIRE_THAT(refused.err, contains("parallel.reduce_dtype"));
}

TEST_CASE("the average of the weights follows them, is saved, and is what evaluation uses when asked",
          "[cli-precision]") {
    const TempDir folder;
    // One weight: w_k = 1 - 0.9^k, a_k = 0.5 a + 0.5 w_k.
    const Run run = Run(folder / "run", single_weight(folder / "data.h5"))
                        .with({{"train.ema", "0.5"}, {"train.max_steps", "5"}});
    double average = 0;
    for (int k = 1; k <= 5; ++k) average = 0.5 * average + 0.5 * (1 - std::pow(0.9, k));
    const auto saved_average = [&](std::int64_t step) {
        return read_values(run.checkpoint_path(step), "/ema/0.linear.weight")[0];
    };
    run.with({{"train.max_steps", "2"}}).expect(0, 2);
    run.expect(0, 0);
    REQUIRE(saved_average(5) == Approx(average).margin(1e-6));

    const Run averaged =
        classifier(folder)
            .at(folder / "averaged")
            .with({{"train.ema", "0.9"}, {"train.eval_ema", "true"}, {"train.precision", "bf16"}});
    averaged.expect(0, 2);
    const double loss = averaged.column("valid", "loss").back();
    const std::int64_t last = averaged.saved_steps().back();
    const Event with = evaluate(2, averaged.checkpoint_path(last), folder / "valid.h5");
    REQUIRE(with["loss"] == Approx(loss).epsilon(1e-6));
    const Event without =
        evaluate(1, averaged.checkpoint_path(last), folder / "valid.h5", {"--train.eval_ema=false"});
    REQUIRE(without["loss"] != Approx(loss).epsilon(1e-3));

    // A run without an average cannot be evaluated by it, one with it may be begun later.
    const Run plain = averaged.at(folder / "plain").with({{"train.ema", "0"}, {"train.eval_ema", "false"}});
    plain.expect(0, 0);
    const Result refused =
        trireme::testing::trireme(0, {"eval", plain.checkpoint_path(last),
                                      "--data=" + (folder / "valid.h5").string(), "--train.eval_ema=true"});
    REQUIRE(refused.status == 3);
    REQUIRE_THAT(refused.err, contains("train.ema"));
    plain.with({{"train.ema", "0.9"}, {"train.epochs", "6"}}).expect(0, 0);
}

TEST_CASE("keys of precision that contradict each other are refused by name", "[cli-precision]") {
    const TempDir folder;
    const Run run = classifier(folder);
    const auto refused = [&](const Keys& keys) { return run.with(keys).expect(2, 0).err; };
    CHECK_THAT(refused({{"train.precision", "fp8"}}), contains("train.precision=fp8"));
    CHECK_THAT(refused({{"scaler.backoff", "1"}}), contains("scaler.backoff=1"));
    CHECK_THAT(refused({{"scaler.growth", "0.5"}}), contains("scaler.growth=0.5"));
    CHECK_THAT(refused({{"train.eval_ema", "true"}}), contains("train.ema"));
    CHECK_THAT(refused({{"train.ema", "1"}}), contains("train.ema=1"));
    CHECK_THAT(refused({{"parallel.reduce_dtype", "fp16"}}), contains("parallel.reduce_dtype=fp16"));
}
