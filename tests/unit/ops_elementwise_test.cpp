#include "reference/reference.hpp"
#include "support/devices.hpp"
#include "support/op_cases.hpp"
#include "support/tensors.hpp"

using namespace trireme;
using namespace trireme::testing;

TEST_CASE("activations and their derivatives", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const Activation kind : activation_cases())
        for (const std::int64_t n : flat_cases()) {
            INFO(name_of(kind) << " " << n);
            const Values x = random_values(n, 1, -6, 6), dy = random_values(n, 2);
            const Tensor tx = machine.tensor({n}, x), y = machine.output({n}), tdy = machine.tensor({n}, dy);
            machine.ops->activation_forward(kind, tx, y);
            require_close(y, reference::activate(kind, x), 1e-5, 2e-6);
            Values want(x.size());
            for (std::size_t i = 0; i < x.size(); ++i) want[i] = dy[i] * reference::derivative(kind, x[i]);
            machine.ops->activation_backward(kind, tx, y, tdy, tdy);
            require_close(tdy, want, 1e-4, 1e-5);
            if (!derivative_from_output(kind)) continue;
            machine.ops->activation_forward(kind, tx, tx);
            require_close(tx, reference::activate(kind, x), 1e-5, 2e-6);
        }
}

TEST_CASE("add, add_scaled, fill, copy and running_average", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const std::int64_t n : flat_cases()) {
        INFO(n);
        const Values a = random_values(n, 1), b = random_values(n, 2);
        Values sum(a.size()), scaled(a.size()), average(a.size());
        for (std::size_t i = 0; i < a.size(); ++i) {
            sum[i] = a[i] + b[i];
            scaled[i] = b[i] + 0.75 * a[i];
            average[i] = 0.75 * b[i] + 0.25 * a[i];
        }
        const Tensor ta = machine.tensor({n}, a), y = machine.output({n});
        {
            const Tensor tb = machine.tensor({n}, b);
            machine.ops->add(ta, tb, Activation::none, y);
            require_close(y, sum, 1e-6, 1e-7);
            machine.ops->add(ta, tb, Activation::relu, tb);
            require_close(tb, reference::activate(Activation::relu, sum), 1e-6, 1e-7);
        }
        const Tensor tb = machine.tensor({n}, b);
        machine.ops->add_scaled(ta, 0.75F, tb);
        require_close(tb, scaled, 1e-6, 1e-6);
        const Tensor mean = machine.tensor({n}, b);
        machine.ops->running_average(mean, ta, 0.25F);
        require_close(mean, average, 1e-6, 1e-6);
        machine.ops->copy(ta, y);
        require_close(y, a, 0, 1e-30);
        machine.ops->fill(y, 3);
        require_close(y, Values(a.size(), 3.0), 0, 1e-30);
    }
}

TEST_CASE("copy also moves integers", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    const std::vector<std::int32_t> labels = random_labels(37, 10, 1);
    const Indices from = machine.indices({37}, labels),
                  to = machine.indices({37}, std::vector<std::int32_t>(37));
    machine.ops->copy(from, to);
    REQUIRE(to.values() == labels);
}

TEST_CASE("sum_squares adds to what is there and shows what is not finite", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const std::int64_t n : flat_cases()) {
        Values x = random_values(n, 1);
        double want = 1.5;
        for (const double value : x) want += value * value;
        Cell sum(*machine.device, 1.5);
        machine.ops->sum_squares(machine.tensor({n}, x), sum.get());
        REQUIRE(sum.value() == Approx(want).epsilon(1e-12));
        if (n == 0) continue;
        x.back() = NAN;
        machine.ops->sum_squares(machine.tensor({n}, x), sum.get());
        REQUIRE_FALSE(std::isfinite(sum.value()));
    }
    Cell large(*machine.device);
    machine.ops->sum_squares(machine.tensor({2}, {1e30, 1e30}), large.get());
    REQUIRE(large.value() == Approx(2e60));
}

TEST_CASE("columns are taken out and put back, in any types", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    const std::int64_t rows = 37, columns = 613;  // more than is converted at once
    const Values all = random_values(rows * columns, 1);
    for (const DType whole_type : {DType::f32, DType::bf16, DType::f16})
        for (const DType part_type : {DType::f32, DType::bf16, DType::f16})
            for (const auto& [first, count] : {std::pair{0L, 613L}, {7L, 1L}, {100L, 513L}, {613L, 0L}}) {
                const Real whole = machine.real(whole_type, {rows, columns}, all);
                const Real part = machine.real_output(part_type, {rows, count});
                machine.ops->take_columns(whole, first, part);
                const Values held = whole.values(), taken = part.values();
                const Real back = machine.real_output(whole_type, {rows, columns});
                const Values before = back.values();
                machine.ops->put_columns(part, first, back);
                const Values after = back.values();
                bool right = true;
                for (std::int64_t r = 0; r < rows; ++r)
                    for (std::int64_t c = 0; c < columns; ++c) {
                        const auto at = static_cast<std::size_t>(r * columns + c);
                        const bool inside = c >= first && c < first + count;
                        const double value =
                            inside ? taken[static_cast<std::size_t>(r * count + c - first)] : 0;
                        right = right && (!inside || value == rounded(part_type, held[at]));
                        right = right && after[at] == (inside ? rounded(whole_type, value) : before[at]);
                    }
                REQUIRE(right);
            }
    CHECK_THROWS(
        machine.ops->take_columns(machine.tensor({2, 3}, random_values(6, 1)), 2, machine.output({2, 2})));
}
