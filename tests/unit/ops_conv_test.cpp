#include "reference/reference.hpp"
#include "support/devices.hpp"
#include "support/op_cases.hpp"
#include "support/tensors.hpp"

using namespace trireme;
using namespace trireme::testing;

TEST_CASE("convolution forward, with every epilogue", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const auto& [name, window] : conv_cases())
        for (const Activation activation : epilogue_cases())
            for (const bool with_bias : {false, true}) {
                INFO(name << ", " << name_of(activation) << ", bias " << with_bias);
                const Values x = random_values(input_shape(window).count(), 1);
                const Values kernel = random_values(kernel_shape(window).count(), 2, -0.5, 0.5);
                const Values bias = random_values(with_bias ? window.out : 0, 3);
                const Tensor tx = machine.tensor(input_shape(window), x);
                const Tensor tk = machine.tensor(kernel_shape(window), kernel);
                const Tensor tb = machine.tensor({with_bias ? window.out : 0}, bias);
                const Tensor y = machine.output(output_shape(window));
                for (int repeat = 0; repeat < 2; ++repeat)  // the second call takes the cached plan
                    machine.ops->conv_forward(window, tx, tk, with_bias ? tb.view() : View{}, activation, y);
                require_close(y, reference::activate(activation, reference::conv(window, x, kernel, bias)));
            }
}

TEST_CASE("convolution backward to the input and to the kernel", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const auto& [name, window] : conv_cases()) {
        INFO(name);
        const Values x = random_values(input_shape(window).count(), 1);
        const Values kernel = random_values(kernel_shape(window).count(), 2);
        const Values dy = random_values(output_shape(window).count(), 3);
        const Values before = random_values(kernel_shape(window).count(), 4);
        const Tensor tx = machine.tensor(input_shape(window), x),
                     tdy = machine.tensor(output_shape(window), dy);
        const Tensor tk = machine.tensor(kernel_shape(window), kernel),
                     dx = machine.output(input_shape(window));
        machine.ops->conv_backward_data(window, tdy, tk, dx);
        require_close(dx, reference::conv_backward_data(window, dy, kernel), 5e-5, 5e-5);

        Values want = reference::conv_backward_weights(window, x, dy);
        const Tensor dk = machine.output(kernel_shape(window));
        machine.ops->conv_backward_weights(window, tx, tdy, dk, false);
        require_close(dk, want, 5e-5, 5e-5);
        const Tensor sum = machine.tensor(kernel_shape(window), before);
        machine.ops->conv_backward_weights(window, tx, tdy, sum, true);
        for (std::size_t i = 0; i < want.size(); ++i) want[i] += before[i];
        require_close(sum, want, 5e-5, 5e-5);
    }
}

TEST_CASE("plans of the same shape are shared by different tensors", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    const Window window{2, 3, 5, 5, 4, 3, 3, 1, 1, 1, 1};
    for (const std::uint64_t seed : {1, 2, 3}) {
        const Values x = random_values(input_shape(window).count(), seed);
        const Values kernel = random_values(kernel_shape(window).count(), seed + 10);
        const Tensor tx = machine.tensor(input_shape(window), x),
                     tk = machine.tensor(kernel_shape(window), kernel);
        const Tensor y = machine.output(output_shape(window));
        machine.ops->conv_forward(window, tx, tk, {}, Activation::none, y);
        require_close(y, reference::conv(window, x, kernel, {}));
    }
}

TEST_CASE("pooling forward and backward", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const auto& [name, window] : pool_cases())
        for (const Pool kind : {Pool::max, Pool::average}) {
            INFO(name << (kind == Pool::max ? ", max" : ", average"));
            const Values x = random_values(input_shape(window).count(), 1);
            const Values dy = random_values(output_shape(window).count(), 2);
            const reference::Pooled want = reference::pool(kind, window, x);
            const Tensor tx = machine.tensor(input_shape(window), x),
                         tdy = machine.tensor(output_shape(window), dy);
            const Tensor y = machine.output(output_shape(window)),
                         bare = machine.output(output_shape(window));
            const Tensor dx = machine.output(input_shape(window));
            const Indices index =
                machine.indices(output_shape(window), std::vector<std::int32_t>(want.y.size(), -7));
            machine.ops->pool_forward(kind, window, tx, y, kind == Pool::max ? index.view() : View{});
            machine.ops->pool_forward(kind, window, tx, bare, {});
            require_close(y, want.y, 1e-6, 1e-6);
            require_close(bare, want.y, 1e-6, 1e-6);
            if (kind == Pool::max) REQUIRE(index.values() == want.index);
            machine.ops->pool_backward(kind, window, tdy, kind == Pool::max ? index.view() : View{}, dx);
            require_close(dx, reference::pool_backward(kind, window, dy, want.index), 1e-5, 1e-6);
        }
}

TEST_CASE("max pooling lets NaN through and takes the first of equals", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    const Window window{1, 1, 2, 4, 1, 2, 2, 2, 2};
    const Tensor x = machine.tensor({1, 1, 2, 4}, {1, NAN, 5, 5, 2, 3, 5, 5}),
                 y = machine.output({1, 1, 1, 2});
    const Indices index = machine.indices({1, 1, 1, 2}, {-7, -7});
    machine.ops->pool_forward(Pool::max, window, x, y, index);
    REQUIRE(std::isnan(y.values()[0]));
    REQUIRE(y.values()[1] == 5);
    REQUIRE(index.values() == std::vector<std::int32_t>{1, 2});
}

TEST_CASE("channels-last to channels-first and back", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const Shape& shape :
         {Shape{2, 3, 5, 7}, Shape{1, 1, 4, 4}, Shape{3, 17, 1, 1}, Shape{2, 33, 6, 9}, Shape{0, 3, 2, 2}}) {
        INFO(shape.text());
        const Values x = random_values(shape.count(), 1);
        const std::int64_t channels = shape[1], pixels = shape[2] * shape[3];
        Values want(x.size());
        for (std::size_t i = 0; i < x.size(); ++i) {
            const auto at = static_cast<std::int64_t>(i);
            const std::int64_t c = at % channels, p = at / channels % pixels, n = at / channels / pixels;
            want[static_cast<std::size_t>((n * channels + c) * pixels + p)] = x[i];
        }
        const Tensor tx = machine.tensor(shape, x), first = machine.output(shape),
                     last = machine.output(shape);
        machine.ops->to_channels_first(tx, first);
        require_close(first, want, 0, 1e-30);
        machine.ops->to_channels_last(first, last);
        require_close(last, x, 0, 1e-30);
    }
}
