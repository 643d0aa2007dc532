// Whole models against central differences: along a random direction within each parameter, the loss must
// change as the gradient says.
#include <cmath>

#include "support/lanes.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

struct Case {
    const char* name;
    std::vector<std::string> layers;
    Shape sample;
    std::int64_t outputs;
    LossOptions loss;
};

std::vector<Case> cases() {
    const LossOptions ce{}, smooth{LossKind::cross_entropy, 0.1F}, mse{LossKind::mse}, bce{LossKind::bce};
    std::vector<Case> list = {
        {"one linear layer", {"linear out=classes"}, {7}, 3, ce},
        {"tanh mlp, smoothing",
         {"linear out=9", "tanh", "linear out=5", "sigmoid", "linear out=classes"},
         {7},
         3,
         smooth},
        {"gelu and silu, mse",
         {"linear out=9", "gelu", "linear out=6", "gelu form=tanh", "linear out=5", "silu", "linear out=2"},
         {7},
         2,
         mse},
        {"no bias, bce", {"linear out=9 bias=false", "tanh", "linear out=3"}, {7}, 3, bce},
        {"dropout", {"linear out=16", "tanh", "dropout p=0.4", "linear out=classes"}, {7}, 3, ce},
        {"batchnorm", {"linear out=8", "batchnorm", "tanh", "linear out=classes"}, {7}, 3, ce},
        {"layernorm", {"layernorm", "linear out=8", "layernorm", "gelu", "linear out=classes"}, {7}, 3, ce},
        {"conv, pools",
         {"conv out=4 kernel=3 padding=1", "tanh", "avgpool kernel=2",
          "conv out=6 kernel=2 stride=2 bias=false", "batchnorm", "silu", "flatten", "linear out=classes"},
         {2, 6, 9},
         3,
         ce},
        {"grouped and dilated",
         {"conv out=6 kernel=3x2 groups=2 dilation=2x1 padding=2x0", "sigmoid", "layernorm", "globalavgpool",
          "flatten", "linear out=classes"},
         {4, 5, 7},
         3,
         ce},
        {"residual identity",
         {"linear out=6", "residual", "linear out=8", "tanh", "linear out=6", "end", "tanh",
          "linear out=classes"},
         {5},
         3,
         ce},
        {"residual shortcut",
         {"conv out=3 kernel=3 padding=1", "tanh", "residual", "conv out=5 kernel=3 stride=2 padding=1",
          "batchnorm", "tanh", "shortcut", "conv out=5 kernel=1 stride=2 bias=false", "batchnorm", "end",
          "gelu", "flatten", "linear out=classes"},
         {2, 5, 5},
         3,
         ce},
        {"residual first, nested",
         {"residual", "linear out=6", "residual", "tanh", "linear out=6", "end", "end", "linear out=classes"},
         {6},
         3,
         ce},
    };
    return list;
}

}  // namespace

TEST_CASE("gradients of models equal central differences", "[gradient]") {
    const std::vector<Case> all = cases();
    const auto which = GENERATE_COPY(range(std::size_t{0}, all.size()));
    const Case& c = all[which];
    INFO(c.name);
    Rig rig(c.layers, c.sample, c.outputs, 6, c.loss);
    rig.run({0, 6}, &rig.arena.gradients);

    for (const Parameter& parameter : rig.model.table().all()) {
        if (parameter.role == Role::statistic) continue;
        INFO(parameter.name);
        const auto w = rig.arena.weights.of(parameter).span<float>();
        const auto g = rig.arena.gradients.of(parameter).span<float>();
        const Values direction = random_values(static_cast<std::int64_t>(w.size()), 21);
        const std::vector<float> kept(w.begin(), w.end());
        double slope = 0, scale = 0;
        for (std::size_t i = 0; i < w.size(); ++i) {
            slope += g[i] * direction[i];
            scale += std::abs(g[i] * direction[i]);
        }
        const double h = 2e-3;
        const auto loss_at = [&](double t) {
            for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(kept[i] + t * direction[i]);
            return rig.run({0, 6}) / 6;
        };
        const double difference = (loss_at(h) - loss_at(-h)) / (2 * h);
        std::copy(kept.begin(), kept.end(), w.begin());
        CHECK(std::abs(difference - slope) < 2e-3 * (scale + 0.1));
    }
}

