#include "reference/reference.hpp"
#include "support/devices.hpp"
#include "support/op_cases.hpp"
#include "support/tensors.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr double gradient_scale = 0.25;

Values scaled(const Values& gradient) {
    Values result = gradient;
    for (double& value : result) value *= gradient_scale;
    return result;
}

double squares(const Values& x) {
    double sum = 0;
    for (const double value : x) sum += value * value;
    return sum;
}

}  // namespace

TEST_CASE("adam and adamw follow their equations over several steps", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const std::int64_t n : flat_cases())
        for (const bool decoupled : {false, true}) {
            INFO(n << (decoupled ? " adamw" : " adam with L2"));
            const reference::Adam settings{0.01, 0.9, 0.99, 1e-8, 0.1, decoupled};
            Values weight = random_values(n, 1), m(weight.size(), 0.0), v(weight.size(), 0.0);
            const Tensor tw = machine.tensor({n}, weight), tm = machine.tensor({n}, m),
                         tv = machine.tensor({n}, v);
            for (int step = 1; step <= 3; ++step) {
                const Values gradient = random_values(n, 10 + static_cast<std::uint64_t>(step));
                const Tensor tg = machine.tensor({n}, gradient);
                Cell norm(*machine.device, 2);
                machine.ops->adam_update({.common = {.weight = tw,
                                                     .gradient = tg,
                                                     .lr = settings.lr,
                                                     .weight_decay = settings.weight_decay,
                                                     .gradient_scale = gradient_scale},
                                          .m = tm,
                                          .v = tv,
                                          .beta1 = settings.beta1,
                                          .beta2 = settings.beta2,
                                          .eps = settings.eps,
                                          .decoupled = decoupled,
                                          .step = step},
                                         step == 2 ? nullptr : norm.get());
                reference::adam(settings, step, scaled(gradient), weight, m, v);
                if (step != 2) REQUIRE(norm.value() == Approx(2 + squares(scaled(gradient))).epsilon(1e-9));
                require_close(tg, gradient, 0, 1e-30);
            }
            require_close(tw, weight, 1e-4, 1e-5);
            require_close(tm, m, 1e-5, 1e-6);
            require_close(tv, v, 1e-5, 1e-7);
        }
}

TEST_CASE("sgd with and without momentum", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const std::int64_t n : flat_cases())
        for (const double momentum : {0.0, 0.9})
            for (const bool nesterov : {false, true}) {
                INFO(n << " momentum " << momentum << " nesterov " << nesterov);
                reference::Sgd settings{0.1, momentum, nesterov ? 0.0 : 0.2, 0.05, nesterov, true};
                Values weight = random_values(n, 1), buffer(weight.size(), 0.0);
                const Tensor tw = machine.tensor({n}, weight);
                const Tensor tb =
                    machine.tensor({n}, Values(weight.size(), NAN));  // not read on the first update
                for (int step = 1; step <= 3; ++step) {
                    const Values gradient = random_values(n, 10 + static_cast<std::uint64_t>(step));
                    const Tensor tg = machine.tensor({n}, gradient);
                    Cell norm(*machine.device);
                    settings.first = step == 1;
                    machine.ops->sgd_update({.common = {.weight = tw,
                                                        .gradient = tg,
                                                        .lr = settings.lr,
                                                        .weight_decay = settings.weight_decay,
                                                        .gradient_scale = gradient_scale},
                                             .momentum = momentum == 0 ? View{} : tb.view(),
                                             .momentum_factor = momentum,
                                             .fresh = 1 - settings.dampening,
                                             .nesterov = nesterov,
                                             .first = settings.first},
                                            norm.get());
                    reference::sgd(settings, scaled(gradient), weight, buffer);
                    REQUIRE(norm.value() == Approx(squares(scaled(gradient))).epsilon(1e-9));
                }
                require_close(tw, weight);
                if (momentum != 0) require_close(tb, buffer);
            }
}
