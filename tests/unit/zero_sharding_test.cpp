// Who keeps what of a sharded training state: from the table alone, without ranks.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "support/catch.hpp"
#include "support/lanes.hpp"
#include "trireme/optim/optimizer.hpp"
#include "trireme/parallel/training_state.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

/// Blocks of weights with a statistic each; the first weight is tied.
ParameterTable table_of(const std::vector<std::vector<std::int64_t>>& blocks, bool statistics = true) {
    ParameterTable table;
    for (const std::vector<std::int64_t>& block : blocks) {
        const std::string name = std::to_string(table.begin_block());
        for (std::size_t i = 0; i < block.size(); ++i)
            table.add({.name = name + "." + std::to_string(i), .shape = {block[i]}, .decay = block[i] > 20});
        if (statistics) table.add({.name = name + ".mean", .shape = {7}, .role = Role::statistic});
    }
    table.share(0, true);
    table.lay_out();
    return table;
}

const std::vector<std::vector<std::int64_t>> some_blocks = {{300}, {5, 40},        {},
                                                            {1},   {600, 30, 700}, {90, 17}};

std::int64_t size_of_all(const std::vector<Range>& pieces) {
    return std::accumulate(pieces.begin(), pieces.end(), std::int64_t{0},
                           [](std::int64_t sum, Range piece) { return sum + piece.size(); });
}

/// How often the ranks' pieces hold an element.
std::vector<int> counts(const ParameterTable& table, const std::vector<std::vector<Range>>& of_ranks) {
    std::vector<int> found(static_cast<std::size_t>(table.arena_size()));
    for (const std::vector<Range>& pieces : of_ranks)
        for (const Range piece : pieces)
            for (std::int64_t i = piece.begin; i < piece.end; ++i) ++found[static_cast<std::size_t>(i)];
    return found;
}

std::vector<Sharding> shardings(const ParameterTable& table, int stage, int ranks,
                                std::int64_t bucket_bytes) {
    std::vector<Sharding> all;
    for (int rank = 0; rank < ranks; ++rank)
        all.emplace_back(
            table,
            ShardingOptions{.stage = stage, .rank = rank, .ranks = ranks, .bucket_bytes = bucket_bytes});
    return all;
}

}  // namespace

TEST_CASE("buckets keep statistics, tied weights and unfinished blocks apart", "[unit][zero]") {
    const ParameterTable table = table_of(some_blocks);
    const BucketRules rules{.statistics_apart = true, .tied_apart = true, .whole_blocks = true};
    const auto sizes = [&](std::int64_t elements) {
        std::vector<std::int64_t> found;
        std::int64_t at = 0;
        for (const Range bucket : make_buckets(table, 4 * elements, rules)) {
            CHECK(bucket.begin == at);
            at = bucket.end;
            found.push_back(bucket.size());
        }
        CHECK(at == table.arena_size());
        return found;
    };
    // Six statistics of 16 with their gaps; then, last block first, 32+96, 704+32+608, 16, 48+16, 304 (tied).
    using Sizes = std::vector<std::int64_t>;
    CHECK(sizes(10000) == Sizes{96, 1552, 304});
    CHECK(sizes(1400) == Sizes{96, 128, 1344 + 16, 64, 304});
    CHECK(sizes(800) == Sizes{96, 128, 736, 608, 80, 304});
    CHECK(sizes(100) == Sizes{96, 32, 96, 704, 32, 608, 80, 304});
    CHECK(sizes(1) == Sizes{16, 16, 16, 16, 16, 16, 32, 96, 704, 32, 608, 16, 48, 16, 304});
}

TEST_CASE("shards are aligned, even and cover a bucket", "[unit][zero]") {
    for (const std::int64_t steps : {0, 1, 3, 4, 9, 64})
        for (const int ranks : {1, 2, 3, 4, 7}) {
            const Range bucket{32, 32 + 16 * steps};
            std::int64_t at = bucket.begin;
            for (int rank = 0; rank < ranks; ++rank) {
                const Range shard = shard_of(bucket, ranks, rank);
                CHECK(shard.begin == at);
                CHECK(shard.size() % parameter_alignment == 0);
                CHECK(shard.size() / parameter_alignment - steps / ranks <= 1);
                CHECK(shard.size() / parameter_alignment >= steps / ranks);
                at = shard.end;
            }
            CHECK(at == bucket.end);
        }
}

