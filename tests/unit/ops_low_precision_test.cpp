// Products and activations of bfloat16 and float16, each way that the CPU may compute them: what its
// processor is fast with, and, where the processor has instructions for bfloat16, with and without those.
#include <cmath>

#include "ops/cpu/cpu_ops.hpp"
#include "reference/reference.hpp"
#include "support/allocations.hpp"
#include "support/devices.hpp"
#include "support/op_cases.hpp"
#include "support/tensors.hpp"
#include "trireme/base/error.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr DType low_types[] = {DType::bf16, DType::f16};

/// A machine for every way of multiplying 16-bit types.
std::vector<Machine> machines() {
    std::vector<Machine> all;
    for (const std::string& kind : devices()) all.emplace_back(kind);
    if (cpu::has_bf16())
        for (const auto way : {cpu::Bf16Products::primitives, cpu::Bf16Products::float32})
            all.emplace_back("cpu").ops = std::make_unique<cpu::CpuOps>(1, way);
    return all;
}

/// Values that a type holds exactly, so that oracle and verb see the same numbers.
Values random_reals(DType type, std::int64_t n, std::uint64_t seed, double low = -1, double high = 1) {
    return rounded(type, random_values(n, seed, low, high));
}

/// The error of a float32 sum of k products of numbers up to 1.
double sum_error(std::int64_t k) {
    return 1e-5 * std::sqrt(static_cast<double>(k) + 4);
}

std::int64_t products_of(const Window& w) {
    return w.c / w.groups * w.kernel_h * w.kernel_w;
}

Values plus(Values a, const Values& b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
}

void check_matmul(const std::vector<Machine>& all, DType type, const MatmulCase& shape, bool transpose_a,
                  bool transpose_b) {
    const auto [m, n, k] = shape;
    const Values a = random_reals(type, m * k, 1), b = random_reals(type, k * n, 2);
    const Values bias = random_values(n, 3), before = random_values(m * n, 4);
    const Values product = reference::matmul(a, b, {}, m, n, k, transpose_a, transpose_b);
    const Values shifted = reference::matmul(a, b, bias, m, n, k, transpose_a, transpose_b);
    for (const Machine& machine : all) {
        const Real ta = machine.real(type, transpose_a ? Shape{k, m} : Shape{m, k}, a);
        const Real tb = machine.real(type, transpose_b ? Shape{n, k} : Shape{k, n}, b);
        const Tensor tbias = machine.tensor({n}, bias);
        for (const DType result : {type, DType::f32})
            for (const Activation activation : epilogue_cases())
                for (const bool with_bias : {false, true}) {
                    INFO(name_of(result) << " " << name_of(activation) << ", bias " << with_bias);
                    const Real c = machine.real_output(result, {m, n});
                    machine.ops->matmul({ta, tb, c, transpose_a, transpose_b, false,
                                         with_bias ? tbias.view() : View{}, activation});
                    require_close(c, reference::activate(activation, with_bias ? shifted : product),
                                  sum_error(k), sum_error(k));
                }
        const Real sum = machine.real(DType::f32, {m, n}, before);
        machine.ops->matmul({.a = ta,
                             .b = tb,
                             .c = sum,
                             .transpose_a = transpose_a,
                             .transpose_b = transpose_b,
                             .accumulate = true});
        require_close(sum, plus(product, before), sum_error(k), sum_error(k));
    }
}

