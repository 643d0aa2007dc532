// The self-test of a launch on GPUs. On the emulation it takes most of a minute.
#include <cstdlib>

#include "support/catch.hpp"
#include "support/process.hpp"

using namespace trireme::testing;

TEST_CASE("doctor tries the collectives of GPUs and says which GPU each rank has", "[cuda-doctor]") {
    std::vector<std::string> words = {"doctor", "--run.device=cuda"};
    if (std::getenv("TRIREME_TEST_SHARE_GPU") != nullptr) words.emplace_back("--run.share_gpu=true");
    const Result result = trireme::testing::trireme(2, words, {.timeout = 110});
    INFO(result.out << result.err);
    REQUIRE(result.status == 0);
    REQUIRE_THAT(result.out, contains("cuda GPU-"));
    REQUIRE_THAT(result.out, contains("ok       all-reduce of float32 on cuda"));
    REQUIRE_THAT(result.out, contains("ok       messages posted and waited for on cuda"));
    REQUIRE_THAT(result.out, contains("ok       split into groups on cuda"));
    REQUIRE_THAT(result.out, contains("verdict: this launch works"));
}
