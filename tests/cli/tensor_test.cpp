// Transformers, and models whose layers are split over ranks: against the run on one rank.
#include <cmath>

#include "support/catch.hpp"
#include "support/meshes.hpp"

using namespace trireme;
using namespace trireme::testing;

TEST_CASE("a transformer is the same on one rank and split over several", "[cli-tensor]") {
    const TempDir folder;
    const Run run = tiny_gpt(folder);
    SECTION("learned positions, LayerNorm, GELU, tied") {
        require_like_one_rank(run.with({{"optim.name", "sgd"}, {"optim.lr", "0.2"}}),
                              {{2, 1}, {2, 2}, {3, 3}, {4, 2}});
    }
    SECTION("rotary, RMSNorm, SwiGLU, untied, smoothing") {
        require_like_one_rank(run.with({{"model.positions", "rotary"},
                                        {"model.norm", "rmsnorm"},
                                        {"model.ffn_kind", "swiglu"},
                                        {"model.tied", "false"},
                                        {"train.label_smoothing", "0.1"},
                                        {"optim.name", "sgd"},
                                        {"optim.lr", "0.2"}}),
                              {{2, 1}, {2, 2}, {3, 3}});
    }
    SECTION("layer-wise optimizer: norms of whole parameters") {
        require_like_one_rank(run.with({{"optim.name", "lamb"}, {"optim.lr", "0.003"}}), {{2, 2}, {3, 3}},
                              5e-5);
    }
    SECTION("bf16 and fp16 stay near, and learn") {
        const Run longer = run.with({{"train.max_steps", "100"},
                                     {"model.dropout", "0"},
                                     {"optim.lr", "0.003"},
                                     {"scaler.init", "1024"}});
        longer.expect(0, 0);
        const double exact = longer.column("valid", "loss").back();
        REQUIRE(exact < 1.6);
        for (const char* precision : {"bf16", "fp16"}) {
            const Run low = longer.at(folder / precision)
                                .with({{"train.precision", precision}, {"parallel.tensor", "2"}});
            low.expect(0, 2);
            REQUIRE(low.column("valid", "loss").back() == Approx(exact).epsilon(0.02));
        }
    }
}

TEST_CASE("multilayer perceptrons, convolutions and image transformers split over ranks", "[cli-tensor]") {
    const TempDir folder;
    SECTION("alternating layers, dropout between, a head on its own") {
        require_like_one_rank(
            tiny_images(folder,
                        {{"model.width", "24, 17, 11, 9"}, {"model.dropout", "0.2"}, {"optim.lr", "0.01"}}),
            {{2, 2}, {3, 3}, {4, 2}});
    }
    SECTION("layers with gathered outputs: a batch norm in between") {
        require_like_one_rank(tiny_images(folder, {{"model.width", "24, 16"}, {"model.batchnorm", "true"}}),
                              {{2, 2}, {3, 3}}, 1e-4);
    }
    SECTION("convolutions split over output channels") {
        require_like_one_rank(tiny_images(folder, {{"model.arch", "cnn"}, {"model.channels", "6"}}),
                              {{2, 2}, {3, 3}, {4, 2}});
    }
    SECTION("vit") {
        require_like_one_rank(tiny_images(folder, {{"model.arch", "vit"},
                                                   {"model.layers", "1"},
                                                   {"model.d_model", "12"},
                                                   {"model.heads", "3"},
                                                   {"model.patch", "4"},
                                                   {"optim.lr", "0.2"}}),
                              {{2, 1}, {2, 2}, {3, 3}});
    }
}

TEST_CASE("a checkpoint saved on one mesh goes on, and is evaluated, on another", "[cli-tensor]") {
    const TempDir folder;
    const Run cut = require_goes_on(tiny_gpt(folder).with({{"optim.name", "adamw"}, {"train.ema", "0.9"}}),
                                    {{"3", {2, 2}}, {"5", {3, 3}}, {"7", {1}}, {"10", {4, 2}}});
    for (const int ranks : {1, 2}) {
        const Event eval = evaluate(ranks, cut.checkpoint_path(10), folder / "data/valid-*.h5");
        REQUIRE(eval["loss"] == Approx(cut.column("valid", "loss").back()).epsilon(1e-5));
    }
}

