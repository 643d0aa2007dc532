// Gradient reduction: whatever the ranks, the sum over all lanes; in the reproducible mode the same bits.
#include <mpi.h>

#include <cstring>

#include "comm/mpi_communicator.hpp"
#include "support/lanes.hpp"
#include "trireme/parallel/lane_tree.hpp"
#include "trireme/parallel/training_state.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

/// What lane `lane` leaves at element i: values whose sum depends on the order of adding.
float contribution(std::int64_t lane, std::int64_t i) {
    const RandomStream stream(77, Purpose::augment, static_cast<std::uint64_t>(lane));
    const float magnitude[] = {1.0F, 1e-4F, 3e3F};
    return (unit_interval(stream.word(static_cast<std::uint64_t>(i))) - 0.5F) * magnitude[(lane + i) % 3];
}

const std::vector<std::string> mlp = {"linear out=13", "tanh", "linear out=7", "tanh", "linear out=classes"};

struct Reduction {
    std::vector<float> sum;
    std::int64_t collectives = 0;
};

Reduction reduce(Communicator& data, std::int64_t lanes, bool reproducible, bool overlap, int workers,
                 std::int64_t bucket_bytes, std::int64_t empty_from = 1 << 20, DType wire = DType::f32,
                 const std::vector<std::string>& layers = mlp) {
    Rig rig(layers, {11}, 3, 4);
    const ParameterTable& table = rig.model.table();
    const ReducerOptions options{.lanes = lanes,
                                 .my_lanes = part_of({0, lanes}, data.size(), data.rank()),
                                 .workers = workers,
                                 .reproducible = reproducible,
                                 .wire = wire};
    TrainingState state(data, *rig.device, table,
                        {.bucket_bytes = bucket_bytes, .overlap = overlap, .reducer = options});
    GradientReducer* const reducer = state.reducer.get();
    std::int64_t last = -1;
    for (std::int64_t lane = options.my_lanes.begin; lane < options.my_lanes.end; ++lane)
        if (lane < empty_from) last = lane;
    for (int round = 0; round < 3; ++round) {  // a second and third step find the buffers used
        reducer->begin_step();
        for (int w = 0; w < workers; ++w)
            for (std::int64_t lane = reducer->lanes_of(w).begin; lane < reducer->lanes_of(w).end; ++lane) {
                const auto target = reducer->begin_lane(w, lane);
                if (lane < empty_from)
                    for (const Parameter& p : table.all())
                        for (std::int64_t i = p.place.begin; i < p.place.end; ++i) {
                            float& g = target.gradients->whole().as<float>()[i];
                            g = (target.adds_up && lane != options.my_lanes.begin ? g : 0.0F) +
                                contribution(lane, i);
                        }
                if (lane == last)
                    for (int id = table.count() - 1; id >= 0; --id)
                        reducer->finished_below(table.finished_after(id));
                reducer->end_lane(*rig.ops, w, lane, lane >= empty_from);
            }
        reducer->finish_step(*rig.ops);
    }
    Reduction result;
    for (const Parameter& p : table.all())
        for (std::int64_t i = p.place.begin; i < p.place.end; ++i)
            result.sum.push_back(state.arena.gradients.whole().as<float>()[i]);
    result.collectives = reducer->collectives() / 3;
    return result;
}

std::vector<double> exact_sum(std::int64_t lanes, const std::vector<std::string>& layers = mlp) {
    Rig rig(layers, {11}, 3, 4);
    std::vector<double> sum;
    for (const Parameter& p : rig.model.table().all())
        for (std::int64_t i = p.place.begin; i < p.place.end; ++i) {
            double total = 0;
            for (std::int64_t lane = 0; lane < lanes; ++lane) total += contribution(lane, i);
            sum.push_back(total);
        }
    return sum;
}

void check_close(const std::vector<float>& found, const std::vector<double>& expected) {
    REQUIRE(found.size() == expected.size());
    double worst = 0;
    for (std::size_t i = 0; i < found.size(); ++i) worst = std::max(worst, std::abs(found[i] - expected[i]));
    CHECK(worst < 2e-3);  // of sums of terms of up to 1500, in float32
}

}  // namespace

TEST_CASE("fast reduction sums all lanes of all ranks", "[mpi][parallel]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    const auto lanes = GENERATE(std::int64_t{1}, std::int64_t{3}, std::int64_t{4}, std::int64_t{9});
    const auto overlap = GENERATE(false, true);
    const auto bytes = GENERATE(std::int64_t{1}, std::int64_t{300}, std::int64_t{1} << 20);
    check_close(reduce(world, lanes, false, overlap, 1, bytes).sum, exact_sum(lanes));
}

TEST_CASE("lanes without samples add nothing", "[mpi][parallel]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    const auto reproducible = GENERATE(false, true);
    for (const std::int64_t filled : {0, 1, 2, 5})
        check_close(reduce(world, 6, reproducible, false, 1, 300, filled).sum, exact_sum(filled));
}

TEST_CASE("accumulation costs no collective before the last lane", "[mpi][parallel]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    const std::int64_t one = reduce(world, world.size(), false, false, 1, 300).collectives;
    CHECK(reduce(world, 4 * world.size(), false, false, 1, 300).collectives == one);
    CHECK(one == (world.size() > 1 ? 4 : 0));  // 16+32+16, 96, 16 and 144 elements at 75 a bucket
}

TEST_CASE("gradients on a bfloat16 wire are rounded twice, statistics are not", "[mpi][parallel]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    const std::vector<std::string> layers = {"linear out=13", "batchnorm", "linear out=classes"};
    Rig rig(layers, {11}, 3, 4);
    const std::int64_t lanes = 2 * world.size();
    for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{300}, std::int64_t{1} << 20})
        for (const bool overlap : {false, true}) {
            const Reduction found =
                reduce(world, lanes, false, overlap, 1, bytes, 1 << 20, DType::bf16, layers);
            const std::vector<double> exact = exact_sum(lanes, layers);
            std::size_t at = 0;
            bool rounded_somewhere = false;
            for (const Parameter& p : rig.model.table().all())
                for (std::int64_t i = p.place.begin; i < p.place.end; ++i, ++at) {
                    double terms = 0;  // what the ranks' own sums may amount to
                    for (std::int64_t lane = 0; lane < lanes; ++lane)
                        terms += std::abs(static_cast<double>(contribution(lane, i)));
                    const double error = std::abs(static_cast<double>(found.sum[at]) - exact[at]);
                    const bool exactly = p.role == Role::statistic || world.size() == 1;
                    REQUIRE(error <= (exactly ? 1e-6 : 1.0 / 128) * terms + 1e-12);
                    rounded_somewhere = rounded_somewhere || error > 1e-4 * terms;
                }
            CHECK(rounded_somewhere == (world.size() > 1));
        }
}

TEST_CASE("reproducible reduction has the bits of the tree on any number of ranks", "[mpi][parallel]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    MpiCommunicator self(MPI_COMM_SELF, false);
    const auto lanes =
        GENERATE(std::int64_t{1}, std::int64_t{2}, std::int64_t{5}, std::int64_t{8}, std::int64_t{13});
    const std::vector<float> alone = reduce(self, lanes, true, false, 1, 1 << 20).sum;
    check_close(alone, exact_sum(lanes));
    for (const int workers : {1, 2, 3})
        for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{500}, std::int64_t{1} << 20}) {
            const std::vector<float> together = reduce(world, lanes, true, false, workers, bytes).sum;
            CHECK(std::memcmp(alone.data(), together.data(), alone.size() * sizeof(float)) == 0);
        }
}