TEST_CASE("gradients in 16 bits are those of float32, rounded on the way", "[gradient]") {
    const std::vector<Case> all = cases();
    const auto which = GENERATE_COPY(range(std::size_t{0}, all.size()));
    const Case& c = all[which];
    INFO(c.name);
    Rig exact(c.layers, c.sample, c.outputs, 6, c.loss);
    const double loss = exact.run({0, 6}, &exact.arena.gradients);
    for (const DType type : {DType::bf16, DType::f16}) {
        INFO(name_of(type));
        Rig low(c.layers, c.sample, c.outputs, 6, c.loss, "kaiming", "cpu", type);
        const double tolerance = type == DType::bf16 ? 0.06 : 0.008;
        CHECK(low.run({0, 6}, &low.arena.gradients) == Approx(loss).epsilon(tolerance));
        // A bias before a norm has no gradient at all: what is left of it is rounding of the others'.
        double whole = 0;
        for (const float g : exact.arena.gradients.whole().span<float>()) whole += std::pow(g, 2);
        for (const Parameter& parameter : exact.model.table().all()) {
            INFO(parameter.name);
            const auto want = exact.arena.gradients.of(parameter).span<float>();
            const auto got = low.arena.gradients.of(parameter).span<float>();
            double error = 0, size = 0;
            for (std::size_t i = 0; i < want.size(); ++i) {
                error += std::pow(static_cast<double>(got[i] - want[i]), 2);
                size += std::pow(static_cast<double>(want[i]), 2);
            }
            CHECK(std::sqrt(error) <= tolerance * (std::sqrt(size) + 0.1 * std::sqrt(whole)));
        }
    }
}

TEST_CASE("relu and max pooling pass gradients where they should", "[gradient]") {
    // Away from their kinks these are piecewise linear, so a small step is exact up to rounding.
    Rig rig({"conv out=4 kernel=3 padding=1", "batchnorm", "relu", "maxpool kernel=2", "residual",
             "conv out=4 kernel=3 padding=1", "end", "relu", "flatten", "linear out=8", "relu",
             "linear out=classes"},
            {1, 6, 6}, 3, 5);
    rig.run({0, 5}, &rig.arena.gradients);
    double slope = 0, scale = 0;
    const auto w = rig.arena.weights.whole().span<float>();
    const auto g = rig.arena.gradients.whole().span<float>();
    const std::vector<float> kept(w.begin(), w.end());
    std::vector<double> direction(w.size(), 0.0);
    for (const Parameter& p : rig.model.table().all())
        if (p.role == Role::weight)
            for (std::int64_t i = p.place.begin; i < p.place.end; ++i)
                direction[static_cast<std::size_t>(i)] = (i * 7 % 11 - 5) * 0.1;
    for (std::size_t i = 0; i < w.size(); ++i)
        slope += g[i] * direction[i], scale += std::abs(g[i] * direction[i]);
    const double h = 1e-4;
    const auto loss_at = [&](double t) {
        for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(kept[i] + t * direction[i]);
        return rig.run({0, 5}) / 5;
    };
    CHECK((loss_at(h) - loss_at(-h)) / (2 * h) == Approx(slope).margin(5e-3 * (scale + 0.1)));
}

TEST_CASE("lanes add up to the whole batch", "[gradient]") {
    Rig rig({"linear out=9", "tanh", "dropout p=0.3", "linear out=classes"}, {7}, 3, 10);
    const double loss = rig.run({0, 10}, &rig.arena.gradients);
    const auto g = rig.arena.gradients.whole().span<float>();
    const std::vector<float> whole(g.begin(), g.end());
    double parts = 0;
    for (const Range part : {Range{0, 4}, Range{4, 5}, Range{5, 10}})
        parts += rig.run(part, &rig.arena.gradients, part.begin > 0);
    CHECK(parts == Approx(loss).epsilon(1e-6));
    for (std::size_t i = 0; i < whole.size(); ++i) CHECK(g[i] == Approx(whole[i]).margin(1e-6));
}