TEST_CASE("the bits of the first weights do not depend on the mesh", "[cli-tensor]") {
    const TempDir folder;
    const Run run =
        tiny_gpt(folder).with({{"train.max_steps", "1"}, {"optim.lr", "0"}, {"optim.weight_decay", "0"}});
    const Tensors one = run.finish(0).weights;
    for (const auto& [ranks, tensor] : std::vector<std::pair<int, int>>{{2, 2}, {3, 3}})
        REQUIRE(same_bits(run.at(folder / std::to_string(ranks))
                              .with({{"parallel.tensor", std::to_string(tensor)}})
                              .finish(ranks)
                              .weights,
                          one));
}

TEST_CASE("meshes that do not fit are refused with their numbers", "[cli-tensor]") {
    const TempDir folder;
    const Run run = tiny_gpt(folder);
    const auto refused = [&](int ranks, const Keys& keys) { return run.with(keys).expect(2, ranks).err; };
    CHECK_THAT(refused(3, {{"parallel.tensor", "2"}}), contains("parallel.tensor=2"));
    CHECK_THAT(refused(4, {{"parallel.tensor", "4"}}), contains("3 key heads"));
    CHECK_THAT(refused(2, {{"parallel.tensor", "2"}, {"train.reduction", "reproducible"}}),
               contains("train.reduction=reproducible"));
    CHECK_THAT(refused(0, {{"model.heads", "5"}}), contains("heads=5"));
    CHECK_THAT(refused(0, {{"model.kv_heads", "4"}}), contains("kv_heads=4"));
    CHECK_THAT(refused(0, {{"model.vocab", "20"}}), contains("vocab=20"));
}

TEST_CASE("case 7: dropout masks depend on seed, layer, step and position, not on the mesh", "[cli-tensor]") {
    // Nothing is learned, so that each step's loss shows its masks.
    const TempDir folder;
    const Run run = tiny_images(
        folder,
        {{"model.width", "24, 16"}, {"model.dropout", "0.5"}, {"optim.lr", "0"}, {"train.max_steps", "6"}});
    run.expect(0, 0);
    const std::vector<double> expected = run.column("step", "loss");
    CHECK(expected[0] != Approx(expected[4]).epsilon(1e-6));  // the second epoch, other masks
    for (const Grid& grid : {Grid{2}, Grid{2, 2}, Grid{3, 3}, Grid{2, 1, 2}, Grid{4, 2, 2}}) {
        INFO(grid.ranks << " ranks, tensor " << grid.tensor << ", pipeline " << grid.pipeline);
        const Run here = run.at(folder / "mesh").with({{"run.resume", "none"}}).with(keys_of(grid));
        here.expect(0, grid.ranks);
        const std::vector<double> found = here.column("step", "loss");
        for (std::size_t k = 0; k < expected.size(); ++k)
            CHECK(found[k] == Approx(expected[k]).epsilon(1e-6));
    }
}

TEST_CASE("case 10: the norm before clipping counts every parameter once, in fp32 and fp16", "[cli-tensor]") {
    const TempDir folder;
    const Run run = tiny_images(folder, {{"model.width", "24, 16"}, {"train.clip_norm", "0.5"}});
    run.expect(0, 0);
    const double norm = run.column("step", "grad_norm")[0];
    for (const char* precision : {"fp32", "fp16"})
        for (const Grid& grid : {Grid{2, 2}, Grid{3, 3}, Grid{2, 1, 2}}) {
            const Run here = run.at(folder / "mesh")
                                 .with({{"run.resume", "none"},
                                        {"train.precision", precision},
                                        {"scaler.init", "256"},
                                        {"train.max_steps", "1"}})
                                 .with(keys_of(grid));
            here.expect(0, grid.ranks);
            CHECK(here.column("step", "grad_norm")[0] ==
                  Approx(norm).epsilon(std::string(precision) == "fp32" ? 1e-5 : 5e-3));
        }
}
