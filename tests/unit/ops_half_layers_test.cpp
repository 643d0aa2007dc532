// Norms and losses on bfloat16 and float16, alone and mixed with float32.
#include <cmath>

#include "reference/reference.hpp"
#include "support/devices.hpp"
#include "support/op_cases.hpp"
#include "support/tensors.hpp"

using namespace trireme;
using namespace trireme::testing;
using enum DType;

namespace {

constexpr float eps = 1e-5F;

Values relu(bool wanted, const Values& y) {
    return wanted ? reference::activate(Activation::relu, y) : y;
}

/// Gradients of batch norm (statistics of columns) or layer norm (of rows) with statistics of their own.
struct NormGradients {
    Values dx, d_gamma, d_beta;
};
NormGradients norm_backward(bool columns_share, const Values& x, const Values& dy, const Values& gamma,
                            const reference::Normalized& statistics) {
    const std::size_t columns = gamma.size(), groups = statistics.mean.size();
    const double length = static_cast<double>(x.size()) / static_cast<double>(groups);
    NormGradients result{Values(x.size()), Values(columns), Values(columns)};
    Values x_hat(x.size()), mean(groups), product(groups), inverse(groups);
    const auto group = [&](std::size_t i) { return columns_share ? i % columns : i / columns; };
    for (std::size_t s = 0; s < groups; ++s)
        inverse[s] = 1 / std::sqrt(statistics.variance[s] + static_cast<double>(eps));
    for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t c = i % columns, s = group(i);
        x_hat[i] = (x[i] - statistics.mean[s]) * inverse[s];
        result.d_gamma[c] += dy[i] * x_hat[i];
        result.d_beta[c] += dy[i];
        mean[s] += gamma[c] * dy[i] / length;
        product[s] += gamma[c] * dy[i] * x_hat[i] / length;
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t s = group(i);
        result.dx[i] = inverse[s] * (gamma[i % columns] * dy[i] - mean[s] - x_hat[i] * product[s]);
    }
    return result;
}

struct Sums {
    explicit Sums(const Machine& machine)
        : loss(*machine.device), count(*machine.device), correct(*machine.device) {}
    LossSums get() const { return {loss.get(), count.get(), correct.get()}; }
    void require(const reference::Loss& want) const {
        REQUIRE(loss.value() == Approx(want.loss).epsilon(1e-6).margin(1e-7));
        REQUIRE(count.value() == want.count);
        REQUIRE(correct.value() == Approx(want.correct).epsilon(1e-6));
    }
    Cell loss, count, correct;
};

}  // namespace

TEST_CASE("batchnorm of 16-bit activations", "[unit][ops][many-elements]") {
    const Machine machine(GENERATE(from_range(devices())));
    const auto types = GENERATE(from_range(type_cases()));
    for (const auto& [rows, columns] : norm_cases())
        for (const bool with_relu : {false, true}) {
            INFO(text(types) << rows << "x" << columns << " relu " << with_relu);
            const Shape shape{rows, columns};
            const Activation activation = with_relu ? Activation::relu : Activation::none;
            const Values x = rounded(types[0], random_values(rows * columns, 1, 2, 5)),
                         dy = rounded(types[2], random_values(rows * columns, 2)),
                         gamma = random_values(columns, 3, 0.5, 2), beta = random_values(columns, 4);
            const reference::Normalized want = reference::batchnorm(x, gamma, beta, static_cast<double>(eps));
            const Real tx = machine.real(types[0], shape, x), y = machine.real_output(types[1], shape);
            const Real tdy = machine.real(types[2], shape, dy), dx = machine.real_output(types[3], shape);
            const Tensor tg = machine.tensor({columns}, gamma), tb = machine.tensor({columns}, beta);
            const Tensor mean = machine.output({columns}), inv_std = machine.output({columns});
            const Tensor d_gamma = machine.output({columns}), d_beta = machine.output({columns});
            const BatchNorm args{tx, y, tg, tb, eps, mean, inv_std, activation};
            machine.ops->batchnorm_forward(args, {}, {}, 1, false);
            const double looseness = rows < 4 ? 1e-3 : 1e-4;
            require_close(y, relu(with_relu, want.y), looseness, looseness);
            require_close(mean, want.mean, 1e-6, 1e-6);

            Values gradient = dy;
            const Values seen = y.values();
            for (std::size_t i = 0; i < gradient.size(); ++i)
                if (with_relu && !(seen[i] > 0)) gradient[i] = 0;
            const NormGradients back = norm_backward(true, x, gradient, gamma, want);
            const double slack = rows < 4 ? 5e-3 : 2e-4;
            for (const Real* to : {&dx, &tdy}) {
                machine.ops->batchnorm_backward(args, tdy, *to, d_gamma, d_beta, false);
                require_close(*to, back.dx, slack, slack);
                require_close(d_gamma, back.d_gamma, slack, slack);
                require_close(d_beta, back.d_beta, 1e-4, 1e-4);
            }

            const Tensor var = machine.tensor({columns}, want.variance);
            for (const Real* to : {&y, &tx}) {
                machine.ops->batchnorm_apply({tx, *to, tg, tb, eps, {}, {}, activation}, mean, var);
                require_close(*to, relu(with_relu, want.y), looseness, looseness);
            }
        }
}