TEST_CASE("the ranks' pieces make up each column as the stage says", "[unit][zero]") {
    const ParameterTable table = table_of(some_blocks);
    for (const int stage : {0, 1, 2, 3})
        for (const int ranks : {1, 2, 3, 4, 40})
            for (const std::int64_t bytes : {4, 400, 3200, 40000}) {
                INFO("stage " << stage << ", " << ranks << " ranks, buckets of " << bytes);
                const std::vector<Sharding> all = shardings(table, stage, ranks, bytes);
                CHECK(all[0].stage() == (ranks > 1 ? stage : 0));
                std::vector<std::vector<Range>> weights, gradients, states, updated;
                for (const Sharding& one : all) {
                    weights.push_back(one.pieces().weights);
                    gradients.push_back(one.pieces().gradients);
                    states.push_back(one.pieces().states);
                    updated.push_back(one.pieces().updated);
                }
                const std::vector<int> w = counts(table, weights), g = counts(table, gradients),
                                       s = counts(table, states), u = counts(table, updated);
                const int whole = ranks, stages = ranks > 1 ? stage : 0;
                bool right = true;
                for (const Parameter& p : table.all())
                    for (auto i = static_cast<std::size_t>(p.place.begin);
                         i < static_cast<std::size_t>(p.place.end); ++i) {
                        const bool weight = p.role == Role::weight;
                        right = right && w[i] == (stages < 3 || !weight || p.tied ? whole : 1) &&
                                g[i] == (stages < 2 || !weight || p.tied ? whole : 1) &&
                                u[i] == (stages < 1 || !weight ? whole : 1) &&
                                (!weight || s[i] == (stages < 1 ? whole : 1));
                    }
                CHECK(right);
                // As much on one rank as on another, up to the last step of each bucket.
                const std::int64_t most = size_of_all(states.front()), least = size_of_all(states.back());
                CHECK(most - least <=
                      parameter_alignment * static_cast<std::int64_t>(all[0].buckets().size()));
            }
}

TEST_CASE("no parameter spans two pieces of a rank", "[unit][zero]") {
    const ParameterTable table = table_of(some_blocks);
    for (const std::int64_t bytes : {4, 400, 3200, 40000})
        for (const Sharding& sharding : shardings(table, 3, 3, bytes))
            for (const std::vector<Range>* pieces : {&sharding.pieces().weights, &sharding.pieces().updated})
                for (const Parameter& p : table.all())
                    CHECK(std::count_if(pieces->begin(), pieces->end(), [&](Range piece) {
                              return !intersect(piece, p.place).empty();
                          }) <= 1);
}

TEST_CASE("units: blocks that share a bucket, buckets that share a block", "[unit][zero]") {
    const ParameterTable table = table_of(some_blocks);
    const auto units_of = [&](std::int64_t elements) {
        const Sharding sharding(table, {.stage = 3, .ranks = 2, .bucket_bytes = 4 * elements});
        std::vector<int> units;
        for (int block = 0; block < table.blocks(); ++block) units.push_back(sharding.unit_of(block));
        std::int64_t sum = 0;
        for (const WindowUnit& unit : sharding.units()) sum += unit.size;
        CHECK(sum == 1552);
        return units;
    };
    using Units = std::vector<int>;  // by block; blocks 0 (tied) and 2 (empty) are in none
    CHECK(units_of(10000) == Units{-1, 0, -1, 0, 0, 0});
    CHECK(units_of(800) == Units{-1, 2, -1, 2, 1, 0});  // the large block has two buckets
    CHECK(units_of(1) == Units{-1, 3, -1, 2, 1, 0});
}

TEST_CASE("bytes by hand", "[unit][zero]") {
    // Two blocks of 4096 weights, 16 of a statistic and a tied 1024: 9216 weights on four ranks.
    ParameterTable table;
    table.begin_block();
    table.add({.name = "embed", .shape = {1024}});
    table.begin_block();
    table.add({.name = "a", .shape = {4096}, .operand = true});
    table.add({.name = "mean", .shape = {16}, .role = Role::statistic});
    table.begin_block();
    table.add({.name = "b", .shape = {4080}, .operand = true});
    table.add({.name = "bias", .shape = {16}});
    table.share(0, true);
    table.lay_out();
    TrainingStateOptions options{
        .bucket_bytes = 4 * 4096,
        .arena = {.state_names = {"m", "v"}, .compute = DType::bf16, .average = true}};
    const auto bytes = [&](int stage, int ranks) {
        options.stage = stage;
        return state_bytes(table, ranks - 1, ranks, options);
    };
    constexpr std::int64_t all = 9216 + 16, shard = 9216 / 4, kept = 8192 / 4 + 1024 + 16;
    CHECK(
        bytes(3, 1) ==
        StateBytes{
            .weights = 4 * all, .low = 2 * all, .gradients = 4 * all, .states = 8 * all, .average = 4 * all});
    const StateBytes one{.weights = 4 * all,
                         .low = 2 * all,
                         .gradients = 4 * all,
                         .states = 8 * shard,
                         .average = 4 * (shard + 16),
                         .buffers = 4 * 1024};
    CHECK(bytes(1, 4) == one);
    StateBytes two = one;
    two.gradients = 4 * kept;
    two.gradient_windows = 4 * 4096;
    CHECK(bytes(2, 4) == two);
    StateBytes three = two;
    three.weights = 4 * kept;
    three.low = 2 * kept;
    three.weight_windows = 2 * 4096 + 4 * 16;
    CHECK(bytes(3, 4) == three);

    options.overlap = true;  // two windows of each kind
    three.gradient_windows *= 2;
    three.weight_windows *= 2;
    CHECK(bytes(3, 4) == three);
    options.eval_average = true;  // the tied weights, in stage 1 all
    three.buffers += 4 * 1024 / 4;
    CHECK(bytes(3, 4) == three);
    CHECK(bytes(1, 4).buffers == one.buffers + 4 * shard);
    options.reducer.wire = DType::bf16;  // a bucket, and every rank's share of one part of it
    CHECK(bytes(1, 4).buffers == 2 * 4096 + 2 * 4096 + 4 * shard);
    CHECK(bytes(0, 4).buffers == 2 * 4096 + 2 * 4096);
}

