// bench: its output and its refusals. What it measures is not judged here.
#include "support/catch.hpp"
#include "support/process.hpp"

using namespace trireme::testing;

TEST_CASE("bench step takes a step apart and holds it against its limit", "[cli-bench]") {
    for (const int ranks : {0, 2}) {
        const Result result = trireme::testing::trireme(
            ranks, {"bench", "step", "--model=mlp:8-6-3", "--samples=4", "--lanes=2", "--run.threads=1"});
        INFO(ranks << " ranks\n" << result.out << result.err);
        REQUIRE(result.status == 0);
        for (const char* part :
             {"step of mlp:8-6-3, fp32, 4 samples a lane, 2 lanes a rank", "products and convolutions",
              "optimizer", "reduction", "ratio to the limit", "samples/s"})
            REQUIRE_THAT(result.out, contains(part));
        REQUIRE_THAT(result.out, contains(ranks == 2 ? "2 ranks x 1 thread" : "1 rank x 1 thread"));
    }
}

TEST_CASE("bench step measures the layers of each stage, those that split them together", "[cli-bench]") {
    // The stages have different products, and different numbers of them.
    for (const char* split : {"--parallel.pipeline=2", "--parallel.tensor=2"}) {
        const Result result =
            trireme::testing::trireme(4, {"bench", "step", "--model=mlp:8-6-6-4-4-3", "--samples=4",
                                          "--lanes=4", "--run.threads=1", split});
        INFO(split << "\n" << result.out << result.err);
        REQUIRE(result.status == 0);
        REQUIRE_THAT(result.out, contains("4 ranks x 1 thread"));
        REQUIRE_THAT(result.out, contains("ratio to the limit"));
    }
}

TEST_CASE("bench gemm takes a size, bench kernels needs none", "[cli-bench]") {
    const Result gemm = trireme::testing::trireme(0, {"bench", "gemm", "--size=96"});
    REQUIRE(gemm.status == 0);
    REQUIRE_THAT(gemm.out, contains("96  96  96") && !contains("512"));
    const Result kernels = trireme::testing::trireme(2, {"bench", "kernels", "--train.precision=bf16"});
    INFO(kernels.out << kernels.err);
    REQUIRE(kernels.status == 0);
    for (const char* part :
         {"of bfloat16", "gelu, backward", "layernorm", "batchnorm", "adamw update", "of a copy"})
        REQUIRE_THAT(kernels.out, contains(part));
}

TEST_CASE("bench refuses what it does not know", "[cli-bench]") {
    const auto refused = [](std::vector<std::string> words, const std::string& named) {
        words.insert(words.begin(), "bench");
        const Result result = trireme::testing::trireme(0, words);
        INFO(result.err);
        REQUIRE(result.status == 2);
        REQUIRE_THAT(result.err, contains(named));
    };
    refused({"speed"}, "expected gemm, kernels, copy, reduce or step");
    refused({"step", "--model=mlp:8"}, "--model=mlp:8");
    refused({"step", "--model=mlp:8-x-3"}, "--model=mlp:8-x-3");
    refused({"step", "--model=vgg"}, "vgg");
    refused({"step", "--samples=0"}, "--samples=0");
    refused({"step", "--model=cnn", "--input=1,0,28"}, "--input=1,0,28");
}
