// The order of samples and its cut into steps and lanes.
#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "support/catch.hpp"
#include "trireme/base/error.hpp"
#include "trireme/data/sampler.hpp"

using namespace trireme;
using trireme::testing::contains;

namespace {

std::vector<std::int64_t> ids_of(const Order& order, std::int64_t samples) {
    std::vector<std::int64_t> ids;
    for (std::int64_t position = 0; position < samples; ++position) ids.push_back(order(position));
    return ids;
}

std::vector<std::int64_t> sorted(std::vector<std::int64_t> ids) {
    std::sort(ids.begin(), ids.end());
    return ids;
}

std::vector<std::int64_t> counted(std::int64_t samples) {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(samples));
    std::iota(ids.begin(), ids.end(), std::int64_t{0});
    return ids;
}

}  // namespace

TEST_CASE("the order of an epoch is a bijection at every size", "[unit][data]") {
    const Shuffle shuffle = GENERATE(Shuffle::full, Shuffle::chunk, Shuffle::none);
    const std::int64_t samples = GENERATE(0, 1, 2, 3, 7, 97, 1000, 65537);
    const std::int64_t chunk = GENERATE(1, 10, 1024);
    const Order order(samples, shuffle, 3, 1, chunk);
    REQUIRE(sorted(ids_of(order, samples)) == counted(samples));
}

TEST_CASE("a permutation is a bijection that depends on its key", "[unit][data]") {
    for (const std::int64_t n : {0, 1, 2, 3, 7, 97, 1000, 65537}) {
        const Permutation permutation(n, RandomStream(1, Purpose::split, 0));
        std::vector<std::int64_t> images;
        for (std::int64_t i = 0; i < n; ++i) images.push_back(permutation(i));
        REQUIRE(sorted(images) == counted(n));
    }
}

TEST_CASE("orders differ between epochs and seeds and repeat under the same", "[unit][data]") {
    for (const Shuffle shuffle : {Shuffle::full, Shuffle::chunk}) {
        const auto order = [&](std::uint64_t seed, std::int64_t epoch) {
            return ids_of(Order(100, shuffle, seed, epoch, 8), 100);
        };
        CHECK(order(1, 0) == order(1, 0));
        CHECK(order(1, 0) != order(1, 1));
        CHECK(order(1, 0) != order(2, 0));
        CHECK(order(1, 0) != counted(100));
    }
    CHECK(ids_of(Order(100, Shuffle::none, 1, 5), 100) == counted(100));
}

TEST_CASE("chunk shuffling keeps the samples of a chunk together", "[unit][data]") {
    const std::int64_t samples = 105, chunk = 10;
    const std::vector<std::int64_t> ids = ids_of(Order(samples, Shuffle::chunk, 1, 2, chunk), samples);
    std::int64_t changes = 0;
    std::set<std::int64_t> seen;
    for (std::size_t i = 0; i < ids.size(); ++i) {
        seen.insert(ids[i] / chunk);
        changes += i > 0 && ids[i] / chunk != ids[i - 1] / chunk;
    }
    CHECK(seen.size() == 11);
    CHECK(changes == 10);
}

TEST_CASE("the short chunk comes at any place in the course of epochs", "[unit][data]") {
    std::set<std::int64_t> places;
    for (std::int64_t epoch = 0; epoch < 60; ++epoch) {
        const std::vector<std::int64_t> ids = ids_of(Order(9, Shuffle::chunk, 1, epoch, 4), 9);
        places.insert(std::find(ids.begin(), ids.end(), 8) - ids.begin());
    }
    CHECK(places == std::set<std::int64_t>{0, 4, 8});
}

// 24 samples on 3 ranks over 3 epochs: nobody's sample is missed or seen twice.
TEST_CASE("the lanes of an epoch hold every sample exactly once", "[unit][data]") {
    const std::int64_t lanes = GENERATE(1, 2, 3, 5, 7), batch = GENERATE(1, 5, 8, 24, 100);
    const EpochPlan plan{24, batch, lanes, false};
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
        const Order order(24, Shuffle::full, 1, epoch);
        std::vector<std::int64_t> ids;
        for (std::int64_t step = 0; step < plan.steps(); ++step)
            for (std::int64_t lane = 0; lane < lanes; ++lane) {
                const Range part = plan.lane(step, lane);
                REQUIRE(part.size() <= plan.largest_lane());
                for (std::int64_t position = part.begin; position < part.end; ++position)
                    ids.push_back(order(position));
            }
        REQUIRE(ids == ids_of(order, 24));
    }
}

TEST_CASE("drop_last drops the short tail for everybody", "[unit][data]") {
    CHECK(EpochPlan{5, 8, 2, true}.steps() == 0);
    CHECK(EpochPlan{5, 8, 2, false}.steps() == 1);
    CHECK(EpochPlan{17, 8, 2, true}.steps() == 2);
    CHECK(EpochPlan{17, 8, 2, false}.step(2) == Range{16, 17});
    CHECK(EpochPlan{17, 8, 2, false}.lane(2, 1).empty());
}

TEST_CASE("shuffles are known by name", "[unit][data]") {
    CHECK(shuffle_from("full") == Shuffle::full);
    CHECK(shuffle_from("chunk") == Shuffle::chunk);
    CHECK(shuffle_from("none") == Shuffle::none);
    REQUIRE_THROWS_WITH(shuffle_from("some"),
                        contains("data.shuffle: expected full, chunk or none, found 'some'"));
}
