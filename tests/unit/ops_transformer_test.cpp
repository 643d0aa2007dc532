// The verbs of transformers, in every real type and mixed: each computes in float32 and rounds once.
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "reference/transformer.hpp"
#include "support/allocations.hpp"
#include "support/devices.hpp"
#include "support/op_cases.hpp"
#include "support/split_loss.hpp"
#include "support/tensors.hpp"
#include "trireme/base/error.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr DType f32 = DType::f32, bf16 = DType::bf16, f16 = DType::f16;
constexpr float eps = 1e-5F;

using Types = std::array<DType, 3>;

/// Types of a verb's operands: each type throughout, then mixtures in which every pair differs somewhere.
std::vector<Types> mixed_types() {
    return {{f32, f32, f32},   {bf16, bf16, bf16}, {f16, f16, f16}, {f32, bf16, f16},
            {bf16, f32, bf16}, {f16, f16, f32},    {f32, f32, bf16}};
}

std::string text(const Types& types) {
    std::string result;
    for (const DType type : types) result += " " + std::string(name_of(type));
    return result;
}

/// Also rows longer than what is converted at once.
std::vector<MatrixCase> row_cases() {
    std::vector<MatrixCase> cases = norm_cases();
    cases.insert(cases.end(), {{0, 3}, {3, 5003}, {35, 1025}});
    return cases;
}

Values sum_of(Values a, const Values& b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
}

void require_refused(const std::function<void()>& call, const std::string& message) {
    try {
        call();
        FAIL("no error");
    } catch (const Error& error) {
        REQUIRE_THAT(error.what(), contains(message));
    }
}

/// How C classes may be split, unevenly; a rank may have none.
std::vector<std::vector<std::int64_t>> part_cases(std::int64_t classes) {
    const std::int64_t third = classes / 3, rest = classes - third;
    return {{classes},    {third, rest},       {rest - rest / 4, third, rest / 4},
            {0, classes}, {1, 0, classes - 1}, {classes, 0}};
}

std::vector<MatrixCase> split_cases() {
    return {{1, 2}, {3, 7}, {13, 17}, {5, 2500}, {130, 10}, {2, 1}};
}

/// Of the logits and of their gradient.
std::vector<std::pair<DType, DType>> split_types() {
    return {{f32, f32}, {bf16, bf16}, {f16, f16}, {bf16, f32}};
}

void require_equal(const SplitResult& got, const reference::Loss& want, DType type) {
    REQUIRE(got.loss == Approx(want.loss).epsilon(1e-6).margin(1e-6));
    REQUIRE(got.count == want.count);
    REQUIRE(got.correct == want.correct);
    const double step = type == bf16 ? 1.0 / 128 : type == f16 ? 1.0 / 1024 : 0;
    require_close(got.gradient, rounded(type, want.gradient), 1e-5 + step, 1e-6);
}

}  // namespace

TEST_CASE("rmsnorm forward", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const auto& [rows, columns] : row_cases())
        for (const Types& types : mixed_types()) {
            INFO(rows << "x" << columns << text(types));
            const Values x = rounded(types[0], random_values(rows * columns, 1, -2, 5)),
                         gamma = random_values(columns, 2, 0.5, 2);
            const reference::RmsNormalized want = reference::rmsnorm(x, gamma, static_cast<double>(eps));
            const Real tx = machine.real(types[0], {rows, columns}, x),
                       y = machine.real_output(types[1], {rows, columns});
            const Tensor tg = machine.tensor({columns}, gamma), inv_rms = machine.output({rows});
            machine.ops->rmsnorm_forward({tx, y, tg, eps, inv_rms});
            require_close(y, want.y, 1e-6, 1e-6);
            require_close(inv_rms, want.inv_rms, 1e-6, 0);
        }
}

