// Models whose layers are dealt to stages on several ranks: against the run on one rank.
#include "support/catch.hpp"
#include "support/meshes.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

Keys schedule(const char* name, const char* chunks = "0") {
    return {{"parallel.schedule", name}, {"parallel.chunks", chunks}};
}

}  // namespace

TEST_CASE("a transformer in stages is the same as on one rank", "[cli-pipeline]") {
    const TempDir folder;
    const Run run = tiny_gpt(folder).with({{"optim.name", "sgd"}, {"optim.lr", "0.2"}, {"train.lanes", "4"}});
    SECTION("tied head and embedding on different stages, every schedule") {
        require_like_one_rank(run, {{2, 1, 2, schedule("1f1b")},
                                    {2, 1, 2, schedule("gpipe")},
                                    {2, 1, 2, schedule("interleaved")},
                                    {3, 1, 3}});
    }
    SECTION("with data and tensor parallelism") {
        require_like_one_rank(run, {{4, 1, 2}, {4, 2, 2}, {4, 2, 2, schedule("interleaved")}});
    }
    SECTION("2 x 2 x 2 on eight ranks, untied, rotary, SwiGLU") {
        require_like_one_rank(run.with({{"model.positions", "rotary"},
                                        {"model.norm", "rmsnorm"},
                                        {"model.ffn_kind", "swiglu"},
                                        {"model.tied", "false"}}),
                              {{8, 2, 2}});
    }
}

TEST_CASE("any number of layers, lanes and stages", "[cli-pipeline]") {
    const TempDir folder;
    SECTION("batch norm's statistics, uneven and empty lanes") {
        // Batches of 16 in 5 lanes; the last batch of the epoch has 4 samples, so a lane is empty.
        const Run run = tiny_images(folder, {{"model.width", "24, 17, 11"},
                                             {"model.batchnorm", "true"},
                                             {"train.batch", "20"},
                                             {"train.lanes", "5"},
                                             {"optim.lr", "0.02"}});
        require_like_one_rank(run, {{2, 1, 2}, {3, 1, 3, schedule("interleaved", "2")}, {4, 1, 2}}, 1e-4);
    }
    SECTION("more stages than layers") {
        require_like_one_rank(tiny_images(folder, {{"model.width", "9"}}), {{4, 1, 4, schedule("gpipe")}});
    }
    SECTION("convolutions, more ranks than lanes") {
        require_like_one_rank(tiny_images(folder, {{"model.arch", "cnn"}, {"model.channels", "6"}}),
                              {{6, 1, 2}});
    }
    SECTION("layer-wise optimizer") {
        require_like_one_rank(
            tiny_images(folder, {{"model.width", "24, 17"}, {"optim.name", "lars"}, {"optim.lr", "0.5"}}),
            {{2, 1, 2}, {4, 2, 2}});
    }
}

TEST_CASE("case 19: uneven micro-batches weigh what they hold", "[cli-pipeline]") {
    // Two stages, batches of 8 in lanes of 3, 3 and 2 samples, the last batch has 5; 100 to validate.
    const TempDir folder;
    write_samples(folder / "train.h5", clusters(21, Shape{6}, 4));
    write_samples(folder / "valid.h5", clusters(100, Shape{6}, 4, 2));
    const Run plain(folder / "plain", {{"data.train", folder / "train.h5"},
                                       {"data.valid", folder / "valid.h5"},
                                       {"model.width", "10, 9"},
                                       {"train.batch", "8"},
                                       {"train.lanes", "1"},
                                       {"train.epochs", "4"},
                                       {"optim.name", "sgd"},
                                       {"optim.lr", "0.1"},
                                       {"run.threads", "1"}});
    plain.expect(0, 0);
    const Run staged = plain.at(folder / "staged").with({{"parallel.pipeline", "2"}, {"train.lanes", "3"}});
    staged.expect(0, 2);
    const auto expected = plain.column("step", "loss"), found = staged.column("step", "loss");
    REQUIRE(found.size() == 12);
    for (std::size_t k = 0; k < found.size(); ++k) CHECK(found[k] == Approx(expected[k]).epsilon(1e-5));
    CHECK(found[0] == Approx(expected[0]).epsilon(1e-6));
    CHECK(staged.column("valid", "count") == std::vector<double>(4, 100));
    CHECK(staged.column("valid", "loss").back() ==
          Approx(plain.column("valid", "loss").back()).epsilon(1e-5));
    CHECK(largest_difference(staged.last().weights, plain.last().weights) < 1e-5);
}

TEST_CASE("fp16 in stages: an overflow on one stage is everybody's", "[cli-pipeline]") {
    const TempDir folder;
    // A scale this high overflows in the first steps: all stages skip them alike.
    const Run run = tiny_images(folder, {{"model.width", "24, 17"},
                                         {"train.precision", "fp16"},
                                         {"scaler.init", "16777216"},
                                         {"train.lanes", "4"}});
    run.expect(0, 0);
    const Run staged = run.at(folder / "staged").with({{"parallel.pipeline", "2"}});
    staged.expect(0, 2);
    REQUIRE(run.column("step", "skipped").back() > 0);
    REQUIRE(staged.column("step", "skipped") == run.column("step", "skipped"));
    REQUIRE(staged.column("step", "loss").back() == Approx(run.column("step", "loss").back()).epsilon(2e-3));
}

TEST_CASE("a checkpoint goes from mesh to mesh, stages included", "[cli-pipeline]") {
    const TempDir folder;
    require_goes_on(tiny_gpt(folder).with({{"train.ema", "0.9"}}),
                    {{"3", {2, 1, 2}}, {"5", {4, 2, 2}}, {"7", {1}}, {"8", {3, 1, 3}}, {"10", {2, 2}}});
}

TEST_CASE("the bits of the first weights do not depend on the stages", "[cli-pipeline]") {
    const TempDir folder;
    const Run run =
        tiny_gpt(folder).with({{"train.max_steps", "1"}, {"optim.lr", "0"}, {"optim.weight_decay", "0"}});
    const Tensors one = run.finish(0).weights;
    for (const int ranks : {2, 3})
        REQUIRE(same_bits(run.at(folder / std::to_string(ranks))
                              .with({{"parallel.pipeline", std::to_string(ranks)}})
                              .finish(ranks)
                              .weights,
                          one));
}

TEST_CASE("a pipeline says what it is and what it loses", "[cli-pipeline]") {
    const TempDir folder;
    const Run run = tiny_gpt(folder).with({{"parallel.pipeline", "2"}, {"train.lanes", "4"}});
    const std::string out = run.expect(0, 2).err;
    CHECK_THAT(out, contains("data 1 x pipeline 2 x tensor 1"));
    CHECK_THAT(out, contains("stage"));
    CHECK_THAT(out, contains("% expected"));
    const double bubble = run.column("end", "pipeline_bubble").at(0);
    CHECK(bubble > 0);
    CHECK(bubble < 1);
}

TEST_CASE("pipelines that do not fit are refused", "[cli-pipeline]") {
    const TempDir folder;
    const Run run = tiny_gpt(folder);
    const auto refused = [&](int ranks, const Keys& keys) { return run.with(keys).expect(2, ranks).err; };
    CHECK_THAT(refused(3, {{"parallel.pipeline", "2"}}), contains("parallel.pipeline=2"));
    CHECK_THAT(refused(2, {{"parallel.pipeline", "2"}, {"train.reduction", "reproducible"}}),
               contains("train.reduction=reproducible"));
    CHECK_THAT(refused(2, {{"parallel.pipeline", "2"}, {"parallel.chunks", "2"}}),
               contains("parallel.schedule=interleaved"));
}
