// Sequence parallelism: the positions between split layers are split too. Against the run on one rank.
#include "support/catch.hpp"
#include "support/meshes.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

const Keys split = {{"parallel.sequence", "true"}};

Keys layers(const std::vector<std::string>& lines) {
    Keys keys;
    for (const std::string& line : lines) keys.emplace_back("model.layer", line);
    return keys;
}

}  // namespace

TEST_CASE("a transformer with split positions is the same as on one rank", "[cli-sequence]") {
    const TempDir folder;  // 13 positions: parts of different sizes; two lanes: gradients are accumulated
    const Run run = tiny_gpt(folder).with({{"optim.name", "sgd"}, {"optim.lr", "0.2"}});
    SECTION("learned positions, LayerNorm, GELU, tied") {
        require_like_one_rank(run, {{2, 2, 1, split}, {3, 3, 1, split}, {4, 2, 1, split}});
    }
    SECTION("rotary, RMSNorm, SwiGLU, untied, smoothing, reduced while backward goes on") {
        Keys overlapping = split;
        overlapping.emplace_back("parallel.overlap", "on");
        overlapping.emplace_back("parallel.bucket_mb", "0.01");
        require_like_one_rank(run.with({{"model.positions", "rotary"},
                                        {"model.norm", "rmsnorm"},
                                        {"model.ffn_kind", "swiglu"},
                                        {"model.tied", "false"},
                                        {"train.label_smoothing", "0.1"}}),
                              {{2, 2, 1, split}, {3, 3, 1, split}, {4, 2, 1, overlapping}});
    }
    SECTION("in stages of a pipeline") {
        require_like_one_rank(run, {{4, 2, 2, split}});
    }
    SECTION("layers of its own: a head right after a layer that could be its partner") {
        Keys keys = layers({"embedding dim=12 name=e", "positions", "dropout p=0.1", "linear out=10", "relu",
                            "linear out=12", "silu", "linear out=classes"});
        keys.emplace_back("train.clip_norm", "0");
        require_like_one_rank(run.with(keys), {{2, 2, 1, split}, {3, 3, 1, split}});
    }
    SECTION("alone on a rank it changes nothing") {
        require_like_one_rank(run, {{2, 1, 1, split}});
    }
    SECTION("layer-wise optimizer: norms of whole parameters") {
        require_like_one_rank(run.with({{"optim.name", "lamb"}, {"optim.lr", "0.003"}}), {{3, 3, 1, split}},
                              5e-5);
    }
}

TEST_CASE("16-bit precision with split positions stays near, and learns", "[cli-sequence]") {
    const TempDir folder;
    const Run run = tiny_gpt(folder).with(
        {{"train.max_steps", "100"}, {"model.dropout", "0"}, {"optim.lr", "0.003"}, {"scaler.init", "1024"}});
    run.expect(0, 0);
    const double exact = run.column("valid", "loss").back();
    REQUIRE(exact < 1.6);
    for (const char* precision : {"bf16", "fp16"}) {
        const Run low = run.at(folder / precision)
                            .with({{"train.precision", precision},
                                   {"parallel.tensor", "2"},
                                   {"parallel.sequence", "true"}});
        low.expect(0, 2);
        REQUIRE(low.column("valid", "loss").back() == Approx(exact).epsilon(0.02));
    }
}

TEST_CASE("images as sequences with split positions", "[cli-sequence]") {
    const TempDir folder;
    SECTION("vit: the mean of the positions to the head") {
        require_like_one_rank(tiny_images(folder, {{"model.arch", "vit"},
                                                   {"model.layers", "1"},
                                                   {"model.d_model", "12"},
                                                   {"model.heads", "3"},
                                                   {"model.patch", "4"},
                                                   {"model.dropout", "0.1"},
                                                   {"optim.lr", "0.2"}}),
                              {{2, 2, 1, split}, {3, 3, 1, split}, {4, 2, 1, split}});
    }
    SECTION("a linear layer alone, dropout within a split pair, a shortcut with layers, flatten") {
        require_like_one_rank(
            tiny_images(folder,
                        layers({"conv out=12 kernel=2 stride=2", "tokens", "positions", "linear out=9",
                                "relu", "layernorm", "residual", "linear out=20", "gelu", "dropout p=0.2",
                                "linear out=10", "shortcut", "linear out=10 bias=false", "end",
                                "dropout p=0.1", "flatten", "linear out=classes"})),
            {{2, 2, 1, split}, {3, 3, 1, split}});
    }
}

TEST_CASE("checkpoints and first weights with split positions are those of any mesh", "[cli-sequence]") {
    const TempDir folder;
    const Run run = tiny_gpt(folder).with({{"optim.name", "adamw"}, {"train.ema", "0.9"}});
    const Keys split = {{"parallel.sequence", "true"}};
    const Run cut = require_goes_on(run, {{"3", {2, 2, 1, split}},
                                          {"5", {3, 3, 1, split}},
                                          {"7", {1}},
                                          {"8", {2, 2}},
                                          {"10", {4, 2, 1, split}}});
    const Event eval = evaluate(1, cut.checkpoint_path(10), folder / "data/valid-*.h5");
    REQUIRE(eval["loss"] == Approx(cut.column("valid", "loss").back()).epsilon(1e-5));

    const Keys still = {{"train.max_steps", "1"}, {"optim.lr", "0"}, {"optim.weight_decay", "0"}};
    const Tensors first = run.at(folder / "first").with(still).finish(0).weights;
    for (const int ranks : {2, 3})
        REQUIRE(
            same_bits(run.at(folder / std::to_string(ranks))
                          .with(still)
                          .with({{"parallel.tensor", std::to_string(ranks)}, {"parallel.sequence", "true"}})
                          .finish(ranks)
                          .weights,
                      first));
}

TEST_CASE("split positions are refused where there are none", "[cli-sequence]") {
    const TempDir folder;
    const Keys two = {{"parallel.tensor", "2"}, {"parallel.sequence", "true"}};
    CHECK_THAT(tiny_images(folder, {{"model.width", "24, 16"}}).with(two).expect(2, 2).err,
               contains("parallel.sequence=true") && contains("no sequences"));
    CHECK_THAT(tiny_gpt(folder).with(two).with({{"model.context", "1"}}).expect(2, 2).err,
               contains("1 positions") && contains("2 ranks"));
}
