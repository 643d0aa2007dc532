// Every form of parallelism over devices: within a process, over processes and both, against one rank.
#include "support/meshes.hpp"

#include "support/catch.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

/// A mesh on so many processes (0: one without a launcher) with so many devices each.
Grid on(int processes, int devices, int tensor = 1, int pipeline = 1, const Keys& more = {}) {
    Keys keys = {{"run.devices", std::to_string(devices)}};
    keys.insert(keys.end(), more.begin(), more.end());
    return {processes, tensor, pipeline, keys};
}

Run mlp(const TempDir& folder) {
    return tiny_images(folder, {{"model.width", "24, 17"},
                                {"model.dropout", "0.2"},
                                {"train.lanes", "6"},
                                {"train.batch", "21"},
                                {"optim.lr", "0.02"}});
}

}  // namespace

TEST_CASE("models and states are split over devices", "[cli-devices_meshes]") {
    const TempDir folder;
    SECTION("layers split over the devices of a process, data parallelism over processes") {
        require_like_one_rank(mlp(folder), {on(0, 2, 2), on(0, 4, 2), on(2, 2, 2), on(0, 3, 3)});
    }
    SECTION("stages within a process, over processes, and with split layers") {
        require_like_one_rank(tiny_gpt(folder).with({{"optim.name", "sgd"}, {"optim.lr", "0.2"}}),
                              {on(0, 2, 1, 2), on(2, 2, 1, 2), on(2, 2, 1, 4), on(2, 2, 2, 2),
                               on(0, 2, 1, 2, {{"parallel.schedule", "interleaved"}})});
    }
    SECTION("sharded states, gradients and weights") {
        const auto stage = [](const char* zero) { return Keys{{"parallel.zero", zero}}; };
        require_like_one_rank(
            mlp(folder).with({{"train.ema", "0.9"}}),
            {on(0, 3, 1, 1, stage("1")), on(0, 3, 1, 1, stage("2")), on(2, 2, 1, 1, stage("2")),
             on(0, 3, 1, 1, stage("3")), on(2, 2, 1, 1, stage("3")), on(2, 2, 2, 1, stage("3"))});
    }
    SECTION("split positions") {
        const Keys split = {{"parallel.sequence", "true"}};
        require_like_one_rank(tiny_gpt(folder).with({{"optim.name", "sgd"}, {"optim.lr", "0.2"}}),
                              {on(0, 2, 2, 1, split), on(2, 2, 2, 1, split), on(0, 3, 3, 1, split)});
    }
}
