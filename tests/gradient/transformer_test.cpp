// The backward verbs of transformers against central finite differences of the oracle's forward pass.
#include "reference/transformer.hpp"
#include "support/devices.hpp"
#include "support/finite_differences.hpp"
#include "support/op_cases.hpp"
#include "support/split_loss.hpp"
#include "support/tensors.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

/// Large enough to be awkward, small enough for a loop over elements that each cost a whole forward pass.
constexpr std::int64_t most_elements = 1500;

}  // namespace

TEST_CASE("gradients of rmsnorm", "[gradient]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const auto& shape : norm_cases()) {
        const std::int64_t rows = shape.rows, columns = shape.columns;
        if (rows * columns > most_elements) continue;
        INFO(rows << "x" << columns);
        const double eps = 0.1;  // keeps the function smooth where there are few columns
        const Values x = random_values(rows * columns, 1, -2, 2), gamma = random_values(columns, 2, 0.5, 2),
                     dy = random_values(rows * columns, 3);
        const Tensor tx = machine.tensor({rows, columns}, x), tg = machine.tensor({columns}, gamma);
        const Tensor y = machine.output({rows, columns}), inv_rms = machine.output({rows});
        const Tensor d = machine.tensor({rows, columns}, dy), d_gamma = machine.output({columns});
        const RmsNorm args{tx, y, tg, static_cast<float>(eps), inv_rms};
        machine.ops->rmsnorm_forward(args);
        machine.ops->rmsnorm_backward(args, d, d, d_gamma, false);
        require_close(d, finite_differences(x, [&](const Values& at) {
                          return inner_product(reference::rmsnorm(at, gamma, eps).y, dy);
                      }));
        require_close(
            d_gamma,
            finite_differences(
                gamma, [&](const Values& at) { return inner_product(reference::rmsnorm(x, at, eps).y, dy); }),
            2e-5, 5e-5);
    }
}

TEST_CASE("gradients of embedding and of an added row", "[gradient]") {
    const Machine machine(GENERATE(from_range(devices())));
    const std::int64_t n = 37, rows = 11, columns = 13, first = 3;
    const std::vector<std::int32_t> ids = random_labels(n, 17, 1);
    const Values table = random_values(rows * columns, 2), dy = random_values(n * columns, 3);
    const Tensor tdy = machine.tensor({n, columns}, dy), d_table = machine.output({rows, columns}),
                 d_row = machine.output({columns});
    machine.ops->embedding_backward(machine.indices({n}, ids), tdy, first, d_table, false);
    require_close(d_table, finite_differences(table, [&](const Values& at) {
                      return inner_product(reference::embedding(ids, at, columns, first), dy);
                  }));
    const Values x = random_values(n * columns, 4), row = random_values(columns, 5);
    machine.ops->sum_rows(tdy, d_row, false);
    require_close(d_row, finite_differences(row, [&](const Values& at) {
                      return inner_product(reference::add_row(x, at), dy);
                  }));
}

TEST_CASE("gradients of the gate", "[gradient]") {
    const Machine machine(GENERATE(from_range(devices())));
    const std::int64_t n = 1031;
    const Values a = random_values(n, 1, -9, 9), b = random_values(n, 2, -3, 3), dy = random_values(n, 3);
    const Tensor ta = machine.tensor({n}, a), tb = machine.tensor({n}, b), tdy = machine.tensor({n}, dy);
    const Tensor da = machine.output({n}), db = machine.output({n});
    machine.ops->gate_backward(ta, tb, tdy, da, db);
    const std::vector<float> got_a = da.values(), got_b = db.values();
    // One element at a time: y_i depends on a_i and b_i alone.
    for (std::size_t i = 0; i < a.size(); ++i) {
        const Values numeric = finite_differences({a[i], b[i]}, [&](const Values& at) {
            return inner_product(reference::gate({at[0]}, {at[1]}), {dy[i]});
        });
        REQUIRE(static_cast<double>(got_a[i]) == Approx(numeric[0]).epsilon(1e-5).margin(1e-6));
        REQUIRE(static_cast<double>(got_b[i]) == Approx(numeric[1]).epsilon(1e-5).margin(1e-6));
    }
}

TEST_CASE("gradients of the split cross-entropy", "[gradient]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const auto& shape : logits_cases()) {
        const std::int64_t rows = shape.rows, classes = shape.columns;
        if (rows * classes > most_elements) continue;
        INFO(rows << "x" << classes);
        const Values x = random_values(rows * classes, 1, -3, 3);
        const std::vector<std::int32_t> labels = random_labels(rows, static_cast<std::int32_t>(classes), 2);
        const SplitResult got = split_cross_entropy(
            machine, {.parts = {classes / 3, classes - classes / 3}, .smoothing = 0.2F}, x, labels);
        require_close(
            got.gradient,
            finite_differences(
                x,
                [&](const Values& at) {
                    return reference::cross_entropy(at, labels, static_cast<double>(0.2F), -100, 1).loss;
                }),
            1e-4, 1e-5);
    }
}
