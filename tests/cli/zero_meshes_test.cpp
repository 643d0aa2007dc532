// Training states that are sharded over the data-parallel ranks: against the run on one rank.
#include "support/catch.hpp"
#include "support/meshes.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

// Buckets of so few bytes that models as small as these have many.
Keys zero(const std::string& stage, const std::string& overlap = "off", const std::string& mb = "0.004") {
    return {{"parallel.zero", stage}, {"parallel.overlap", overlap}, {"parallel.bucket_mb", mb}};
}

Keys operator+(Keys keys, const Keys& more) {
    keys.insert(keys.end(), more.begin(), more.end());
    return keys;
}

// Each stage at two, three and four ranks, with and without a thread for communication.
std::vector<Grid> all_stages() {
    return {{2, 1, 1, zero("1")},       {3, 1, 1, zero("1", "on")}, {4, 1, 1, zero("1", "on")},
            {2, 1, 1, zero("2", "on")}, {3, 1, 1, zero("2")},       {4, 1, 1, zero("2", "on")},
            {2, 1, 1, zero("3", "on")}, {3, 1, 1, zero("3")},       {4, 1, 1, zero("3", "on")}};
}

}  // namespace

TEST_CASE("a transformer with a sharded state is the same as on one rank", "[cli-zero_meshes]") {
    const TempDir folder;
    const Run run =
        tiny_gpt(folder).with({{"optim.name", "sgd"}, {"optim.momentum", "0.9"}, {"optim.lr", "0.02"}});
    SECTION("tied, dropout, clipping; fewer lanes than ranks") {
        require_like_one_rank(run, all_stages());
    }
    SECTION("several lanes on a rank, not the same number on each; untied, rotary, SwiGLU") {
        require_like_one_rank(run.with({{"train.lanes", "5"},
                                        {"model.tied", "false"},
                                        {"model.positions", "rotary"},
                                        {"model.norm", "rmsnorm"},
                                        {"model.ffn_kind", "swiglu"}}),
                              {{2, 1, 1, zero("1")}, {3, 1, 1, zero("2", "on")}, {4, 1, 1, zero("3", "on")}});
    }
    SECTION("AdamW, whose steps are long where gradients are nothing but rounding") {
        require_like_one_rank(
            run.with({{"optim.name", "adamw"}, {"optim.momentum", "0"}, {"optim.lr", "0.001"}}),
            {{2, 1, 1, zero("1", "on")}, {3, 1, 1, zero("2")}, {4, 1, 1, zero("3")}}, 2e-2);
    }
    SECTION("LAMB: norms of whole parameters") {
        require_like_one_rank(
            run.with({{"optim.name", "lamb"}, {"optim.momentum", "0"}, {"optim.lr", "0.003"}}),
            {{2, 1, 1, zero("1")}, {3, 1, 1, zero("3", "on")}, {4, 1, 1, zero("2", "on")}}, 5e-5);
    }
    SECTION("with tensor and pipeline parallelism") {
        const Keys interleaved = {{"parallel.schedule", "interleaved"}, {"parallel.chunks", "2"}};
        const Keys sequence = {{"parallel.sequence", "true"}};
        require_like_one_rank(run.with({{"train.lanes", "5"}}), {{4, 2, 1, zero("1", "on")},
                                                                 {4, 2, 1, zero("3")},
                                                                 {4, 2, 1, zero("2") + sequence},
                                                                 {4, 2, 1, zero("3", "on") + sequence},
                                                                 {4, 1, 2, zero("1")},
                                                                 {4, 1, 2, zero("2", "on")},
                                                                 {6, 1, 2, zero("3")},
                                                                 {4, 1, 2, zero("3", "on") + interleaved},
                                                                 {8, 2, 2, zero("3", "on")}});
    }
}

TEST_CASE("images with batch norm and a sharded state", "[cli-zero_meshes]") {
    const TempDir folder;
    SECTION("statistics; a last batch that leaves lanes empty") {
        require_like_one_rank(tiny_images(folder, {{"model.width", "24, 17"},
                                                   {"model.batchnorm", "true"},
                                                   {"train.batch", "20"},
                                                   {"train.lanes", "5"},
                                                   {"optim.lr", "0.02"}}),
                              {{2, 1, 1, zero("1", "on")},
                               {3, 1, 1, zero("2", "on")},
                               {4, 1, 1, zero("3")},
                               {3, 1, 1, zero("3", "on")}},
                              1e-4);
    }
    SECTION("convolutions, a thread for communication, one bucket for everything") {
        require_like_one_rank(
            tiny_images(folder, {{"model.arch", "cnn"}, {"model.channels", "6"}, {"train.lanes", "6"}}),
            {{2, 1, 1, zero("1", "on", "25")},
             {3, 1, 1, zero("2", "on", "25")},
             {4, 1, 1, zero("3", "on", "25")}});
    }
}
