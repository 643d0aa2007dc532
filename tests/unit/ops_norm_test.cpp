#include "reference/reference.hpp"
#include "support/devices.hpp"
#include "support/op_cases.hpp"
#include "support/tensors.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr float eps = 1e-5F;

Values relu(bool wanted, Values y) {
    return wanted ? reference::activate(Activation::relu, y) : y;
}

Values inverse_std(const Values& variance) {
    Values result;
    for (const double v : variance) result.push_back(1 / std::sqrt(v + static_cast<double>(eps)));
    return result;
}

}  // namespace

TEST_CASE("batchnorm forward: statistics, running shares, output", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const auto& [rows, columns] : norm_cases())
        for (const bool with_relu : {false, true}) {
            INFO(rows << "x" << columns << " relu " << with_relu);
            const Values x = random_values(rows * columns, 1, 2, 5),
                         gamma = random_values(columns, 2, 0.5, 2);
            const Values beta = random_values(columns, 3), old = random_values(columns, 4);
            const reference::Normalized want = reference::batchnorm(x, gamma, beta, static_cast<double>(eps));
            const Tensor tx = machine.tensor({rows, columns}, x), y = machine.output({rows, columns});
            const Tensor tg = machine.tensor({columns}, gamma), tb = machine.tensor({columns}, beta);
            const Tensor mean = machine.output({columns}), inv_std = machine.output({columns});
            const Tensor share_mean = machine.output({columns}), share_var = machine.tensor({columns}, old);
            const BatchNorm args{tx,  y,    tg,      tb,
                                 eps, mean, inv_std, with_relu ? Activation::relu : Activation::none};
            machine.ops->batchnorm_forward(args, share_mean, {}, 0.25F, false);
            machine.ops->batchnorm_forward(args, {}, share_var, 0.25F, true);
            const double looseness = rows < 3 ? 1e-3 : 1e-4;  // few rows: variances near eps magnify rounding
            require_close(y, relu(with_relu, want.y), looseness, looseness);
            require_close(mean, want.mean, 1e-6, 1e-6);
            if (rows > 2) require_close(inv_std, inverse_std(want.variance), 1e-5, 1e-5);
            Values wanted_mean = want.mean, wanted_var = want.variance;
            for (std::size_t c = 0; c < wanted_mean.size(); ++c) {
                const auto n = static_cast<double>(rows);
                wanted_mean[c] *= 0.25;
                wanted_var[c] = old[c] + 0.25 * wanted_var[c] * (rows > 1 ? n / (n - 1) : 1);
            }
            require_close(share_mean, wanted_mean, 1e-6, 1e-6);
            require_close(share_var, wanted_var, 1e-5, 1e-6);
        }
}

TEST_CASE("batchnorm's variance survives a large mean", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    const std::int64_t rows = 5000, columns = 3;
    Values x = random_values(rows * columns, 1);
    for (double& value : x) value = static_cast<double>(static_cast<float>(10000 + value));
    const Values ones(3, 1.0), zeros(3, 0.0);
    const reference::Normalized want = reference::batchnorm(x, ones, zeros, 1e-5);
    const Tensor tx = machine.tensor({rows, columns}, x), y = machine.output({rows, columns});
    const Tensor gamma = machine.tensor({3}, ones), beta = machine.tensor({3}, zeros);
    const Tensor mean = machine.output({3}), inv_std = machine.output({3});
    machine.ops->batchnorm_forward({tx, y, gamma, beta, 1e-5F, mean, inv_std}, {}, {}, 1, false);
    require_close(inv_std, inverse_std(want.variance), 1e-5, 0);
}

TEST_CASE("batchnorm with given statistics, in place too", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const auto& [rows, columns] : norm_cases()) {
        INFO(rows << "x" << columns);
        const Values x = random_values(rows * columns, 1), gamma = random_values(columns, 2),
                     beta = random_values(columns, 3);
        const Values mean = random_values(columns, 4), var = random_values(columns, 5, 0.1, 2);
        Values want(x.size());
        for (std::size_t i = 0; i < x.size(); ++i) {
            const std::size_t c = i % static_cast<std::size_t>(columns);
            want[i] = gamma[c] * (x[i] - mean[c]) / std::sqrt(var[c] + static_cast<double>(eps)) + beta[c];
        }
        const Tensor tx = machine.tensor({rows, columns}, x);
        const Tensor tg = machine.tensor({columns}, gamma), tb = machine.tensor({columns}, beta);
        const Tensor tm = machine.tensor({columns}, mean), tv = machine.tensor({columns}, var);
        machine.ops->batchnorm_apply({tx, tx, tg, tb, eps, {}, {}, Activation::relu}, tm, tv);
        require_close(tx, relu(true, want));
    }
}

TEST_CASE("norms of no rows leave zero sums", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    const Tensor x = machine.output({0, 3}), gamma = machine.output({3}), beta = machine.output({3});
    const Tensor mean = machine.output({3}), inv_std = machine.output({3}), running = machine.output({3});
    const BatchNorm args{x, x, gamma, beta, eps, mean, inv_std};
    machine.ops->batchnorm_forward(args, running, {}, 0, false);
    require_close(running, {0, 0, 0});
    const Tensor d_gamma = machine.output({3}), d_beta = machine.tensor({3}, {1, 2, 3}),
                 rows = machine.output({0});
    machine.ops->batchnorm_backward(args, x, x, d_gamma, d_gamma, false);
    require_close(d_gamma, {0, 0, 0});
    machine.ops->layernorm_forward({x, x, gamma, beta, eps, rows, rows});
    machine.ops->layernorm_backward({x, x, gamma, beta, eps, rows, rows}, x, x, d_beta, d_beta, true);
    require_close(d_beta, {1, 2, 3});
}

TEST_CASE("layernorm forward", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const auto& [rows, columns] : norm_cases()) {
        INFO(rows << "x" << columns);
        const Values x = random_values(rows * columns, 1, 2, 5), gamma = random_values(columns, 2, 0.5, 2);
        const Values beta = random_values(columns, 3);
        const reference::Normalized want = reference::layernorm(x, gamma, beta, static_cast<double>(eps));
        const Tensor tx = machine.tensor({rows, columns}, x), y = machine.output({rows, columns});
        const Tensor tg = machine.tensor({columns}, gamma), tb = machine.tensor({columns}, beta);
        const Tensor mean = machine.output({rows}), inv_std = machine.output({rows});
        machine.ops->layernorm_forward({tx, y, tg, tb, eps, mean, inv_std});
        require_close(mean, want.mean, 1e-6, 1e-6);
        const double looseness = columns < 4 ? 1e-3 : 1e-4;
        require_close(inv_std, inverse_std(want.variance), looseness, 1e-6);
        require_close(y, want.y, looseness, looseness);
    }
}
