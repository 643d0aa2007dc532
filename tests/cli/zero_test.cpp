// Training states that are sharded over the data-parallel ranks: against the run on one rank.
#include <cmath>

#include "support/catch.hpp"
#include "support/meshes.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

// Buckets of so few bytes that models as small as these have many.
Keys stage(const std::string& number, const std::string& overlap = "off", const std::string& mb = "0.004") {
    return {{"parallel.zero", number}, {"parallel.overlap", overlap}, {"parallel.bucket_mb", mb}};
}

// Each stage at two, three and four ranks, with and without a thread for communication.
std::vector<Grid> all_stages() {
    return {{2, 1, 1, stage("1")},       {3, 1, 1, stage("1", "on")}, {4, 1, 1, stage("1", "on")},
            {2, 1, 1, stage("2", "on")}, {3, 1, 1, stage("2")},       {4, 1, 1, stage("2", "on")},
            {2, 1, 1, stage("3", "on")}, {3, 1, 1, stage("3")},       {4, 1, 1, stage("3", "on")}};
}

}  // namespace

TEST_CASE("a transformer with a sharded state is the same as on one rank", "[cli-zero]") {
    const TempDir folder;
    const Run run =
        tiny_gpt(folder).with({{"optim.name", "sgd"}, {"optim.momentum", "0.9"}, {"optim.lr", "0.02"}});
    SECTION("tied, dropout, clipping; fewer lanes than ranks") {
        require_like_one_rank(run, all_stages());
    }
    SECTION("several lanes on a rank, not the same number on each") {
        require_like_one_rank(run.with({{"train.lanes", "5"}}), all_stages());
    }
}
