#include "reference/reference.hpp"
#include "support/devices.hpp"
#include "support/op_cases.hpp"
#include "support/tensors.hpp"
#include "trireme/base/error.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

struct Sums {
    explicit Sums(const Machine& machine)
        : loss(*machine.device, 1), count(*machine.device, 2), correct(*machine.device, 3) {}
    LossSums get() const { return {loss.get(), count.get(), correct.get()}; }
    void require(const reference::Loss& want) const {
        REQUIRE(loss.value() - 1 == Approx(want.loss).epsilon(1e-6).margin(1e-7));
        REQUIRE(count.value() - 2 == want.count);
        REQUIRE(correct.value() - 3 == Approx(want.correct).epsilon(1e-6));
    }
    Cell loss, count, correct;
};

}  // namespace

TEST_CASE("cross-entropy: loss, hits and gradient, in place too", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const auto& [rows, classes] : logits_cases())
        for (const float smoothing : {0.0F, 0.1F}) {
            INFO(rows << "x" << classes << " smoothing " << smoothing);
            const Values logits = random_values(rows * classes, 1, -20, 20);
            std::vector<std::int32_t> labels = random_labels(rows, static_cast<std::int32_t>(classes), 2);
            if (rows > 2) labels[1] = -100;
            const reference::Loss want =
                reference::cross_entropy(logits, labels, static_cast<double>(smoothing), -100, 0.5);
            const Tensor x = machine.tensor({rows, classes}, logits), d = machine.output({rows, classes});
            const Indices y = machine.indices({rows}, labels);
            const Sums bare(machine), apart(machine), in_place(machine);
            machine.ops->cross_entropy({x, y, smoothing, -100, 0.5F, {}, bare.get()});
            bare.require(want);
            machine.ops->cross_entropy({x, y, smoothing, -100, 0.5F, d, apart.get()});
            apart.require(want);
            require_close(d, want.gradient, 1e-5, 1e-6);
            machine.ops->cross_entropy({x, y, smoothing, -100, 0.5F, x, in_place.get()});
            in_place.require(want);
            require_close(x, want.gradient, 1e-5, 1e-6);
        }
}

TEST_CASE("cross-entropy at its edges", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    SECTION("the first of equal maxima is the prediction") {
        const Sums sums(machine);
        machine.ops->cross_entropy({machine.tensor({2, 3}, {1, 1, 0, 1, 1, 0}),
                                    machine.indices({2}, {0, 1}),
                                    0,
                                    -100,
                                    1,
                                    {},
                                    sums.get()});
        REQUIRE(sums.correct.value() - 3 == 1);
    }
    SECTION("large logits neither overflow nor vanish") {
        const Sums sums(machine);
        const Tensor x = machine.tensor({1, 3}, {3e38, -3e38, 0});
        machine.ops->cross_entropy({x, machine.indices({1}, {0}), 0, -100, 1, x, sums.get()});
        REQUIRE(sums.loss.value() == Approx(1));
        require_close(x, {0, 0, 0});
    }
    SECTION("NaN is a NaN loss and no hit, wherever it stands") {
        for (std::size_t where = 0; where < 20; ++where) {
            const Sums sums(machine);
            Values logits(20, 0.0);
            logits[2] = 5;
            logits[where] = NAN;
            machine.ops->cross_entropy(
                {machine.tensor({1, 20}, logits), machine.indices({1}, {2}), 0, -100, 1, {}, sums.get()});
            REQUIRE(std::isnan(sums.loss.value()));
            REQUIRE(sums.correct.value() == 3);
        }
    }
    SECTION("a label outside the classes is bad data, named") {
        for (const std::int32_t label : {3, -1}) {
            const Tensor x = machine.output({1, 3});
            const Indices y = machine.indices({1}, {label});
            if (!machine.device->host_memory()) {  // nobody waits for the device to tell
                const Sums sums(machine);
                machine.ops->cross_entropy({x, y, 0, -100, 1, {}, sums.get()});
                REQUIRE(std::isnan(sums.loss.value()));
                REQUIRE(sums.count.value() == 2);
            }
            double loss = 0, count = 0, correct = 0;
            try {
                machine.ops->cross_entropy(
                    {x, y, 0, -100, 1, {}, {.loss = &loss, .count = &count, .correct = &correct}});
                FAIL("no error");
            } catch (const Error& error) {
                REQUIRE(error.status() == Status::bad_data);
                REQUIRE_THAT(error.what(), contains("label " + std::to_string(label)));
            }
        }
    }
    SECTION("no samples") {
        const Sums sums(machine);
        machine.ops->cross_entropy(
            {machine.output({0, 3}), machine.indices({0}, {}), 0, -100, 1, {}, sums.get()});
        REQUIRE(sums.count.value() == 2);
    }
}

TEST_CASE("regression losses", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const auto& [rows, outputs] : norm_cases())
        for (const bool binary : {false, true}) {
            INFO(rows << "x" << outputs << (binary ? " binary cross-entropy" : " squared error"));
            const Values x = random_values(rows * outputs, 1, -9, 9),
                         t = random_values(rows * outputs, 2, 0, 1);
            const reference::Loss want = binary ? reference::binary_cross_entropy(x, t, outputs, 0.5)
                                                : reference::squared_error(x, t, outputs, 0.5);
            const Tensor prediction = machine.tensor({rows, outputs}, x),
                         target = machine.tensor({rows, outputs}, t);
            const Tensor d = machine.output({rows, outputs});
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

TEST_CASE("binary cross-entropy of a confident, right output keeps its small loss", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    const Sums sums(machine);
    const Cell loss(*machine.device);
    LossSums to = sums.get();
    to.loss = loss.get();
    machine.ops->binary_cross_entropy({machine.tensor({1, 1}, {30}), machine.tensor({1, 1}, {1}), 1, {}, to});
    REQUIRE(loss.value() == Approx(std::exp(-30.0)).epsilon(1e-5));
}