TEST_CASE("layernorm of 16-bit activations", "[unit][ops][many-elements]") {
    const Machine machine(GENERATE(from_range(devices())));
    const auto types = GENERATE(from_range(type_cases()));
    for (const auto& [rows, columns] : norm_cases()) {
        INFO(text(types) << rows << "x" << columns);
        const Shape shape{rows, columns};
        const Values x = rounded(types[0], random_values(rows * columns, 1, 2, 5)),
                     dy = rounded(types[2], random_values(rows * columns, 2)),
                     gamma = random_values(columns, 3, 0.5, 2), beta = random_values(columns, 4);
        const reference::Normalized want = reference::layernorm(x, gamma, beta, static_cast<double>(eps));
        const Real tx = machine.real(types[0], shape, x), y = machine.real_output(types[1], shape);
        const Real tdy = machine.real(types[2], shape, dy), dx = machine.real_output(types[3], shape);
        const Tensor tg = machine.tensor({columns}, gamma), tb = machine.tensor({columns}, beta);
        const Tensor mean = machine.output({rows}), inv_std = machine.output({rows});
        const Tensor d_gamma = machine.output({columns}), d_beta = machine.output({columns});
        const LayerNorm args{tx, y, tg, tb, eps, mean, inv_std};
        machine.ops->layernorm_forward(args);
        const double looseness = columns < 4 ? 1e-3 : 1e-4;
        require_close(mean, want.mean, 1e-6, 1e-6);
        require_close(y, want.y, looseness, looseness);
        const NormGradients back = norm_backward(false, x, dy, gamma, want);
        const double slack = columns < 4 ? 5e-3 : 2e-4;
        for (const Real* to : {&dx, &tdy}) {
            machine.ops->layernorm_backward(args, tdy, *to, d_gamma, d_beta, false);
            require_close(*to, back.dx, slack, slack);
            require_close(d_gamma, back.d_gamma, slack, slack);
            require_close(d_beta, back.d_beta, 1e-4, 1e-4);
        }
    }
}

TEST_CASE("cross-entropy of 16-bit logits, in place too", "[unit][ops][many-elements]") {
    const Machine machine(GENERATE(from_range(devices())));
    const auto types = GENERATE(from_range(type_cases()));
    for (const auto& [rows, classes] : logits_cases())
        for (const float smoothing : {0.0F, 0.1F}) {
            INFO(text(types) << rows << "x" << classes << " smoothing " << smoothing);
            const Values logits = rounded(types[0], random_values(rows * classes, 1, -20, 20));
            std::vector<std::int32_t> labels = random_labels(rows, static_cast<std::int32_t>(classes), 2);
            if (rows > 2) labels[1] = -100;
            const reference::Loss want =
                reference::cross_entropy(logits, labels, static_cast<double>(smoothing), -100, 0.5);
            const Shape shape{rows, classes};
            const Real x = machine.real(types[0], shape, logits), d = machine.real_output(types[3], shape);
            const Indices y = machine.indices({rows}, labels);
            for (const View& gradient : {View{}, d.view(), x.view()}) {
                const Sums sums(machine);
                machine.ops->cross_entropy({x, y, smoothing, -100, 0.5F, gradient, sums.get()});
                sums.require(want);
            }
            require_close(d, want.gradient, 1e-5, 1e-6);
            require_close(x, want.gradient, 1e-5, 1e-6);
        }
}

TEST_CASE("regression losses of 16-bit predictions, in place too", "[unit][ops][many-elements]") {
    const Machine machine(GENERATE(from_range(devices())));
    const auto types = GENERATE(from_range(type_cases()));
    for (const auto& [rows, outputs] : norm_cases())
        for (const bool binary : {false, true}) {
            INFO(text(types) << rows << "x" << outputs << (binary ? " binary" : " squared"));
            const Shape shape{rows, outputs};
            const Values x = rounded(types[0], random_values(rows * outputs, 1, -9, 9)),
                         t = random_values(rows * outputs, 2, 0, 1);
            const reference::Loss want = binary ? reference::binary_cross_entropy(x, t, outputs, 0.5)
                                                : reference::squared_error(x, t, outputs, 0.5);
            const Real prediction = machine.real(types[0], shape, x),
                       d = machine.real_output(types[3], shape);
            const Tensor target = machine.tensor(shape, t);
            for (const View& gradient : {View{}, d.view(), prediction.view()}) {
                const Sums sums(machine);
                const Regression args{prediction, target, 0.5F, gradient, sums.get()};
                binary ? machine.ops->binary_cross_entropy(args) : machine.ops->mean_squared_error(args);
                sums.require(want);
            }
            require_close(d, want.gradient, 1e-5, 1e-6);
            require_close(prediction, want.gradient, 1e-5, 1e-6);
        }
}

TEST_CASE("a loss gradient beyond float16 becomes infinite", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    constexpr float scale = 1 << 20;
    const Sums sums(machine);
    const Real x = machine.real(f16, {1, 2}, {1, 0}), d = machine.real_output(f16, {1, 2}),
               wider = machine.real_output(bf16, {1, 2});
    const Tensor target = machine.tensor({1, 2}, {0, 1});
    machine.ops->mean_squared_error({x, target, 2 * scale, d, sums.get()});
    REQUIRE(d.values() == Values{INFINITY, -INFINITY});
    machine.ops->mean_squared_error({x, target, 2 * scale, wider, sums.get()});
    REQUIRE(wider.values() == Values{2 * scale, -2 * scale});
    machine.ops->binary_cross_entropy({x, target, 2 * scale, d, sums.get()});
    REQUIRE(d.values() == Values{INFINITY, -INFINITY});
    machine.ops->cross_entropy({x, machine.indices({1}, {1}), 0, -100, scale, d, sums.get()});
    REQUIRE(d.values() == Values{INFINITY, -INFINITY});
}