void check_conv(const Machine& machine, DType type, const Window& window) {
    const Values x = random_reals(type, input_shape(window).count(), 1);
    const Values kernel = random_reals(type, kernel_shape(window).count(), 2, -0.5, 0.5);
    const Values dy = random_reals(type, output_shape(window).count(), 3);
    const Values bias = random_values(window.out, 4), before = random_values(kernel_shape(window).count(), 5);
    const Real tx = machine.real(type, input_shape(window), x);
    const Real tk = machine.real(type, kernel_shape(window), kernel);
    const Real tdy = machine.real(type, output_shape(window), dy);
    const Tensor tbias = machine.tensor({window.out}, bias);
    const double error = sum_error(products_of(window));
    const Values sums = reference::conv(window, x, kernel, {}),
                 shifted = reference::conv(window, x, kernel, bias);
    for (const DType result : {type, DType::f32}) {
        INFO("into " << name_of(result));
        for (const Activation activation : epilogue_cases())
            for (const bool with_bias : {false, true}) {
                INFO(name_of(activation) << ", bias " << with_bias);
                const Real y = machine.real_output(result, output_shape(window));
                machine.ops->conv_forward(window, tx, tk, with_bias ? tbias.view() : View{}, activation, y);
                require_close(y, reference::activate(activation, with_bias ? shifted : sums), error, error);
            }
        const Real dx = machine.real_output(result, input_shape(window));
        machine.ops->conv_backward_data(window, tdy, tk, dx);
        const double taps = sum_error(window.out / window.groups * window.kernel_h * window.kernel_w);
        require_close(dx, reference::conv_backward_data(window, dy, kernel), taps, taps);
    }
    const double pixels = sum_error(output_shape(window).count());
    const Values gradient = reference::conv_backward_weights(window, x, dy);
    const Tensor dk = machine.output(kernel_shape(window)),
                 sum = machine.tensor(kernel_shape(window), before);
    machine.ops->conv_backward_weights(window, tx, tdy, dk, false);
    require_close(dk, gradient, pixels, pixels);
    machine.ops->conv_backward_weights(window, tx, tdy, sum, true);
    require_close(sum, plus(gradient, before), pixels, pixels);
}

/// Forward and backward of an activation on one combination of types; in place where the contract allows it.
void check_activation(const Machine& machine, Activation kind, DType type, DType other, std::int64_t n) {
    const Values x = random_reals(type, n, 1, -6, 6), dy = random_reals(other, n, 2);
    const Real tx = machine.real(type, {n}, x), y = machine.real_output(other, {n});
    machine.ops->activation_forward(kind, tx, y);
    require_close(y, reference::activate(kind, x), 1e-5, 2e-6);
    // The derivative is told from what was stored where it is told from the output at all.
    const Values stored = y.values();
    Values want(dy);
    for (std::size_t i = 0; i < want.size(); ++i)
        want[i] *= kind == Activation::tanh      ? 1 - stored[i] * stored[i]
                   : kind == Activation::sigmoid ? stored[i] * (1 - stored[i])
                                                 : reference::derivative(kind, x[i]);
    const Real tdy = machine.real(other, {n}, dy), dx = machine.real_output(type, {n});
    machine.ops->activation_backward(kind, tx, y, tdy, dx);
    require_close(dx, want, 1e-4, 1e-5);
    machine.ops->activation_backward(kind, tx, y, tdy, tdy);
    require_close(tdy, want, 1e-4, 1e-5);
    if (!derivative_from_output(kind)) return;
    machine.ops->activation_forward(kind, tx, tx);
    require_close(tx, reference::activate(kind, x), 1e-5, 2e-6);
}

/// C = A · B with these rows and columns of one element each.
Values outer_product(const Machine& machine, DType type, DType result, const Values& a, const Values& b,
                     Activation activation = Activation::none) {
    const auto m = static_cast<std::int64_t>(a.size()), n = static_cast<std::int64_t>(b.size());
    const Real c = machine.real_output(result, {m, n});
    const Real ta = machine.real(type, {m, 1}, a), tb = machine.real(type, {1, n}, b);
    machine.ops->matmul({.a = ta, .b = tb, .c = c, .activation = activation});
    return c.values();
}