TEST_CASE("rmsnorm backward, in place too", "[unit][ops][many-elements]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const auto& [rows, columns] : row_cases())
        for (const Types& types : mixed_types()) {
            INFO(rows << "x" << columns << text(types));
            const Values x = rounded(types[0], random_values(rows * columns, 1, -2, 5)),
                         dy = rounded(types[1], random_values(rows * columns, 2)),
                         gamma = random_values(columns, 3, 0.5, 2), old = random_values(columns, 4);
            const reference::RmsGradients want =
                reference::rmsnorm_backward(x, gamma, dy, static_cast<double>(eps));
            const Real tx = machine.real(types[0], {rows, columns}, x),
                       d = machine.real(types[1], {rows, columns}, dy),
                       y = machine.real_output(types[2], {rows, columns}),
                       dx = machine.real_output(types[2], {rows, columns});
            const Tensor tg = machine.tensor({columns}, gamma), inv_rms = machine.output({rows});
            const Tensor d_gamma = machine.output({columns}), added = machine.tensor({columns}, old);
            const RmsNorm args{tx, y, tg, eps, inv_rms};
            machine.ops->rmsnorm_forward(args);
            machine.ops->rmsnorm_backward(args, d, dx, d_gamma, false);
            machine.ops->rmsnorm_backward(args, d, d, added, true);
            // A row of one column has nothing but rounding left: g - x̂·(g·x̂) with x̂ = ±1.
            const double absolute = columns < 3 ? 1e-4 : 5e-6;
            require_close(dx, want.dx, 1e-5, absolute);
            require_close(d, want.dx, 1e-5, absolute);
            require_close(d_gamma, want.d_gamma, 1e-5, 1e-5);
            require_close(added, sum_of(want.d_gamma, old), 1e-5, 1e-5);
        }
}

TEST_CASE("rmsnorm of tiny, huge and zero rows", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    const Values x{1e-30, -1e-30, 1e30, -1e30, 0, 0}, gamma{1, 2};
    const reference::RmsNormalized want = reference::rmsnorm(x, gamma, static_cast<double>(eps));
    const Tensor y = machine.output({3, 2}), inv_rms = machine.output({3});
    machine.ops->rmsnorm_forward({machine.tensor({3, 2}, x), y, machine.tensor({2}, gamma), eps, inv_rms});
    require_close(y, want.y, 1e-6, 1e-40);
    require_close(inv_rms, want.inv_rms, 1e-6, 0);
}

TEST_CASE("embedding forward: rows by number, zeros for those of other ranks", "[unit][ops][many-elements]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const auto& [n, columns] : row_cases())
        for (const std::int64_t rows : {0, 1, 7, 100})
            for (const Types& types : mixed_types()) {
                INFO(n << " of " << rows << "x" << columns << text(types));
                const std::int64_t first = rows == 7 ? 5 : 0;
                std::vector<std::int32_t> ids = random_labels(n, 2 * static_cast<std::int32_t>(rows) + 5, 1);
                if (n > 1) ids[1] = -1;
                const Values table = rounded(types[0], random_values(rows * columns, 2));
                const Real t = machine.real(types[0], {rows, columns}, table),
                           y = machine.real_output(types[1], {n, columns});
                machine.ops->embedding_forward(machine.indices({n}, ids), t, first, y);
                REQUIRE(y.values() == rounded(types[1], reference::embedding(ids, table, columns, first)));
            }
}

TEST_CASE("embedding backward", "[unit][ops][many-elements]") {
    const Machine machine(GENERATE(from_range(devices())), GENERATE(1, 3));
    for (const auto& [n, columns] : row_cases())
        for (const std::int64_t rows : {0, 1, 7, 100})
            for (const DType type : {f32, bf16, f16}) {
                INFO(n << " of " << rows << "x" << columns << " " << name_of(type));
                const std::int64_t first = rows == 7 ? 5 : 0;
                std::vector<std::int32_t> ids = random_labels(n, 2 * static_cast<std::int32_t>(rows) + 5, 1);
                if (n > 1) ids[1] = -1;
                const Values dy = rounded(type, random_values(n * columns, 2)),
                             old = random_values(rows * columns, 3);
                const Values want = reference::embedding_backward(ids, dy, columns, first, rows);
                const Indices tids = machine.indices({n}, ids);
                const Real d = machine.real(type, {n, columns}, dy);
                const Tensor d_table = machine.output({rows, columns}),
                             added = machine.tensor({rows, columns}, old);
                machine.ops->embedding_backward(tids, d, first, d_table, false);
                machine.ops->embedding_backward(tids, d, first, added, true);
                require_close(d_table, want, 1e-5, 1e-4);
                require_close(added, sum_of(want, old), 1e-5, 1e-4);
            }
}

