// Sharded training states: steps of several ranks against those of one rank with everything, memory,
// collectives, and what a skipped step leaves.
#include <mpi.h>

#include <algorithm>
#include <cstring>

#include "comm/mpi_communicator.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/replica.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

using Setup = ReplicaSetup;
const std::vector<std::string>& mlp = replica_mlp;
const std::vector<std::string>& gpt = replica_gpt;

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
    REQUIRE(a.size() == b.size());
    double largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
        largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    return largest;
}

/// Whether all ranks have the same of a column, where they have all of it.
bool same_on_all(Communicator& world, const Column& column) {
    const View mine = column.whole();
    std::vector<unsigned char> first(static_cast<const unsigned char*>(mine.data),
                                     static_cast<const unsigned char*>(mine.data) + mine.bytes());
    world.broadcast(view_of(first.data(), Shape{static_cast<std::int64_t>(first.size())}), 0);
    return std::memcmp(first.data(), mine.data, mine.bytes()) == 0;
}

}  // namespace

TEST_CASE("steps of a sharded state are those of one rank", "[mpi][zero]") {
    MpiCommunicator world(MPI_COMM_WORLD, false), self(MPI_COMM_SELF, false);
    const auto layers = GENERATE(0, 1) == 0 ? mlp : gpt;
    const std::string optimizer = GENERATE("sgd", "adamw", "lamb", "lars");
    const double lr = optimizer == "sgd" ? 0.05 : optimizer == "lars" ? 0.5 : 0.002;
    const std::int64_t lanes = GENERATE(1, 5);
    Setup setup{.lanes = lanes, .optimizer = optimizer, .clip = optimizer == "adamw" ? 1.0 : 0.0};
    Replica one(self, layers, setup);
    std::vector<StepResult> results;
    for (int k = 0; k < 10; ++k) results.push_back(one.train(1, lr));
    for (const int stage : {1, 2, 3})
        for (const bool overlap : {false, true})
            for (const std::int64_t bytes : {64, 3000, 1 << 20}) {
                INFO(optimizer << ", " << layers[0] << ", " << lanes << " lanes, stage " << stage
                               << ", overlap " << overlap << ", buckets of " << bytes);
                setup.stage = stage;
                setup.overlap = overlap;
                setup.bucket_bytes = bytes;
                Replica here(world, layers, setup);
                for (std::size_t k = 0; k < 10; ++k) {
                    const StepResult found = here.train(1, lr);
                    CHECK(found.loss == Approx(results[k].loss).epsilon(k == 0 ? 1e-6 : 1e-4));
                    CHECK(found.gradient_norm == Approx(results[k].gradient_norm).epsilon(1e-3));
                }
                CHECK(largest_difference(here.whole(here.state.arena.weights),
                                         one.whole(one.state.arena.weights)) <
                      (optimizer == "sgd" ? 1e-5 : 3e-5));
                if (stage < 3) CHECK(same_on_all(world, here.state.arena.weights));
            }
}

TEST_CASE("ranks without lanes and lanes without samples take part", "[mpi][zero]") {
    MpiCommunicator world(MPI_COMM_WORLD, false), self(MPI_COMM_SELF, false);
    for (const auto& layers : {mlp, gpt})
        for (const std::int64_t lanes : {1, 3, 6})
            for (const std::int64_t samples : {1, 4}) {
                Setup setup{.bucket_bytes = 2000, .lanes = lanes};
                Replica one(self, layers, setup);
                one.make_lanes(samples);
                std::vector<double> losses;
                for (int k = 0; k < 4; ++k) losses.push_back(one.train().loss);
                for (const int stage : {1, 2, 3})
                    for (const bool overlap : {false, true}) {
                        INFO("stage " << stage << ", " << lanes << " lanes, " << samples << " samples");
                        setup.stage = stage;
                        setup.overlap = overlap;
                        Replica here(world, layers, setup);
                        here.make_lanes(samples);
                        for (const double loss : losses)
                            CHECK(here.train().loss == Approx(loss).epsilon(1e-5));
                        CHECK(largest_difference(here.whole(here.state.arena.weights),
                                                 one.whole(one.state.arena.weights)) < 1e-5);
                        CHECK(here.evaluate(WeightKind::current) ==
                              Approx(one.evaluate(WeightKind::current)).epsilon(1e-5));
                    }
            }
}