/// One of each product and two activations, on tensors that stay.
class Products {
public:
    Products(const Machine& machine, DType type)
        : machine_(&machine),
          x_(machine.real(type, input_shape(window), random_values(input_shape(window).count(), 1))),
          kernel_(machine.real(type, kernel_shape(window), random_values(kernel_shape(window).count(), 2))),
          y_(machine.real_output(type, output_shape(window))),
          gradient_(machine.real_output(type, output_shape(window))),
          dx_(machine.real_output(type, input_shape(window))),
          d_kernel_(machine.output(kernel_shape(window))),
          square_(machine.real(type, {side, side}, random_values(side * side, 3))),
          bias_(machine.tensor({side}, random_values(side, 4))),
          product_(machine.real_output(type, {side, side})),
          sum_(machine.output({side, side})) {}

    void run() const {
        Ops& ops = *machine_->ops;
        ops.conv_forward(window, x_, kernel_, {}, Activation::relu, y_);
        ops.activation_forward(Activation::gelu, y_, gradient_);
        ops.conv_backward_data(window, gradient_, kernel_, dx_);
        ops.conv_backward_weights(window, x_, gradient_, d_kernel_, false);
        ops.matmul({square_, square_, product_, false, true, false, bias_, Activation::tanh});
        ops.matmul({.a = square_, .b = product_, .c = sum_, .transpose_a = true});
        ops.activation_backward(Activation::silu, y_, {}, gradient_, gradient_);
    }
    Values results() const {
        Values all;
        for (const Real* tensor : {&y_, &gradient_, &dx_, &product_}) {
            const Values values = tensor->values();
            all.insert(all.end(), values.begin(), values.end());
        }
        for (const Tensor* tensor : {&d_kernel_, &sum_})
            for (const float value : tensor->values()) all.push_back(static_cast<double>(value));
        return all;
    }

private:
    static constexpr std::int64_t side = 67;
    static constexpr Window window{2, 17, 9, 9, 33, 3, 3, 2, 2, 1, 1};

    const Machine* machine_;
    Real x_, kernel_, y_, gradient_, dx_;
    Tensor d_kernel_;
    Real square_;
    Tensor bias_;
    Real product_;
    Tensor sum_;
};

}  // namespace

TEST_CASE("matmul of 16-bit types, in every orientation, with every epilogue", "[unit][ops][many-elements]") {
    const std::vector<Machine> all = machines();
    for (const DType type : low_types)
        for (const MatmulCase& shape : matmul_cases())
            for (const bool transpose_a : {false, true})
                for (const bool transpose_b : {false, true}) {
                    INFO(name_of(type) << " " << shape.m << "x" << shape.n << "x" << shape.k << " "
                                       << transpose_a << transpose_b);
                    check_matmul(all, type, shape, transpose_a, transpose_b);
                }
}

TEST_CASE("convolution of 16-bit types, forward and backward", "[unit][ops][many-elements]") {
    for (const Machine& machine : machines())
        for (const DType type : low_types)
            for (const auto& [name, window] : conv_cases()) {
                INFO(name_of(type) << ", " << name << ", native " << machine.ops->native(type));
                check_conv(machine, type, window);
            }
}

TEST_CASE("activations between real types", "[unit][ops][many-elements]") {
    constexpr DType types[] = {DType::f32, DType::bf16, DType::f16};
    for (const std::string& kind : devices()) {
        const Machine machine(kind);
        for (const Activation activation : activation_cases())
            for (const DType type : types)
                for (const DType other : types) {
                    for (const std::int64_t n : {0, 1, 17, 1025, 70001}) {
                        INFO(name_of(activation)
                             << " " << n << ", " << name_of(type) << " and " << name_of(other));
                        check_activation(machine, activation, type, other, n);
                    }
                }
    }
}