TEST_CASE("embedding backward adds in the order of the ids", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())), GENERATE(1, 2));
    // 1 is lost beside 1e8, so each order of these has a sum of its own.
    const Indices ids = machine.indices({4}, {6, 5, 5, 5});
    const Tensor dy = machine.tensor({4, 1}, {3, 1, 1e8, -1e8}), d_table = machine.output({3, 1});
    machine.ops->embedding_backward(ids, dy, 4, d_table, false);
    REQUIRE(d_table.values() == std::vector<float>{0, 0, 3});
    const Tensor other = machine.tensor({4, 1}, {3, 1e8, -1e8, 1});
    machine.ops->embedding_backward(ids, other, 4, d_table, true);
    REQUIRE(d_table.values() == std::vector<float>{0, 1, 6});
}

TEST_CASE("a row added to all rows, in place too", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const auto& [rows, columns] : row_cases())
        for (const Types& types : mixed_types()) {
            INFO(rows << "x" << columns << text(types));
            const Values x = rounded(types[0], random_values(rows * columns, 1)),
                         row = rounded(types[1], random_values(columns, 2));
            const Values want = rounded(f32, reference::add_row(x, row));
            const Real tx = machine.real(types[0], {rows, columns}, x),
                       tr = machine.real(types[1], {columns}, row),
                       y = machine.real_output(types[2], {rows, columns});
            machine.ops->add_row(tx, tr, y);
            REQUIRE(y.values() == rounded(types[2], want));
            machine.ops->add_row(tx, tr, tx);
            REQUIRE(tx.values() == rounded(types[0], want));
        }
}

TEST_CASE("the gate, forward and backward, in place too", "[unit][ops][many-elements]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const std::int64_t n : flat_cases())
        for (const Types& types : mixed_types()) {
            INFO(n << text(types));
            const Shape shape{n};
            const Values a = rounded(types[0], random_values(n, 1, -12, 12)),
                         b = rounded(types[1], random_values(n, 2, -3, 3)),
                         dy = rounded(types[2], random_values(n, 3));
            const Values want = reference::gate(a, b);
            const reference::GateGradients gradients = reference::gate_backward(a, b, dy);
            const auto fresh_a = [&] { return machine.real(types[0], shape, a); };
            const auto fresh_b = [&] { return machine.real(types[1], shape, b); };
            const auto fresh_dy = [&] { return machine.real(types[2], shape, dy); };
            const Real y = machine.real_output(types[2], shape), in_a = fresh_a(), in_b = fresh_b();
            const Real ta = fresh_a(), tb = fresh_b(), d = fresh_dy();
            machine.ops->gate_forward(ta, tb, y);
            machine.ops->gate_forward(in_a, tb, in_a);
            machine.ops->gate_forward(ta, in_b, in_b);
            for (const Real* got : {&y, &in_a, &in_b}) require_close(*got, want, 2e-6, 1e-6);

            const auto check = [&](const Real& da, const Real& db) {
                require_close(da, gradients.da, 2e-6, 2e-6);
                require_close(db, gradients.db, 2e-6, 1e-6);
            };
            const Real da = machine.real_output(types[1], shape), db = machine.real_output(types[0], shape);
            machine.ops->gate_backward(ta, tb, d, da, db);
            check(da, db);
            const Real over_a = fresh_a(), over_b = fresh_b(), first = fresh_dy(), second = fresh_dy();
            machine.ops->gate_backward(over_a, over_b, d, over_a, over_b);
            check(over_a, over_b);
            const Real swapped_a = fresh_a(), swapped_b = fresh_b();
            machine.ops->gate_backward(swapped_a, swapped_b, d, swapped_b, swapped_a);
            check(swapped_b, swapped_a);
            const Real late_a = fresh_a(), late_b = fresh_b();
            machine.ops->gate_backward(late_a, tb, first, first, late_a);
            check(first, late_a);
            machine.ops->gate_backward(ta, late_b, second, late_b, second);
            check(late_b, second);
        }
}

TEST_CASE("the gate far from zero", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    const Tensor a = machine.tensor({4}, {1e30, -1e30, 200, -200}), b = machine.tensor({4}, {2, 2, 2, 2}),
                 dy = machine.tensor({4}, {1, 1, 1, 1});
    const Tensor y = machine.output({4}), da = machine.output({4}), db = machine.output({4});
    machine.ops->gate_forward(a, b, y);
    require_close(y, {2e30, 0, 400, 0}, 1e-6, 1e-20);
    machine.ops->gate_backward(a, b, dy, da, db);
    require_close(da, {2, 0, 2, 0}, 1e-6, 1e-20);
    require_close(db, {1e30, 0, 200, 0}, 1e-6, 1e-20);
}