TEST_CASE("case 20: a tied weight stays one weight on ranks that update parts of it", "[mpi][zero]") {
    MpiCommunicator world(MPI_COMM_WORLD, false), self(MPI_COMM_SELF, false);
    Setup setup{.lanes = 2 * world.size()};
    Replica one(self, gpt, setup);
    for (const int stage : {1, 2, 3}) {
        setup.stage = stage;
        Replica here(world, gpt, setup);
        const Parameter& tied = here.model.table()[0];
        REQUIRE(tied.tied);
        if (stage == 1) one.train();
        here.train();
        // The gradient is the sum of both uses, in the part that this rank updates.
        for (const Range piece : here.state.sharding.pieces().updated) {
            const Range part = intersect(piece, tied.place);
            for (std::int64_t i = part.begin; i < part.end; ++i)
                CHECK(*here.state.arena.gradients.range({i, i + 1}).as<float>() ==
                      Approx(*one.state.arena.gradients.range({i, i + 1}).as<float>()).margin(1e-6));
        }
        for (int k = 0; k < 4; ++k) {
            here.train();
            const View mine = here.state.arena.weights.of(tied);
            std::vector<float> first(mine.as<float>(), mine.as<float>() + mine.count());
            world.broadcast(view_of(first.data(), Shape{mine.count()}), 0);
            CHECK(std::memcmp(first.data(), mine.data, mine.bytes()) == 0);
        }
    }
}

TEST_CASE("what is allocated is what the plan says", "[mpi][zero]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    for (const auto& layers : {mlp, gpt})
        for (const int stage : {0, 1, 2, 3})
            for (const bool overlap : {false, true})
                for (const DType compute : {DType::f32, DType::bf16})
                    for (const DType wire : {DType::f32, DType::bf16})
                        for (const bool average : {false, true})
                            for (const std::int64_t bytes : {64, 2000, 1 << 20}) {
                                INFO("stage " << stage << ", buckets of " << bytes);
                                const Replica model(world, layers,
                                                    {.stage = stage,
                                                     .overlap = overlap,
                                                     .bucket_bytes = bytes,
                                                     .compute = compute,
                                                     .wire = wire,
                                                     .optimizer = "adamw",
                                                     .average = average});
                                const StateBytes planned = state_bytes(model.model.table(), world.rank(),
                                                                       world.size(), model.state_options);
                                CHECK(model.state.bytes() == planned);
                                CountingDevice device;
                                const TrainingState state(world, device, model.model.table(),
                                                          model.state_options);
                                CHECK(device.bytes() == planned.total());
                            }
}

TEST_CASE("a steady step of a sharded state allocates nothing", "[mpi][zero]") {
    if (!can_count_allocations()) {
        WARN("skipped: allocations are not counted under the address sanitizer");
        return;
    }
    MpiCommunicator world(MPI_COMM_WORLD, false);
    for (const int stage : {1, 2, 3})
        for (const bool overlap : {false, true})
            for (const DType compute : {DType::f32, DType::bf16}) {
                INFO("stage " << stage << ", overlap " << overlap);
                Replica here(world, gpt,
                             {.stage = stage,
                              .overlap = overlap,
                              .bucket_bytes = 2000,
                              .lanes = 5,
                              .compute = compute,
                              .optimizer = "lamb",
                              .clip = 1,
                              .average = true});
                for (int warm = 0; warm < 2; ++warm) here.train();
                world.barrier();
                count_allocations();
                for (int steady = 0; steady < 5; ++steady) here.train();
                const Allocations found = allocations();
                CHECK(found.ours == 0);
                CHECK(found.live == 0);
            }
}

TEST_CASE("collectives of each stage", "[mpi][zero]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    if (world.size() == 1) return;
    for (const std::int64_t turns : {1, 3})
        for (const bool overlap : {false, true}) {
            const auto of_step = [&](int stage, const std::vector<std::string>& layers) {
                Replica here(world, layers,
                             {.stage = stage,
                              .overlap = overlap,
                              .bucket_bytes = 2000,
                              .lanes = turns * world.size()});
                here.train();
                const std::int64_t before = here.collectives();
                here.train();
                return here.collectives() - before;
            };
            INFO(turns << " turns, overlap " << overlap);
            // Units of c, of b in two buckets, and of n and a in one; statistics have a bucket of their own.
            const Replica plan(world, mlp, {.stage = 2, .bucket_bytes = 2000});
            REQUIRE(plan.state.sharding.units().size() == 3);
            REQUIRE(plan.state.sharding.buckets().size() == 5);
            // Reduced, and gathered after the update, once a step however many lanes there are.
            CHECK(of_step(1, mlp) == 1 + 3 + 3);  // buckets need not keep to blocks
            CHECK(of_step(2, mlp) == 1 + 4 * turns + 4);
            // Gathered forward and backward, but for what is there still from the pass before: with one
            // window the unit where it turned round, with two windows its neighbour too.
            const std::int64_t first_turn = overlap ? 4 + 1 : 4 + 3, other_turns = overlap ? 1 + 1 : 3 + 3;
            CHECK(of_step(3, mlp) == 1 + 4 * turns + first_turn + (turns - 1) * other_turns);
        }
}

