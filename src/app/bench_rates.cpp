#include "app/bench_rates.hpp"

#include <algorithm>
#include <vector>

#include "trireme/base/clock.hpp"
#include "trireme/comm/agree.hpp"

namespace trireme::app {
namespace {

Buffer floats(Device& device, std::int64_t count) {
    return Buffer(device, static_cast<std::size_t>(std::max<std::int64_t>(1, count)) * sizeof(float));
}

/// Values that are neither zero nor tiny: both would let some processors cheat or stumble.
Buffer random_floats(Runtime& runtime, Ops& ops, std::int64_t count) {
    Buffer buffer = floats(runtime.device, count);
    ops.fill_uniform(RandomStream(1, Purpose::init, 0), 0, -1, 1, view_of(buffer.as<float>(), Shape{count}));
    return buffer;
}

}  // namespace

double seconds_of(Communicator& world, const std::function<void()>& action, double budget) {
    action();
    action();
    world.barrier();
    const Stopwatch once;
    action();
    // The same number of repetitions on all ranks: the action may be collective.
    const double estimate = all_reduce_value(world, once.seconds(), Reduce::max);
    const int repetitions = std::clamp(static_cast<int>(budget / std::max(1e-7, estimate)), 5, 20000);
    std::vector<double> seconds(static_cast<std::size_t>(repetitions));
    for (double& s : seconds) {
        const Stopwatch watch;
        action();
        s = watch.seconds();
    }
    std::nth_element(seconds.begin(), seconds.begin() + repetitions / 2, seconds.end());
    return all_reduce_value(world, seconds[static_cast<std::size_t>(repetitions / 2)], Reduce::max);
}

double gemm_seconds(Runtime& runtime, Ops& ops, const Work::Gemm& gemm) {
    const Buffer a = random_floats(runtime, ops, gemm.m * gemm.k),
                 b = random_floats(runtime, ops, gemm.k * gemm.n);
    const Buffer c = floats(runtime.device, gemm.m * gemm.n);
    const auto matrix = [](const Buffer& buffer, std::int64_t rows, std::int64_t columns, bool transposed) {
        return view_of(buffer.as<float>(), transposed ? Shape{columns, rows} : Shape{rows, columns});
    };
    const Matmul args{.a = matrix(a, gemm.m, gemm.k, gemm.transpose_a),
                      .b = matrix(b, gemm.k, gemm.n, gemm.transpose_b),
                      .c = matrix(c, gemm.m, gemm.n, false),
                      .transpose_a = gemm.transpose_a,
                      .transpose_b = gemm.transpose_b};
    return seconds_of(runtime.session.world(), [&] { ops.matmul(args); });
}

double conv_seconds(Runtime& runtime, Ops& ops, const Work::Conv& conv) {
    const Window& w = conv.window;
    const Shape in{w.n, w.c, w.h, w.w}, out{w.n, w.out, w.out_h(), w.out_w()};
    const Shape kernel{w.out, w.c / w.groups, w.kernel_h, w.kernel_w};
    const Buffer x = random_floats(runtime, ops, in.count()), y = random_floats(runtime, ops, out.count());
    const Buffer k = random_floats(runtime, ops, kernel.count());
    const View xv = view_of(x.as<float>(), in), yv = view_of(y.as<float>(), out),
               kv = view_of(k.as<float>(), kernel);
    return seconds_of(runtime.session.world(), [&] {
        if (conv.pass == Work::ConvPass::forward)
            ops.conv_forward(w, xv, kv, {}, Activation::none, yv);
        else if (conv.pass == Work::ConvPass::backward_data)
            ops.conv_backward_data(w, yv, kv, xv);
        else
            ops.conv_backward_weights(w, xv, yv, kv, false);
    });
}

double flops_of(const Work::Gemm& gemm) {
    return 2.0 * static_cast<double>(gemm.m) * static_cast<double>(gemm.n) * static_cast<double>(gemm.k);
}

double flops_of(const Work::Conv& conv) {
    const Window& w = conv.window;
    const std::int64_t products =
        w.n * w.out * w.out_h() * w.out_w() * (w.c / w.groups) * w.kernel_h * w.kernel_w;
    return 2.0 * static_cast<double>(products);
}

double copy_rate(Runtime& runtime, Ops& ops) {
    const std::int64_t count = 32 << 20;  // two buffers of 128 MB
    const Buffer from = random_floats(runtime, ops, count), to = floats(runtime.device, count);
    const View x = view_of(from.as<float>(), Shape{count}), y = view_of(to.as<float>(), Shape{count});
    const double seconds = seconds_of(
        runtime.session.world(), [&] { ops.copy(x, y); }, 0.5);
    return 2.0 * static_cast<double>(x.bytes()) / seconds;
}

double reduce_seconds(Runtime& runtime, std::int64_t elements) {
    Communicator& world = runtime.session.world();
    const Buffer buffer = floats(runtime.device, elements);  // zeros: the sums stay finite
    const View view = view_of(buffer.as<float>(), Shape{elements});
    return seconds_of(world, [&] { world.all_reduce(view, Reduce::sum); });
}

}  // namespace trireme::app