TEST_CASE("split cross-entropy is the whole one", "[unit][ops][many-elements]") {
    const Machine machine(GENERATE(from_range(devices())));
    const bool ties = GENERATE(false, true);
    for (const auto& [rows, classes] : split_cases())
        for (const auto& [type, gradient_type] : split_types())
            for (const float smoothing : {0.0F, 0.1F}) {
                INFO(rows << "x" << classes << " " << name_of(type) << " smoothing " << smoothing);
                Values logits = rounded(type, random_values(rows * classes, 1, -20, 20));
                if (ties)
                    for (double& x : logits) x = std::nearbyint(x / 10);
                std::vector<std::int32_t> labels = random_labels(rows, static_cast<std::int32_t>(classes), 2);
                if (rows > 2) labels[1] = -100;
                const reference::Loss want =
                    reference::cross_entropy(logits, labels, static_cast<double>(smoothing), -100, 0.5);
                for (const std::vector<std::int64_t>& parts : part_cases(classes)) {
                    SplitSettings settings{.parts = parts,
                                           .type = type,
                                           .gradient_type = gradient_type,
                                           .smoothing = smoothing,
                                           .scale = 0.5F};
                    INFO(parts.size() << " parts, the first of " << parts.front());
                    require_equal(split_cross_entropy(machine, settings, logits, labels), want,
                                  gradient_type);
                    settings.in_place = true;
                    require_equal(split_cross_entropy(machine, settings, logits, labels), want, type);
                }
            }
}

TEST_CASE("what the steps of the split cross-entropy leave", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    // Classes 4 ... 6 of 9; the reduced maximum of the second row lies elsewhere.
    Values logits(18, 0.0);
    const Values own{1, 3, 3, -1, 2, 0};
    for (std::size_t i = 0; i < own.size(); ++i) logits[i / 3 * 9 + 4 + i % 3] = own[i];
    const SplitRank rank(machine, {.parts = {}}, logits, {5, 1}, 4, 3);
    machine.ops->split_cross_entropy_maximum(rank.args());
    REQUIRE(rank.maximum() == std::vector<float>{3, 2});
    const Tensor maximum = machine.tensor({2}, {3, 4});
    machine.ops->split_cross_entropy_sums(rank.reduced(maximum));
    require_close(rank.row_sums(), {2 + std::exp(-2), 3, 7, std::exp(-5) + std::exp(-2) + std::exp(-4), 0, 1},
                  1e-6, 1e-30);
    REQUIRE(rank.winner() == std::vector<std::int32_t>{5, std::numeric_limits<std::int32_t>::max()});
}

