// What does not go through the mathematics library gives the same bits for any number of threads.
#include <thread>

#include "support/devices.hpp"
#include "support/op_cases.hpp"
#include "support/tensors.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr std::int64_t rows = 5003, columns = 13, n = rows * columns;

/// The bits of everything that the verbs under test produce.
std::vector<float> results(const std::string& kind, int threads) {
    const Machine machine(kind, threads);
    Ops& ops = *machine.ops;
    std::vector<float> all;
    const auto keep = [&all](const Tensor& tensor) {
        const std::vector<float> values = tensor.values();
        all.insert(all.end(), values.begin(), values.end());
    };
    const auto keep_double = [&all](double value) {
        float parts[2];
        static_assert(sizeof parts == sizeof value);
        const auto high = static_cast<float>(value);
        all.push_back(high);
        all.push_back(static_cast<float>(value - static_cast<double>(high)));
    };
    const Shape shape{rows, columns};
    const Tensor x = machine.tensor(shape, random_values(n, 1)),
                 dy = machine.tensor(shape, random_values(n, 2));
    const Tensor y = machine.output(shape), dx = machine.output(shape), sum = machine.output({columns});
    const Tensor gamma = machine.tensor({columns}, random_values(columns, 3));
    const Tensor mean = machine.output({columns}), inv_std = machine.output({columns});
    const Tensor row_mean = machine.output({rows}), row_inv_std = machine.output({rows});
    const Tensor d_gamma = machine.output({columns}), d_beta = machine.output({columns});
    ops.sum_rows(x, sum, false);
    const BatchNorm norm{x, y, gamma, gamma, 1e-5F, mean, inv_std, Activation::relu};
    ops.batchnorm_forward(norm, {}, {}, 1, false);
    ops.batchnorm_backward(norm, dy, dx, d_gamma, d_beta, false);
    for (const Tensor* tensor : {&sum, &y, &dx, &mean, &inv_std, &d_gamma, &d_beta}) keep(*tensor);
    const LayerNorm layer{x, y, gamma, gamma, 1e-5F, row_mean, row_inv_std};
    ops.layernorm_forward(layer);
    ops.layernorm_backward(layer, dy, dx, d_gamma, d_beta, false);
    for (const Tensor* tensor : {&y, &dx, &d_gamma, &d_beta}) keep(*tensor);
    const RandomStream stream(1, Purpose::dropout, 2);
    ops.dropout(stream, 5, 0, 0.2F, x, y);
    ops.fill_normal(stream, 5, 0, 1, dx);
    for (const Tensor* tensor : {&y, &dx}) keep(*tensor);
    Cell loss(*machine.device), count(*machine.device), correct(*machine.device),
        norm_squared(*machine.device);
    const Indices labels = machine.indices({rows}, random_labels(rows, columns, 4));
    ops.cross_entropy({x, labels, 0.1F, -100, 1, dx, {loss.get(), count.get(), correct.get()}});
    keep(dx);
    ops.mean_squared_error({x, dy, 1, dx, {loss.get(), count.get(), correct.get()}});
    keep(dx);
    ops.sum_squares(x, norm_squared.get());
    const Tensor m = machine.tensor(shape, Values(static_cast<std::size_t>(n), 0.0));
    const Tensor v = machine.tensor(shape, Values(static_cast<std::size_t>(n), 0.0));
    ops.adam_update({.common = {.weight = x, .gradient = dy, .lr = 0.01}, .m = m, .v = v},
                    norm_squared.get());
    keep(x);
    for (const Cell* cell : {&loss, &count, &correct, &norm_squared}) keep_double(cell->value());
    return all;
}

/// A lane's share of work through the library. run() makes no assertion: those belong to the test's own
/// thread.
struct Lane {
    explicit Lane(const std::string& kind) : machine(kind) {}

    void run() {
        for (int repeat = 0; repeat < 20; ++repeat) {
            machine.ops->conv_forward(window, x, kernel, {}, Activation::relu, y);
            machine.ops->conv_backward_data(window, dy, kernel, dx);
            machine.ops->conv_backward_weights(window, x, dy, d_kernel, true);
            machine.ops->activation_forward(Activation::gelu, y, dy);
        }
    }
    std::vector<float> results() const {
        std::vector<float> all;
        for (const Tensor* tensor : {&y, &dx, &d_kernel, &dy}) {
            const std::vector<float> values = tensor->values();
            all.insert(all.end(), values.begin(), values.end());
        }
        return all;
    }

    Window window{4, 17, 9, 9, 33, 3, 3, 2, 2, 1, 1};
    Machine machine;
    Tensor x = machine.tensor(input_shape(window), random_values(input_shape(window).count(), 1));
    Tensor kernel = machine.tensor(kernel_shape(window), random_values(kernel_shape(window).count(), 2));
    Tensor dy = machine.tensor(output_shape(window), random_values(output_shape(window).count(), 3));
    Tensor d_kernel = machine.tensor(kernel_shape(window), random_values(kernel_shape(window).count(), 4));
    Tensor y = machine.output(output_shape(window)), dx = machine.output(input_shape(window));
};

}  // namespace

TEST_CASE("results do not depend on the thread count", "[unit][ops][many-elements]") {
    const std::string kind = GENERATE(from_range(devices()));
    const std::vector<float> one = results(kind, 1);
    REQUIRE(results(kind, 1) == one);
    REQUIRE(results(kind, 2) == one);
    REQUIRE(results(kind, 3) == one);
}

TEST_CASE("verbs of several objects run side by side", "[unit][ops]") {
    const std::string kind = GENERATE(from_range(devices()));
    Lane alone(kind), here(kind), beside(kind);
    alone.run();
    std::thread other([&beside] { beside.run(); });
    here.run();
    other.join();
    REQUIRE(here.results() == alone.results());
    REQUIRE(beside.results() == alone.results());
}

TEST_CASE("the math library is named with its version", "[unit][ops]") {
    REQUIRE_THAT(math_library_version(), contains("oneDNN "));
    REQUIRE_THAT(Machine("cpu", 2).ops->description(), contains("2 threads"));
}
