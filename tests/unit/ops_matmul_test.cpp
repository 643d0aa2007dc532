#include "reference/reference.hpp"
#include "support/devices.hpp"
#include "support/op_cases.hpp"
#include "support/tensors.hpp"
#include "trireme/base/error.hpp"

using namespace trireme;
using namespace trireme::testing;

TEST_CASE("matmul multiplies in every orientation, with every epilogue", "[unit][ops][many-elements]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const MatmulCase& shape : matmul_cases())
        for (const bool transpose_a : {false, true})
            for (const bool transpose_b : {false, true})
                for (const Activation activation : epilogue_cases())
                    for (const bool with_bias : {false, true}) {
                        const auto [m, n, k] = shape;
                        INFO(m << "x" << n << "x" << k << " " << transpose_a << transpose_b << with_bias
                               << " " << name_of(activation));
                        const Values a = random_values(m * k, 1), b = random_values(k * n, 2);
                        const Values bias = random_values(with_bias ? n : 0, 3);
                        const Tensor ta = machine.tensor(transpose_a ? Shape{k, m} : Shape{m, k}, a);
                        const Tensor tb = machine.tensor(transpose_b ? Shape{n, k} : Shape{k, n}, b);
                        const Tensor tbias = machine.tensor({with_bias ? n : 0}, bias);
                        const Tensor c = machine.output({m, n});
                        Matmul args{ta, tb, c, transpose_a, transpose_b, false, {}, activation};
                        if (with_bias) args.bias = tbias;
                        machine.ops->matmul(args);
                        require_close(
                            c, reference::activate(activation, reference::matmul(a, b, bias, m, n, k,
                                                                                 transpose_a, transpose_b)));
                    }
}

TEST_CASE("matmul accumulates, and folds outer extents into rows", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const MatmulCase& shape : matmul_cases()) {
        const auto [m, n, k] = shape;
        INFO(m << "x" << n << "x" << k);
        const Values a = random_values(2 * m * k, 1), b = random_values(k * n, 2),
                     before = random_values(2 * m * n, 3);
        const Tensor c = machine.tensor({2, m, n}, before);
        const Tensor ta = machine.tensor({2, m, k}, a), tb = machine.tensor({k, n}, b);
        machine.ops->matmul({.a = ta, .b = tb, .c = c, .accumulate = true, .bias = {}});
        Values want = reference::matmul(a, b, {}, 2 * m, n, k, false, false);
        for (std::size_t i = 0; i < want.size(); ++i) want[i] += before[i];
        require_close(c, want);
    }
}

TEST_CASE("matmul refuses what does not fit and names it", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    const Tensor a = machine.output({2, 3}), b = machine.output({4, 5}), c = machine.output({2, 5});
    REQUIRE_THROWS_WITH(machine.ops->matmul({.a = a, .b = b, .c = c, .bias = {}}), contains("2x3"));
    View half = a.view();
    half.dtype = DType::bf16;
    const Tensor right = machine.output({3, 5});
    REQUIRE_THROWS_WITH(machine.ops->matmul({.a = half, .b = right, .c = c, .bias = {}}),
                        contains("bfloat16"));
    const View view = a;
    REQUIRE_THROWS_AS(
        machine.ops->matmul({.a = view, .b = right, .c = c, .bias = {}, .activation = Activation::gelu}),
        Error);
}

TEST_CASE("sum_rows adds up the rows", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const auto& [rows, columns] : norm_cases())
        for (const bool accumulate : {false, true}) {
            INFO(rows << "x" << columns);
            const Values x = random_values(rows * columns, 1), before = random_values(columns, 2);
            const Tensor sum = machine.tensor({columns}, before), tx = machine.tensor({rows, columns}, x);
            machine.ops->sum_rows(tx, sum, accumulate);
            Values want = reference::sum_rows(x, columns);
            for (std::size_t i = 0; accumulate && i < want.size(); ++i) want[i] += before[i];
            require_close(sum, want);
        }
    const Tensor sum = machine.output({3}), none = machine.output({0, 3});
    machine.ops->sum_rows(none, sum, false);
    require_close(sum, {0, 0, 0});
}