TEST_CASE("split cross-entropy at its edges", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    SECTION("large logits neither overflow nor vanish") {
        const SplitResult got =
            split_cross_entropy(machine, {.parts = {1, 2}, .in_place = true}, {3e38, -3e38, 0}, {0});
        REQUIRE(got.loss == 0);
        require_close(got.gradient, {0, 0, 0}, 0, 1e-30);
    }
    SECTION("a rank whose classes are all masked out") {
        const SplitResult got =
            split_cross_entropy(machine, {.parts = {2, 2}}, {-INFINITY, -INFINITY, 1, 2}, {3});
        const reference::Loss want = reference::cross_entropy({1, 2}, {1}, 0, -100, 1);
        REQUIRE(got.loss == Approx(want.loss));
        REQUIRE(got.correct == 1);
        require_close(got.gradient, {0, 0, want.gradient[0], want.gradient[1]}, 1e-6, 1e-30);
    }
    SECTION("NaN is a NaN loss and no hit, wherever it stands") {
        for (std::size_t where = 0; where < 20; ++where) {
            Values logits(20, 0.0);
            logits[2] = 5;
            logits[where] = NAN;
            const SplitResult got = split_cross_entropy(machine, {.parts = {3, 17}}, logits, {2});
            REQUIRE(std::isnan(got.loss));
            REQUIRE(got.correct == 0);
        }
    }
    SECTION("a class may be the one that is ignored") {
        const Values logits = random_values(12, 1);
        const std::vector<std::int32_t> labels{0, 2, 0, 1};
        require_equal(
            split_cross_entropy(machine, {.parts = {2, 1}, .smoothing = 0.2F, .ignored = 0}, logits, labels),
            reference::cross_entropy(logits, labels, static_cast<double>(0.2F), 0, 1), f32);
    }
    SECTION("without a gradient the logits stay, and sums are added to") {
        const SplitRank rank(machine, {.parts = {}, .in_place = true}, {1, 2, 3}, {2}, 0, 3);
        SplitCrossEntropy args = rank.args();
        args.d_logits = {};
        machine.ops->split_cross_entropy_maximum(args);
        machine.ops->split_cross_entropy_sums(args);
        machine.ops->split_cross_entropy_finish(args);
        machine.ops->split_cross_entropy_finish(args);
        REQUIRE(rank.gradient() == Values{1, 2, 3});
        REQUIRE(rank.result().count == 2);
        REQUIRE(rank.result().correct == 2);
        REQUIRE(rank.result().loss == Approx(2 * std::log(1 + std::exp(-1) + std::exp(-2))).epsilon(1e-6));
    }
    SECTION("a label outside the classes of all ranks is bad data, named") {
        for (const std::int32_t label : {3, -1}) {
            const SplitRank rank(machine, {.parts = {}}, {1, 2, 3}, {label}, 0, 2);
            double loss = 0, count = 0, correct = 0;
            SplitCrossEntropy args = rank.args();
            args.sums = {.loss = &loss, .count = &count, .correct = &correct};
            const auto steps = {&Ops::split_cross_entropy_maximum, &Ops::split_cross_entropy_sums,
                                &Ops::split_cross_entropy_finish};
            if (!machine.device->host_memory()) {  // nobody waits for the device to tell
                for (const auto step : steps) (machine.ops.get()->*step)(rank.args());
                REQUIRE(std::isnan(rank.result().loss));
            }
            for (const auto step : steps) try {
                    (machine.ops.get()->*step)(args);
                    FAIL("no error");
                } catch (const Error& error) {
                    REQUIRE(error.status() == Status::bad_data);
                    REQUIRE_THAT(error.what(), contains("label " + std::to_string(label)));
                }
        }
    }
    SECTION("no samples") {
        const SplitResult got = split_cross_entropy(machine, {.parts = {3, 2}}, {}, {});
        REQUIRE(got.count == 0);
        REQUIRE(got.loss == 0);
    }
}

TEST_CASE("verbs of transformers refuse what does not fit, by name", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    Ops& ops = *machine.ops;
    const Tensor x = machine.output({2, 3}), row = machine.output({3}), rows = machine.output({2});
    const Indices ids = machine.indices({2}, {0, 1});
    require_refused([&] { ops.rmsnorm_forward({x, row, row, eps, rows}); }, "rmsnorm");
    require_refused(
        [&] {
            ops.rmsnorm_forward({x, x, machine.real_output(bf16, {3}), eps, rows});
        },
        "rmsnorm gamma: bfloat16");
    require_refused([&] { ops.embedding_forward(x, x, 0, x); }, "embedding ids");
    require_refused([&] { ops.embedding_forward(ids, machine.output({4}), 0, x); }, "embedding table");
    require_refused([&] { ops.embedding_backward(ids, x, 0, machine.output({4}), false); },
                    "embedding d_table");
    require_refused([&] { ops.add_row(x, rows, row); }, "add_row");
    require_refused([&] { ops.add_row(row, rows, row); }, "no number of rows");
    require_refused([&] { ops.gate_forward(x, row, x); }, "gate");
    require_refused([&] { ops.gate_backward(x, x, x, x, ids); }, "gate backward");
}

