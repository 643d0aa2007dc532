// Every optimizer through the update pass for 20 steps, against its paper's equations in doubles: parameters
// that decay and that do not, rates of their own, a scaled gradient, the low-precision copy and the average.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "reference/optimizers.hpp"
#include "support/tensors.hpp"
#include "trireme/optim/optimizer.hpp"
#include "trireme/param/arena.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr double gradient_scale = 0.5, average_decay = 0.9;

OptimizerOptions options_of(const std::string& kind) {
    OptimizerOptions options{.name = kind, .lr = 0.02, .beta2 = 0.95, .weight_decay = 0.1};
    if (kind == "amsgrad") {
        options.name = "adamw";
        options.amsgrad = true;
    }
    if (kind == "lars" || kind == "momentum" || kind == "nesterov") options.momentum = 0.9;
    if (kind == "lars") options.trust = 0.02;
    if (kind == "momentum") options.dampening = 0.3;
    options.nesterov = kind == "nesterov";
    if (kind == "momentum" || kind == "nesterov") options.name = "sgd";
    options.rules = {parse_rule("*.bias lr=2x decay=0.05")};
    return options;
}

/// One parameter as the equations see it.
struct Expected {
    Values weight, first, second, largest;  ///< and its moments
    Values average;
    double factor = 1, decay = 0;
    bool matrix = false;

    void step(const OptimizerOptions& o, double rate, std::int64_t number, const Values& gradient) {
        const double lr = factor * rate;
        if (o.name == "adam" || o.name == "adamw")
            reference::adam({lr, o.beta1, o.beta2, o.eps, decay, o.name == "adamw"}, number, gradient, weight,
                            first, second, o.amsgrad ? &largest : nullptr);
        else if (o.name == "sgd")
            reference::sgd({lr, o.momentum, o.dampening, decay, o.nesterov, number == 1}, gradient, weight,
                           first);
        else if (o.name == "lion")
            reference::lion({lr, o.beta1, o.beta2, decay}, gradient, weight, first);
        else if (o.name == "lamb")
            reference::lamb({lr, o.beta1, o.beta2, o.eps, decay, matrix}, number, gradient, weight, first,
                            second);
        else
            reference::lars({lr, o.momentum, o.trust, decay, matrix}, gradient, weight, first);
    }
};

ParameterTable small_table() {
    ParameterTable table;
    table.add({.name = "conv.weight", .shape = {3, 2, 3, 3}, .decay = true});
    table.add({.name = "conv.bias", .shape = {3}});
    table.add({.name = "norm.weight", .shape = {3}});
    table.add({.name = "norm.bias", .shape = {3}});
    table.add({.name = "norm.running_mean", .shape = {3}, .role = Role::statistic});
    table.add({.name = "fc.weight", .shape = {50, 97}, .decay = true});
    table.add({.name = "fc.bias", .shape = {50}});
    table.lay_out();
    return table;
}

Values values_of(const View& view) {
    const auto floats = view.span<float>();
    return Values(floats.begin(), floats.end());
}

}  // namespace

TEST_CASE("every optimizer follows its equations for 20 steps", "[unit][optim]") {
    const std::string kind =
        GENERATE("sgd", "momentum", "nesterov", "adam", "adamw", "amsgrad", "lion", "lamb", "lars");
    const DType compute = GENERATE(DType::f32, DType::bf16, DType::f16);
    const bool average = GENERATE(false, true);
    INFO(kind << " " << name_of(compute) << (average ? " with average" : ""));
    const OptimizerOptions options = options_of(kind);
    const auto device = make_device("cpu");
    const auto ops = make_ops(*device, 1);
    const ParameterTable table = small_table();
    const auto optimizer = make_optimizer(options);
    Arena arena(*device, table,
                {.state_names = optimizer->state_names(), .compute = compute, .average = average});
    UpdatePass pass(*optimizer, table, options);

    std::vector<Expected> expected;
    for (const Parameter& parameter : table.all()) {
        const Values start = random_values(parameter.shape.count(), 1 + expected.size());
        std::copy(start.begin(), start.end(), arena.weights.of(parameter).as<float>());
        if (average) ops->copy(arena.weights.of(parameter), arena.average->of(parameter));
        const Values zeros(start.size(), 0.0);
        const bool bias = parameter.name.ends_with(".bias");
        expected.push_back({start, zeros, zeros, zeros, start, bias ? 2.0 : 1.0,
                            bias              ? 0.05
                            : parameter.decay ? options.weight_decay
                                              : 0.0,
                            parameter.decay});
    }
    for (int step = 1; step <= 20; ++step) {
        const double rate = options.lr / step;
        double squares = 0;
        for (std::size_t i = 0; i < expected.size(); ++i) {
            const Parameter& parameter = table.all()[i];
            Values gradient =
                random_values(parameter.shape.count(), 100 * static_cast<std::uint64_t>(step) + i);
            std::copy(gradient.begin(), gradient.end(), arena.gradients.of(parameter).as<float>());
            if (parameter.role == Role::statistic) continue;
            for (double& g : gradient) g *= gradient_scale;
            squares += reference::squares(gradient);
            expected[i].step(options, rate, step, gradient);
        }
        double found = 0;
        pass.apply(
            *ops, arena,
            {.lr = rate, .step = step, .gradient_scale = gradient_scale, .average_decay = average_decay},
            &found);
        REQUIRE(found == Approx(squares).epsilon(1e-9));
        for (std::size_t i = 0; i < expected.size(); ++i) {
            const Parameter& parameter = table.all()[i];
            const Values weight = values_of(arena.weights.of(parameter));
            if (parameter.role == Role::statistic) {
                if (average) REQUIRE(values_of(arena.average->of(parameter)) == weight);
                continue;
            }
            INFO(parameter.name << " at step " << step);
            require_close(weight, expected[i].weight, 1e-4, 1e-5);
            if (compute != DType::f32) {
                const auto* low = static_cast<const std::uint16_t*>(arena.low->of(parameter).data);
                Values copy;
                for (std::size_t k = 0; k < weight.size(); ++k) copy.push_back(value_of(compute, low[k]));
                REQUIRE(copy == rounded(compute, weight));
            }
            if (!average) continue;
            for (std::size_t k = 0; k < weight.size(); ++k)
                expected[i].average[k] =
                    average_decay * expected[i].average[k] + (1 - average_decay) * weight[k];
            require_close(values_of(arena.average->of(parameter)), expected[i].average, 1e-5, 1e-6);
        }
    }
}
