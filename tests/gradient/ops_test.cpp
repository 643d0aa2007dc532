// The backward verbs against central finite differences of the oracle's forward pass, in double.
#include "reference/reference.hpp"
#include "support/devices.hpp"
#include "support/finite_differences.hpp"
#include "support/op_cases.hpp"
#include "support/tensors.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

/// Large enough to be awkward, small enough for a loop over elements that each cost a whole forward pass.
constexpr std::int64_t most_elements = 1500;

}  // namespace

TEST_CASE("gradients of matmul", "[gradient]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const auto& [m, n, k] : matmul_cases()) {
        if (m * k > most_elements || k * n > most_elements || m * n > most_elements) continue;
        const std::int64_t m_ = m, n_ = n, k_ = k;
        INFO(m << "x" << n << "x" << k);
        const Values a = random_values(m * k, 1), b = random_values(k * n, 2), dc = random_values(m * n, 3);
        const Tensor ta = machine.tensor({m, k}, a), tb = machine.tensor({k, n}, b),
                     tdc = machine.tensor({m, n}, dc);
        const Tensor da = machine.output({m, k}), db = machine.output({k, n});
        machine.ops->matmul({.a = tdc, .b = tb, .c = da, .transpose_b = true, .bias = {}});
        machine.ops->matmul({.a = ta, .b = tdc, .c = db, .transpose_a = true, .bias = {}});
        require_close(da, finite_differences(a, [&](const Values& at) {
                          return inner_product(reference::matmul(at, b, {}, m_, n_, k_, false, false), dc);
                      }));
        require_close(db, finite_differences(b, [&](const Values& at) {
                          return inner_product(reference::matmul(a, at, {}, m_, n_, k_, false, false), dc);
                      }));
    }
}

TEST_CASE("gradients of activations", "[gradient]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const Activation kind : activation_cases()) {
        INFO(name_of(kind));
        const std::int64_t n = 137;
        const Values x = random_values(n, 1, -4, 4), dy = random_values(n, 2);
        const Tensor tx = machine.tensor({n}, x), y = machine.output({n}), tdy = machine.tensor({n}, dy);
        const Tensor dx = machine.output({n});
        machine.ops->activation_forward(kind, tx, y);
        machine.ops->activation_backward(kind, tx, y, tdy, dx);
        require_close(
            dx,
            finite_differences(
                x, [&](const Values& at) { return inner_product(reference::activate(kind, at), dy); }),
            1e-4, 1e-5);
    }
}

TEST_CASE("gradients of convolution", "[gradient]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const auto& named : conv_cases()) {
        const Window& window = named.window;
        if (input_shape(window).count() > 800 || kernel_shape(window).count() > 800) continue;
        INFO(named.name);
        const Values x = random_values(input_shape(window).count(), 1);
        const Values kernel = random_values(kernel_shape(window).count(), 2);
        const Values dy = random_values(output_shape(window).count(), 3);
        const Tensor tx = machine.tensor(input_shape(window), x),
                     tk = machine.tensor(kernel_shape(window), kernel);
        const Tensor tdy = machine.tensor(output_shape(window), dy);
        const Tensor dx = machine.output(input_shape(window)), dk = machine.output(kernel_shape(window));
        machine.ops->conv_backward_data(window, tdy, tk, dx);
        machine.ops->conv_backward_weights(window, tx, tdy, dk, false);
        require_close(
            dx,
            finite_differences(
                x,
                [&](const Values& at) { return inner_product(reference::conv(window, at, kernel, {}), dy); }),
            5e-5, 5e-5);
        require_close(dk,
                      finite_differences(kernel,
                                         [&](const Values& at) {
                                             return inner_product(reference::conv(window, x, at, {}), dy);
                                         }),
                      5e-5, 5e-5);
    }
}

TEST_CASE("gradients of pooling", "[gradient]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const auto& named : pool_cases())
        for (const Pool kind : {Pool::max, Pool::average}) {
            const Window& window = named.window;
            INFO(named.name);
            const Values x = random_values(input_shape(window).count(), 1);
            const Values dy = random_values(output_shape(window).count(), 2);
            const Tensor tx = machine.tensor(input_shape(window), x),
                         y = machine.output(output_shape(window));
            const Tensor tdy = machine.tensor(output_shape(window), dy),
                         dx = machine.output(input_shape(window));
            const Indices index =
                machine.indices(output_shape(window), std::vector<std::int32_t>(dy.size(), 0));
            machine.ops->pool_forward(kind, window, tx, y, index);
            machine.ops->pool_backward(kind, window, tdy, index, dx);
            require_close(
                dx,
                finite_differences(
                    x,
                    [&](const Values& at) { return inner_product(reference::pool(kind, window, at).y, dy); }),
                1e-4, 1e-5);
        }
}

