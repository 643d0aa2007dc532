#include <bit>
#include <cstdint>
#include <limits>

#include "reference/optimizers.hpp"
#include "support/devices.hpp"
#include "support/op_cases.hpp"
#include "support/tensors.hpp"

using namespace trireme;
using namespace trireme::testing;
using reference::squares;

namespace {

constexpr double gradient_scale = 0.25, average_decay = 0.75;

Values scaled(const Values& gradient) {
    Values result = gradient;
    for (double& value : result) value *= gradient_scale;
    return result;
}

/// The columns that every pass shares: weights, and for a 16-bit type their low-precision copy and average.
class Weights {
public:
    Weights(const Machine& machine, DType low, const Values& start)
        : weight_(machine.tensor({count(start)}, start)),
          low_(machine.real_output(low, {count(start)})),
          average_(machine.tensor({count(start)}, start)),
          follows_(start),
          copies_(low != DType::f32) {}

    Update update(const Tensor& gradient, double lr, double decay) const {
        return {.weight = weight_,
                .gradient = gradient,
                .low = copies_ ? low_.view() : View{},
                .average = copies_ ? average_.view() : View{},
                .average_decay = average_decay,
                .lr = lr,
                .weight_decay = decay,
                .gradient_scale = gradient_scale};
    }
    /// After each pass.
    void check_copies() {
        if (!copies_) return;
        const std::vector<float> weight = weight_.values();
        const Values exact(weight.begin(), weight.end());
        CHECK(low_.values() == rounded(low_.type(), exact));
        for (std::size_t i = 0; i < exact.size(); ++i)
            follows_[i] = average_decay * follows_[i] + (1 - average_decay) * exact[i];
        require_close(average_, follows_, 1e-6, 1e-7);
    }
    const Tensor& weight() const { return weight_; }

private:
    static std::int64_t count(const Values& values) { return static_cast<std::int64_t>(values.size()); }

    Tensor weight_;
    Real low_;
    Tensor average_;
    Values follows_;
    bool copies_;
};

Tensor zeros(const Machine& machine, std::int64_t n) {
    return machine.tensor({n}, Values(static_cast<std::size_t>(n), 0.0));
}

/// Types of the low-precision copy; float32: without the copies.
const std::vector<DType> copies{DType::f32, DType::bf16, DType::f16};

}  // namespace

TEST_CASE("adam, adamw and amsgrad follow their equations over several steps", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    const bool decoupled = GENERATE(false, true), amsgrad = GENERATE(false, true);
    const DType low = GENERATE(from_range(copies));
    for (const std::int64_t n : flat_cases()) {
        INFO(n << (decoupled ? " adamw" : " adam with L2") << (amsgrad ? " amsgrad" : ""));
        const reference::Adam settings{0.01, 0.9, 0.9, 1e-8, 0.1, decoupled};
        Values weight = random_values(n, 1), m(weight.size(), 0.0), v(weight.size(), 0.0), v_max = v;
        Weights weights(machine, low, weight);
        const Tensor tm = zeros(machine, n), tv = zeros(machine, n), tmax = zeros(machine, n);
        for (int step = 1; step <= 3; ++step) {
            // The last gradient is small, so that the largest v is one of the past.
            const Values gradient =
                random_values(n, 10 + static_cast<std::uint64_t>(step), step == 3 ? -0.1 : -1, 0.1);
            const Tensor tg = machine.tensor({n}, gradient);
            Cell norm(*machine.device, 2);
            machine.ops->adam_update({.common = weights.update(tg, settings.lr, settings.weight_decay),
                                      .m = tm,
                                      .v = tv,
                                      .v_max = amsgrad ? tmax.view() : View{},
                                      .beta1 = settings.beta1,
                                      .beta2 = settings.beta2,
                                      .eps = settings.eps,
                                      .decoupled = decoupled,
                                      .step = step},
                                     step == 2 ? nullptr : norm.get());
            reference::adam(settings, step, scaled(gradient), weight, m, v, amsgrad ? &v_max : nullptr);
            if (step != 2) REQUIRE(norm.value() == Approx(2 + squares(scaled(gradient))).epsilon(1e-9));
            require_close(tg, gradient, 0, 1e-30);
            weights.check_copies();
        }
        require_close(weights.weight(), weight, 1e-4, 1e-5);
        require_close(tm, m, 1e-5, 1e-6);
        require_close(tv, v, 1e-5, 1e-7);
        require_close(tmax, v_max, 1e-5, 1e-7);
    }
}

