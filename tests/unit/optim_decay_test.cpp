// Which parameters decay (case 6): matrices do, biases, norms and statistics do not.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "trireme/ops/ops.hpp"
#include "trireme/optim/optimizer.hpp"
#include "trireme/param/arena.hpp"

using namespace trireme;
using trireme::testing::Approx;

namespace {

// A small model with a matrix and a kernel, and what must not decay: all values are 1 + their place.
struct Small {
    explicit Small(const Optimizer& optimizer) : device(make_device("cpu")), ops(make_ops(*device, 1)) {
        table.add({.name = "conv.weight", .shape = {3, 2, 3, 3}, .decay = true});
        table.add({.name = "conv.bias", .shape = {3}});
        table.add({.name = "norm.weight", .shape = {3}});
        table.add({.name = "norm.bias", .shape = {3}});
        table.add({.name = "norm.running_mean", .shape = {3}, .role = Role::statistic});
        table.add({.name = "fc.weight", .shape = {5, 3}, .decay = true});
        table.add({.name = "fc.bias", .shape = {5}});
        table.lay_out();
        arena = std::make_unique<Arena>(*device, table, ArenaOptions{.state_names = optimizer.state_names()});
        ops->fill(arena->gradients.whole(), 0);
        for (Column& state : arena->states) ops->fill(state.whole(), 0);
        for (const Parameter& parameter : table.all()) {
            float* values = arena->weights.of(parameter).as<float>();
            for (std::int64_t i = 0; i < parameter.shape.count(); ++i) values[i] = start(i);
            float* gradients = arena->gradients.of(parameter).as<float>();
            if (parameter.role == Role::statistic)
                for (std::int64_t i = 0; i < parameter.shape.count(); ++i) gradients[i] = start(i);
        }
    }

    static float start(std::int64_t i) { return static_cast<float>(1 + i % 7) * (i % 2 == 0 ? 1.0F : -1.0F); }

    std::unique_ptr<Device> device;
    std::unique_ptr<Ops> ops;
    ParameterTable table;
    std::unique_ptr<Arena> arena;
};

}  // namespace

TEST_CASE("case 6: ten steps of decay with zero gradients scale matrices by 0.99^10 and nothing else",
          "[unit][optim]") {
    const std::string name = GENERATE("adamw", "sgd", "lion");
    const OptimizerOptions options{.name = name, .lr = 0.1, .weight_decay = 0.1};
    const auto optimizer = make_optimizer(options);
    Small model(*optimizer);
    UpdatePass update(*optimizer, model.table, options);
    for (int step = 1; step <= 10; ++step) {
        double squares = 0;
        update.apply(*model.ops, *model.arena, {.lr = 0.1, .step = step}, &squares);
        REQUIRE(squares == 0);
    }
    const double scale = std::pow(0.99, 10);
    REQUIRE(scale == Approx(0.904382).epsilon(1e-6));
    for (const Parameter& parameter : model.table.all()) {
        const float* values = model.arena->weights.of(parameter).as<float>();
        for (std::int64_t i = 0; i < parameter.shape.count(); ++i) {
            INFO(name << ": " << parameter.name << " " << i);
            const float start = Small::start(i);
            if (parameter.name == "conv.weight" || parameter.name == "fc.weight")
                REQUIRE(values[i] == Approx(scale * start).epsilon(1e-6));
            else if (parameter.role == Role::statistic)
                REQUIRE(values[i] == Approx(start).epsilon(1e-6));
            else
                REQUIRE(values[i] == start);
        }
    }
}