namespace {

/// The bits of everything that the verbs of transformers produce.
std::vector<float> results(const std::string& kind, int threads, std::int64_t rows, std::int64_t columns,
                           DType type) {
    const Machine machine(kind, threads);
    Ops& ops = *machine.ops;
    std::vector<float> all;
    const auto keep = [&all](const auto& tensor) {
        for (const auto value : tensor.values()) all.push_back(static_cast<float>(value));
    };
    const Shape shape{rows, columns};
    const std::int64_t n = rows * columns;
    const Real x = machine.real(type, shape, random_values(n, 1)),
               dy = machine.real(type, shape, random_values(n, 2));
    const Real y = machine.real_output(type, shape), dx = machine.real_output(type, shape);
    const Tensor gamma = machine.tensor({columns}, random_values(columns, 3)),
                 d_gamma = machine.output({columns});
    const Tensor inv_rms = machine.output({rows});
    const RmsNorm norm{x, y, gamma, eps, inv_rms};
    ops.rmsnorm_forward(norm);
    ops.rmsnorm_backward(norm, dy, dx, d_gamma, false);
    keep(y);
    keep(dx);
    keep(d_gamma);

    const Indices ids = machine.indices({rows}, random_labels(rows, 40, 4));
    const Tensor d_table = machine.output({29, columns});
    ops.embedding_forward(ids, gamma, 3, y);
    ops.embedding_backward(ids, dy, 3, d_table, false);
    keep(y);
    keep(d_table);
    ops.add_row(x, gamma, y);
    keep(y);
    ops.gate_forward(x, dy, y);
    ops.gate_backward(x, dy, dy, dx, y);
    keep(dx);
    keep(y);

    Cell loss(*machine.device), count(*machine.device), correct(*machine.device);
    const Tensor maximum = machine.output({rows}), row_sums = machine.output({rows, 3});
    const Indices labels =
                      machine.indices({rows}, random_labels(rows, static_cast<std::int32_t>(columns), 5)),
                  winner = machine.indices({rows}, random_labels(rows, 1, 6));
    const SplitCrossEntropy split{.logits = x,
                                  .labels = labels,
                                  .classes = columns,
                                  .label_smoothing = 0.1F,
                                  .d_logits = dx,
                                  .sums = {loss.get(), count.get(), correct.get()},
                                  .maximum = maximum,
                                  .row_sums = row_sums,
                                  .winner = winner};
    ops.split_cross_entropy_maximum(split);
    ops.split_cross_entropy_sums(split);
    ops.split_cross_entropy_finish(split);
    keep(maximum);
    keep(row_sums);
    keep(winner);
    keep(dx);
    for (const Cell* cell : {&loss, &count, &correct}) all.push_back(static_cast<float>(cell->value()));
    return all;
}

}  // namespace

TEST_CASE("verbs of transformers do not depend on the thread count", "[unit][ops][many-elements]") {
    const std::string kind = GENERATE(from_range(devices()));
    const DType type = GENERATE(f32, bf16);
    for (const auto& [rows, columns] : std::vector<MatrixCase>{{5003, 13}, {61, 1301}, {2, 50021}}) {
        INFO(rows << "x" << columns << " " << name_of(type));
        const std::vector<float> one = results(kind, 1, rows, columns, type);
        REQUIRE(results(kind, 2, rows, columns, type) == one);
        REQUIRE(results(kind, 3, rows, columns, type) == one);
    }
}

TEST_CASE("verbs of transformers allocate at the first call only", "[unit][ops]") {
    if (!can_count_allocations()) {
        WARN("skipped: allocations are not counted under the address sanitizer");
        return;
    }
    const Machine machine(GENERATE(from_range(devices())), 2);
    Ops& ops = *machine.ops;
    const std::int64_t rows = 67, columns = 1301;
    const Shape shape{rows, columns};
    const Real x = machine.real(bf16, shape, random_values(rows * columns, 1)),
               dy = machine.real(bf16, shape, random_values(rows * columns, 2)),
               y = machine.real_output(bf16, shape);
    const Tensor gamma = machine.output({columns}), inv_rms = machine.output({rows});
    const Indices ids = machine.indices({rows}, random_labels(rows, 1, 3));
    const SplitRank rank(machine, {.parts = {}, .type = bf16}, random_values(rows * columns, 4),
                         random_labels(rows, 1301, 5), 0, columns);
    const View xs = x, dys = dy, ys = y, gammas = gamma, table = {gammas.data, f32, {1, columns}}, id = ids;
    const RmsNorm norm{xs, ys, gammas, eps, inv_rms};
    const auto step = [&] {
        ops.rmsnorm_forward(norm);
        ops.rmsnorm_backward(norm, dys, ys, gammas, false);
        ops.embedding_forward(id, table, 0, ys);
        ops.embedding_backward(id, dys, 0, table, false);
        ops.add_row(xs, gammas, ys);
        ops.gate_forward(xs, dys, ys);
        ops.gate_backward(xs, dys, dys, ys, dys);
        ops.split_cross_entropy_maximum(rank.args());
        ops.split_cross_entropy_sums(rank.args());
        ops.split_cross_entropy_finish(rank.args());
    };
    step();
    // What a GPU's runtime allocates, or the emulation of one, is not counted.
    const bool counts = machine.device->host_memory();
    if (counts) count_allocations();
    step();
    if (counts) REQUIRE(allocations().ours == 0);
}