TEST_CASE("sgd with and without momentum", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    const double momentum = GENERATE(0.0, 0.9);
    const bool nesterov = GENERATE(false, true);
    const DType low = GENERATE(from_range(copies));
    for (const std::int64_t n : flat_cases()) {
        INFO(n << " momentum " << momentum << " nesterov " << nesterov);
        reference::Sgd settings{0.1, momentum, nesterov || momentum == 0 ? 0.0 : 0.2, 0.05, nesterov, true};
        Values weight = random_values(n, 1), buffer(weight.size(), 0.0);
        Weights weights(machine, low, weight);
        // Not read on the first update.
        const Tensor tb = machine.tensor({n}, Values(weight.size(), NAN));
        for (int step = 1; step <= 3; ++step) {
            const Values gradient = random_values(n, 10 + static_cast<std::uint64_t>(step));
            const Tensor tg = machine.tensor({n}, gradient);
            Cell norm(*machine.device);
            settings.first = step == 1;
            machine.ops->sgd_update({.common = weights.update(tg, settings.lr, settings.weight_decay),
                                     .momentum = momentum == 0 ? View{} : tb.view(),
                                     .momentum_factor = momentum,
                                     .fresh = 1 - settings.dampening,
                                     .nesterov = nesterov,
                                     .first = settings.first},
                                    norm.get());
            reference::sgd(settings, scaled(gradient), weight, buffer);
            REQUIRE(norm.value() == Approx(squares(scaled(gradient))).epsilon(1e-9));
            weights.check_copies();
        }
        require_close(weights.weight(), weight);
        if (momentum != 0) require_close(tb, buffer);
    }
}

TEST_CASE("sgd with a rate inside the momentum, as LARS asks for it", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    const double momentum = GENERATE(0.0, 0.9);
    const std::int64_t n = 4097;
    const reference::Lars settings{0.03, momentum, 0, 0.05, false};
    Values weight = random_values(n, 1), buffer(weight.size(), 0.0);
    Weights weights(machine, DType::f32, weight);
    const Tensor tb = zeros(machine, n);
    for (int step = 1; step <= 3; ++step) {
        const Values gradient = random_values(n, 10 + static_cast<std::uint64_t>(step));
        const Tensor tg = machine.tensor({n}, gradient);
        machine.ops->sgd_update({.common = weights.update(tg, 1, settings.weight_decay),
                                 .momentum = momentum == 0 ? View{} : tb.view(),
                                 .momentum_factor = momentum,
                                 .fresh = settings.lr},
                                nullptr);
        reference::lars(settings, scaled(gradient), weight, buffer);
    }
    require_close(weights.weight(), weight);
}

TEST_CASE("lion follows its equations over several steps", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    const DType low = GENERATE(from_range(copies));
    for (const std::int64_t n : flat_cases()) {
        INFO(n);
        const reference::Lion settings{0.01, 0.9, 0.99, 0.1};
        Values weight = random_values(n, 1), m(weight.size(), 0.0);
        Weights weights(machine, low, weight);
        const Tensor tm = zeros(machine, n);
        for (int step = 1; step <= 3; ++step) {
            Values gradient = random_values(n, 10 + static_cast<std::uint64_t>(step));
            if (n > 3) gradient[2] = 0;  // no sign, ever: only the decay moves this weight
            const Tensor tg = machine.tensor({n}, gradient);
            Cell norm(*machine.device);
            machine.ops->lion_update({.common = weights.update(tg, settings.lr, settings.weight_decay),
                                      .m = tm,
                                      .beta1 = settings.beta1,
                                      .beta2 = settings.beta2},
                                     norm.get());
            reference::lion(settings, scaled(gradient), weight, m);
            REQUIRE(norm.value() == Approx(squares(scaled(gradient))).epsilon(1e-9));
            weights.check_copies();
        }
        require_close(weights.weight(), weight, 1e-5, 1e-6);
        require_close(tm, m, 1e-5, 1e-6);
    }
}

TEST_CASE("lion's weights show a gradient that is NaN", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    const Tensor w = machine.tensor({1}, {1}), g = machine.tensor({1}, {NAN}), m = machine.tensor({1}, {0});
    machine.ops->lion_update({.common = {.weight = w, .gradient = g, .lr = 0.1}, .m = m}, nullptr);
    CHECK(std::isnan(w.values()[0]));
}