TEST_CASE("a skipped step leaves every bit, and the same culprit, on all ranks", "[mpi][zero]") {
    MpiCommunicator world(MPI_COMM_WORLD, false), self(MPI_COMM_SELF, false);
    Setup setup{.bucket_bytes = 2000, .compute = DType::f16, .optimizer = "adamw", .average = true};
    Replica one(self, mlp, setup);
    one.train(1024);
    const StepResult expected = one.train(1e9);
    REQUIRE(expected.skipped);
    for (const int stage : {1, 2, 3})
        for (const bool overlap : {false, true}) {
            INFO("stage " << stage << ", overlap " << overlap);
            setup.stage = stage;
            setup.overlap = overlap;
            Replica here(world, mlp, setup), undisturbed(world, mlp, setup);
            REQUIRE_FALSE(here.train(1024).skipped);
            undisturbed.train(1024);
            const std::vector<unsigned char> before = here.bits();
            const StepResult result = here.train(1e9);
            CHECK(result.skipped);
            CHECK(result.culprit == expected.culprit);
            CHECK(here.bits() == before);
            here.done = undisturbed.done = 1;
            CHECK(here.train(1024).loss == undisturbed.train(1024).loss);
            CHECK(here.bits() == undisturbed.bits());
            CHECK(here.bits() != before);
        }
}

TEST_CASE("layers read the rounded weights of all ranks", "[mpi][zero]") {
    MpiCommunicator world(MPI_COMM_WORLD, false), self(MPI_COMM_SELF, false);
    const DType compute = GENERATE(DType::bf16, DType::f16);
    for (const auto& layers : {mlp, gpt}) {
        Setup setup{.bucket_bytes = 2000, .compute = compute};
        Replica one(self, layers, setup);
        std::vector<double> losses;
        for (int k = 0; k < 6; ++k) losses.push_back(one.train(8).loss);
        for (const int stage : {1, 2, 3})
            for (const bool overlap : {false, true}) {
                INFO("stage " << stage << ", overlap " << overlap);
                setup.stage = stage;
                setup.overlap = overlap;
                Replica here(world, layers, setup);
                for (std::size_t k = 0; k < losses.size(); ++k)
                    CHECK(here.train(8).loss == Approx(losses[k]).epsilon(k == 0 ? 1e-6 : 2e-3));
                for (const Parameter& p : here.model.table().all()) {
                    const Range held = here.state.arena.weights.held(p.place);
                    for (std::int64_t i = held.begin; p.role == Role::weight && i < held.end; ++i) {
                        const View wide = here.state.arena.weights.range({i, i + 1}),
                                   low = here.state.arena.low->range({i, i + 1});
                        REQUIRE(value_of(compute, *static_cast<std::uint16_t*>(low.data)) ==
                                rounded(compute, static_cast<double>(*wide.as<float>())));
                    }
                }
            }
    }
}

TEST_CASE("the average is gathered for validation and leaves no trace", "[mpi][zero]") {
    MpiCommunicator world(MPI_COMM_WORLD, false), self(MPI_COMM_SELF, false);
    for (const auto& layers : {mlp, gpt})
        for (const DType compute : {DType::f32, DType::bf16}) {
            Setup setup{.bucket_bytes = 2000, .compute = compute, .average = true};
            Replica one(self, layers, setup);
            for (int k = 0; k < 3; ++k) one.train();
            const double current = one.evaluate(WeightKind::current),
                         average = one.evaluate(WeightKind::average);
            REQUIRE(std::abs(current - average) > 1e-3 * current);
            for (const int stage : {1, 2, 3})
                for (const bool overlap : {false, true}) {
                    INFO("stage " << stage << ", overlap " << overlap);
                    setup.stage = stage;
                    setup.overlap = overlap;
                    Replica here(world, layers, setup), undisturbed(world, layers, setup);
                    for (int k = 0; k < 3; ++k) {
                        here.train();
                        undisturbed.train();
                    }
                    const std::vector<unsigned char> before = here.bits();
                    const double close = compute == DType::f32 ? 1e-5 : 2e-3;
                    CHECK(here.evaluate(WeightKind::average) == Approx(average).epsilon(close));
                    CHECK(here.bits() == before);
                    CHECK(here.evaluate(WeightKind::current) == Approx(current).epsilon(close));
                    here.train();
                    undisturbed.train();
                    CHECK(here.bits() == undisturbed.bits());
                }
        }
}

TEST_CASE("sharded gradients on a bfloat16 wire", "[mpi][zero]") {
    MpiCommunicator world(MPI_COMM_WORLD, false), self(MPI_COMM_SELF, false);
    Setup setup{.bucket_bytes = 2000, .lanes = 5};
    Replica one(self, mlp, setup);
    one.train();
    const std::vector<float> exact = one.whole(one.state.arena.weights);
    Replica start(self, mlp, setup);
    const double moved = largest_difference(exact, start.whole(start.state.arena.weights));
    setup.wire = DType::bf16;
    for (const int stage : {1, 2, 3})
        for (const bool overlap : {false, true}) {
            setup.stage = stage;
            setup.overlap = overlap;
            Replica here(world, mlp, setup);
            here.train();
            const double apart = largest_difference(here.whole(here.state.arena.weights), exact);
            CHECK(apart < moved / 100);
            CHECK((apart > moved / 1e5) == (world.size() > 1));
        }
}