TEST_CASE("gradients of batchnorm", "[gradient]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const auto& shape : norm_cases())
        for (const bool with_relu : {false, true}) {
            const std::int64_t rows = shape.rows, columns = shape.columns;
            if (rows * columns > most_elements) continue;
            INFO(rows << "x" << columns << " relu " << with_relu);
            const double eps = 0.1;  // keeps the function smooth where there are few rows
            const Values x = random_values(rows * columns, 1, -2, 2),
                         gamma = random_values(columns, 2, 0.5, 2);
            const Values beta = random_values(columns, 3), dy = random_values(rows * columns, 4);
            const auto loss = [&](const Values& x_, const Values& gamma_, const Values& beta_) {
                const Values y = reference::batchnorm(x_, gamma_, beta_, eps).y;
                return inner_product(with_relu ? reference::activate(Activation::relu, y) : y, dy);
            };
            const Tensor tx = machine.tensor({rows, columns}, x), y = machine.output({rows, columns});
            const Tensor tg = machine.tensor({columns}, gamma), tb = machine.tensor({columns}, beta);
            const Tensor mean = machine.output({columns}), inv_std = machine.output({columns});
            const Tensor d = machine.tensor({rows, columns}, dy), dx = machine.output({rows, columns});
            const Tensor d_gamma = machine.output({columns}), d_beta = machine.tensor({columns}, beta);
            const Tensor unused = machine.output({columns});
            const BatchNorm args{tx,
                                 y,
                                 tg,
                                 tb,
                                 static_cast<float>(eps),
                                 mean,
                                 inv_std,
                                 with_relu ? Activation::relu : Activation::none};
            machine.ops->batchnorm_forward(args, {}, {}, 1, false);
            machine.ops->batchnorm_backward(args, d, dx, d_gamma, unused, false);
            machine.ops->batchnorm_backward(args, d, d, d_gamma, d_beta, true);
            const Values want =
                finite_differences(x, [&](const Values& at) { return loss(at, gamma, beta); });
            require_close(dx, want, 1e-4, 1e-4);
            require_close(d, want, 1e-4, 1e-4);
            Values twice = finite_differences(gamma, [&](const Values& at) { return loss(x, at, beta); });
            for (double& value : twice) value *= 2;
            require_close(d_gamma, twice, 1e-4, 2e-4);
            Values added = finite_differences(beta, [&](const Values& at) { return loss(x, gamma, at); });
            for (std::size_t i = 0; i < added.size(); ++i) added[i] += beta[i];
            require_close(d_beta, added, 1e-4, 1e-4);
        }
}

TEST_CASE("gradients of layernorm", "[gradient]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const auto& shape : norm_cases()) {
        const std::int64_t rows = shape.rows, columns = shape.columns;
        if (rows * columns > most_elements) continue;
        INFO(rows << "x" << columns);
        const double eps = 0.1;
        const Values x = random_values(rows * columns, 1, -2, 2), gamma = random_values(columns, 2, 0.5, 2);
        const Values beta = random_values(columns, 3), dy = random_values(rows * columns, 4);
        const auto loss = [&](const Values& x_, const Values& gamma_, const Values& beta_) {
            return inner_product(reference::layernorm(x_, gamma_, beta_, eps).y, dy);
        };
        const Tensor tx = machine.tensor({rows, columns}, x), y = machine.output({rows, columns});
        const Tensor tg = machine.tensor({columns}, gamma), tb = machine.tensor({columns}, beta);
        const Tensor mean = machine.output({rows}), inv_std = machine.output({rows});
        const Tensor d = machine.tensor({rows, columns}, dy), dx = machine.output({rows, columns});
        const Tensor d_gamma = machine.output({columns}), d_beta = machine.output({columns});
        const LayerNorm args{tx, y, tg, tb, static_cast<float>(eps), mean, inv_std};
        machine.ops->layernorm_forward(args);
        machine.ops->layernorm_backward(args, d, dx, d_gamma, d_beta, false);
        machine.ops->layernorm_backward(args, d, d, d_gamma, d_beta, true);
        const Values want = finite_differences(x, [&](const Values& at) { return loss(at, gamma, beta); });
        require_close(dx, want, 1e-4, 1e-4);
        require_close(d, want, 1e-4, 1e-4);
        Values g = finite_differences(gamma, [&](const Values& at) { return loss(x, at, beta); });
        Values b = finite_differences(beta, [&](const Values& at) { return loss(x, gamma, at); });
        for (double& value : g) value *= 2;
        for (double& value : b) value *= 2;
        require_close(d_gamma, g, 1e-4, 2e-4);
        require_close(d_beta, b, 1e-4, 2e-4);
    }
}

TEST_CASE("gradients of losses", "[gradient]") {
    const Machine machine(GENERATE(from_range(devices())));
    Cell loss(*machine.device), count(*machine.device), correct(*machine.device);
    const LossSums sums{loss.get(), count.get(), correct.get()};
    for (const auto& shape : logits_cases()) {
        const std::int64_t rows = shape.rows, classes = shape.columns;
        if (rows * classes > most_elements) continue;
        INFO(rows << "x" << classes);
        const Values x = random_values(rows * classes, 1, -3, 3), t = random_values(rows * classes, 2, 0, 1);
        const std::vector<std::int32_t> labels = random_labels(rows, static_cast<std::int32_t>(classes), 3);
        const Tensor tx = machine.tensor({rows, classes}, x), tt = machine.tensor({rows, classes}, t);
        const Tensor d = machine.output({rows, classes});
        machine.ops->cross_entropy({tx, machine.indices({rows}, labels), 0.2F, -100, 1, d, sums});
        require_close(
            d,
            finite_differences(
                x,
                [&](const Values& at) {
                    return reference::cross_entropy(at, labels, static_cast<double>(0.2F), -100, 1).loss;
                }),
            1e-4, 1e-5);
        machine.ops->mean_squared_error({tx, tt, 1, d, sums});
        require_close(
            d,
            finite_differences(
                x, [&](const Values& at) { return reference::squared_error(at, t, classes, 1).loss; }),
            1e-4, 1e-5);
        machine.ops->binary_cross_entropy({tx, tt, 1, d, sums});
        require_close(
            d,
            finite_differences(
                x, [&](const Values& at) { return reference::binary_cross_entropy(at, t, classes, 1).loss; }),
            1e-4, 1e-5);
    }
}