TEST_CASE("lamb's two halves follow their equations over several steps", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    const DType low = GENERATE(from_range(copies));
    for (const std::int64_t n : flat_cases()) {
        INFO(n);
        const reference::Lamb settings{0.01, 0.9, 0.99, 1e-6, 0.1, true};
        Values weight = random_values(n, 1), m(weight.size(), 0.0), v(weight.size(), 0.0);
        Weights weights(machine, low, weight);
        const Tensor tm = zeros(machine, n), tv = zeros(machine, n);
        for (int step = 1; step <= 3; ++step) {
            const Values gradient = random_values(n, 10 + static_cast<std::uint64_t>(step));
            const Tensor tg = machine.tensor({n}, gradient);
            LambUpdate args{.common = weights.update(tg, settings.lr, settings.weight_decay),
                            .m = tm,
                            .v = tv,
                            .beta1 = settings.beta1,
                            .beta2 = settings.beta2,
                            .eps = settings.eps,
                            .step = step};
            double norms[2] = {1, 2};
            machine.ops->lamb_moments(args, norms);
            Values m_before = m, v_before = v;
            const Values direction =
                reference::lamb_direction(settings, step, scaled(gradient), weight, m_before, v_before);
            REQUIRE(norms[0] == Approx(1 + squares(weight)).epsilon(1e-5));
            REQUIRE(norms[1] == Approx(2 + squares(direction)).epsilon(1e-4));
            if (n > 0) args.trust = std::sqrt(squares(weight) / squares(direction));
            Cell norm(*machine.device);
            machine.ops->lamb_update(args, norm.get());
            reference::lamb(settings, step, scaled(gradient), weight, m, v);
            REQUIRE(norm.value() == Approx(squares(scaled(gradient))).epsilon(1e-9));
            weights.check_copies();
        }
        require_close(weights.weight(), weight, 1e-4, 1e-5);
        require_close(tm, m, 1e-5, 1e-6);
        require_close(tv, v, 1e-5, 1e-7);
    }
}

TEST_CASE("a rate of 0 leaves every bit of the weights", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    const double inf = std::numeric_limits<double>::infinity();
    // -0 and what is not finite would not survive w - 0·step.
    const Values start{0.0, -0.0, 1.5, -2.25, 1e-40, 3}, gradient{1, 1, inf, NAN, -1, -inf};
    const Tensor w = machine.tensor({6}, start), g = machine.tensor({6}, gradient);
    const auto untouched = [&] {
        const std::vector<float> now = w.values();
        for (std::size_t i = 0; i < start.size(); ++i)
            if (std::bit_cast<std::uint32_t>(now[i]) !=
                std::bit_cast<std::uint32_t>(static_cast<float>(start[i])))
                return false;
        return true;
    };
    const Tensor m = zeros(machine, 6), v = zeros(machine, 6);
    const Update common{.weight = w, .gradient = g, .lr = 0, .weight_decay = 0.1};
    for (const bool decoupled : {false, true}) {
        machine.ops->adam_update({.common = common, .m = m, .v = v, .decoupled = decoupled}, nullptr);
        CHECK(untouched());
    }
    machine.ops->sgd_update({.common = common}, nullptr);
    CHECK(untouched());
    for (const bool nesterov : {false, true}) {
        machine.ops->sgd_update(
            {.common = common, .momentum = m, .momentum_factor = 0.9, .nesterov = nesterov, .first = true},
            nullptr);
        CHECK(untouched());
    }
    machine.ops->lion_update({.common = common, .m = m}, nullptr);
    CHECK(untouched());
    double norms[2] = {};
    machine.ops->lamb_moments({.common = common, .m = m, .v = v}, norms);
    machine.ops->lamb_update({.common = common, .m = m, .v = v}, nullptr);
    CHECK(untouched());
}

TEST_CASE("lamb gives the same bits for any number of threads", "[unit][ops]") {
    const std::string kind = GENERATE(from_range(devices()));
    const std::int64_t n = 100003;
    const auto results = [&](int threads) {
        const Machine machine(kind, threads);
        const Tensor w = machine.tensor({n}, random_values(n, 1)),
                     g = machine.tensor({n}, random_values(n, 2));
        const Tensor m = zeros(machine, n), v = zeros(machine, n);
        const LambUpdate args{
            .common = {.weight = w, .gradient = g, .lr = 0.1}, .m = m, .v = v, .trust = 0.5};
        std::vector<double> sums(3);
        machine.ops->lamb_moments(args, sums.data());
        machine.ops->lamb_update(args, &sums[2]);
        for (const float value : w.values()) sums.push_back(static_cast<double>(value));
        return sums;
    };
    CHECK(results(1) == results(3));
}