TEST_CASE("16-bit products round once, to inf beyond the type, and keep NaN", "[unit][ops]") {
    for (const Machine& machine : machines()) {
        const Values a{250, -250, 1}, b{280, 1, -280};
        const Values want{70000, 250, -70000, -70000, -250, 70000, 280, 1, -280};
        REQUIRE(outer_product(machine, DType::f16, DType::f32, a, b) == want);
        REQUIRE(outer_product(machine, DType::f16, DType::f16, a, b) == rounded(DType::f16, want));
        REQUIRE(rounded(DType::f16, want)[0] == INFINITY);
        // None of these four has a significand of 8 bits.
        REQUIRE(outer_product(machine, DType::bf16, DType::bf16, {129, 131}, {3, 9}) ==
                rounded(DType::bf16, {387, 1161, 393, 1179}));
        for (const DType type : low_types)
            for (const Activation activation : epilogue_cases())
                for (const DType result : {type, DType::f32}) {
                    const Values c = outer_product(machine, type, result, {NAN, 1}, {1, -2, 3}, activation);
                    for (std::size_t i = 0; i < 3; ++i) REQUIRE(std::isnan(c[i]));
                    for (std::size_t i = 3; i < 6; ++i) REQUIRE(std::isfinite(c[i]));
                }
    }
}

TEST_CASE("equal calls on 16-bit types give equal bits, and allocate nothing once planned", "[unit][ops]") {
    for (const Machine& machine : machines())
        for (const DType type : low_types) {
            const Products products(machine, type);
            products.run();
            const Values first = products.results();
            // What a driver allocates for its queues is not ours.
            const bool counts = can_count_allocations() && machine.device->host_memory();
            if (counts) count_allocations();
            products.run();
            if (counts) CHECK(allocations().ours == 0);
            REQUIRE(products.results() == first);
        }
}

TEST_CASE("activations of 16-bit types do not depend on the thread count", "[unit][ops][many-elements]") {
    constexpr std::int64_t n = 200003;
    for (const DType type : low_types)
        for (const Activation kind : {Activation::relu, Activation::gelu, Activation::sigmoid}) {
            Values one;
            for (const int threads : {1, 2, 3}) {
                const Machine machine("cpu", threads);
                const Real x = machine.real(type, {n}, random_values(n, 1, -4, 4)),
                           y = machine.real_output(type, {n}), dx = machine.real_output(type, {n});
                machine.ops->activation_forward(kind, x, y);
                machine.ops->activation_backward(kind, x, y, x, dx);
                Values all = y.values();
                for (const double value : dx.values()) all.push_back(value);
                if (threads == 1) one = all;
                REQUIRE(all == one);
            }
        }
}

TEST_CASE("products refuse types that do not go together", "[unit][ops]") {
    for (const std::string& kind : devices()) {
        const Machine machine(kind);
        const Real wide = machine.real_output(DType::f32, {2, 2}),
                   bf16 = machine.real_output(DType::bf16, {2, 2}),
                   f16 = machine.real_output(DType::f16, {2, 2});
        REQUIRE_THROWS_WITH(machine.ops->matmul({.a = bf16, .b = f16, .c = wide}), contains("float16"));
        REQUIRE_THROWS_WITH(machine.ops->matmul({.a = wide, .b = wide, .c = bf16}), contains("bfloat16"));
        REQUIRE_THROWS_WITH(machine.ops->matmul({.a = f16, .b = f16, .c = f16, .accumulate = true}),
                            contains("float32"));
        const Window window{1, 1, 2, 2, 1, 1, 1};
        const Real kernel = machine.real_output(DType::bf16, {1, 1, 1, 1});
        const View x = bf16, other = f16;
        REQUIRE_THROWS_WITH(machine.ops->conv_forward(window, x, kernel, {}, Activation::none, other),
                            contains("float16"));
        REQUIRE_THROWS_WITH(machine.ops->conv_backward_weights(window, x, x, kernel, false),
                            contains("float32"));
    }
}

TEST_CASE("only types that the processor multiplies fast are native to the CPU", "[unit][ops]") {
    const Machine machine("cpu");
    REQUIRE(machine.ops->native(DType::f32));
    REQUIRE(machine.ops->native(DType::bf16) == cpu::has_fast_bf16());
    REQUIRE_FALSE(machine.ops->native(DType::f16));
}