TEST_CASE("columns of pieces, and over the memory of others", "[unit][zero]") {
    const auto device = make_device("cpu");
    const ParameterTable table = table_of({{20}, {30}});
    const Column pieces(*device, {{16, 32}, {64, 80}}, "pieces");
    CHECK(pieces.bytes() == 32 * sizeof(float));
    CHECK(pieces.held({0, 20}) == Range{16, 20});
    CHECK(pieces.held({32, 64}) == Range{});
    CHECK(pieces.held({30, 100}) == Range{30, 32});
    CHECK(pieces.range({70, 72}).as<float>() == pieces.whole().as<float>() + 22);
    CHECK_THROWS(pieces.range({30, 40}));
    CHECK_THROWS(pieces.range({100, 101}));

    std::vector<float> other(16);
    const Column both({{{0, 16}, other.data()}, {{16, 32}, pieces.range({16, 32}).data}}, "both", DType::f32);
    CHECK(both.bytes() == 0);
    CHECK(both.range({3, 5}).as<float>() == other.data() + 3);
    CHECK(both.range({17, 20}).as<float>() == pieces.whole().as<float>() + 1);
    CHECK_THROWS(both.range({15, 17}));
}

TEST_CASE("an update in pieces is the update of the whole, bit by bit", "[unit][zero]") {
    const std::string name = GENERATE("sgd", "adamw", "lion");
    const OptimizerOptions options{.name = name, .momentum = name == "sgd" ? 0.9 : 0.0, .weight_decay = 0.1};
    const auto device = make_device("cpu");
    const auto ops = make_ops(*device, 1);
    const auto optimizer = make_optimizer(options);
    const ParameterTable table = table_of(some_blocks);
    const auto fill = [&](Arena& arena) {
        for (Column* column : {&arena.weights, &arena.gradients})
            for (const Column::Piece& piece : column->pieces())
                ops->fill_normal(RandomStream(column == &arena.weights ? 1 : 2, Purpose::init, 3),
                                 piece.range.begin, 0, 1, column->range(piece.range));
    };
    const ArenaOptions columns{
        .state_names = optimizer->state_names(), .compute = DType::bf16, .average = true};
    Arena whole(*device, table, columns);
    UpdatePass all(*optimizer, table, options);
    double sum = 0, sum_of_parts = 0;
    for (std::int64_t step = 1; step < 4; ++step) {
        fill(whole);
        sum = 0;
        all.apply(*ops, whole, {.lr = 0.1, .step = step, .average_decay = 0.9}, &sum);
    }
    for (const int stage : {1, 2, 3}) {
        sum_of_parts = 0;
        for (const Sharding& sharding : shardings(table, stage, 3, 800)) {
            ArenaOptions here = columns;
            here.pieces = sharding.pieces();
            Arena arena(*device, table, here);
            UpdatePass mine(*optimizer, table, options, nullptr, sharding.pieces().updated);
            double share = 0;
            for (std::int64_t step = 1; step < 4; ++step) {
                fill(arena);
                share = 0;
                mine.apply(*ops, arena, {.lr = 0.1, .step = step, .average_decay = 0.9}, &share);
            }
            sum_of_parts += share;
            const auto same = [&](const Column& a, const Column& b, const std::vector<Range>& pieces) {
                return std::all_of(pieces.begin(), pieces.end(), [&](Range piece) {
                    const View x = a.range(piece), y = b.range(piece);
                    return std::memcmp(x.data, y.data, x.bytes()) == 0;
                });
            };
            const ArenaPieces& pieces = sharding.pieces();
            CHECK(same(arena.weights, whole.weights, pieces.updated));
            CHECK(same(*arena.low, *whole.low, pieces.states));
            CHECK(same(*arena.average, *whole.average, pieces.updated));
            for (std::size_t s = 0; s < arena.states.size(); ++s)
                CHECK(same(arena.states[s], whole.states[s], pieces.states));
        }
        CHECK(sum_of_parts == Approx(sum).epsilon(1e-9));
    }
}
