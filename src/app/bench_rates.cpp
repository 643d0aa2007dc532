#include "app/bench_rates.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "trireme/base/clock.hpp"
#include "trireme/comm/agree.hpp"

namespace trireme::app {
namespace {

Buffer elements_of(Device& device, DType type, std::int64_t count) {
    return Buffer(device, static_cast<std::size_t>(std::max<std::int64_t>(1, count)) * size_of(type));
}

/// Values that are neither zero nor tiny: both would let some processors cheat or stumble.
Buffer random_reals(Runtime& runtime, Ops& ops, DType type, std::int64_t count) {
    const Buffer values = elements_of(runtime.device, DType::f32, count);
    const View wide = view_of(values.as<float>(), Shape{count});
    ops.fill_uniform(RandomStream(1, Purpose::init, 0), 0, -1, 1, wide);
    Buffer buffer = elements_of(runtime.device, type, count);
    ops.copy(wide, {buffer.data(), type, Shape{count}});
    return buffer;
}

}  // namespace

double seconds_of(Communicator& ranks, Device& device, const std::function<void()>& action, double budget) {
    const int calls = device.host_memory() ? 1 : 8;
    const auto timed = [&] {
        const Stopwatch watch;
        for (int call = 0; call < calls; ++call) action();
        device.synchronize();
        return watch.seconds() / calls;
    };
    timed();
    timed();
    ranks.barrier();
    // The same number of repetitions on all ranks: the action may be collective.
    const double estimate = all_reduce_value(ranks, timed(), Reduce::max);
    const int repetitions = std::clamp(static_cast<int>(budget / calls / std::max(1e-7, estimate)), 7, 20000);
    std::vector<double> seconds(static_cast<std::size_t>(repetitions));
    for (double& s : seconds) s = timed();
    std::nth_element(seconds.begin(), seconds.begin() + repetitions / 2, seconds.end());
    return all_reduce_value(ranks, seconds[static_cast<std::size_t>(repetitions / 2)], Reduce::max);
}

Product::Product(Runtime& runtime, Ops& ops, const Work::Gemm& gemm, DType compute)
    : a_(random_reals(runtime, ops, compute, gemm.m * gemm.k)),
      b_(random_reals(runtime, ops, compute, gemm.k * gemm.n)),
      c_(elements_of(runtime.device, DType::f32, gemm.m * gemm.n)) {
    const auto matrix = [&](const Buffer& buffer, std::int64_t rows, std::int64_t columns, bool transposed) {
        return View{buffer.data(), compute, transposed ? Shape{columns, rows} : Shape{rows, columns}};
    };
    const Matmul args{.a = matrix(a_, gemm.m, gemm.k, gemm.transpose_a),
                      .b = matrix(b_, gemm.k, gemm.n, gemm.transpose_b),
                      .c = {c_.data(), gemm.wide ? DType::f32 : compute, {gemm.m, gemm.n}},
                      .transpose_a = gemm.transpose_a,
                      .transpose_b = gemm.transpose_b};
    action_ = [&ops, args] { ops.matmul(args); };
}

Product::Product(Runtime& runtime, Ops& ops, const Work::Conv& conv, DType compute) {
    const Window window = conv.window;
    const Shape in{window.n, window.c, window.h, window.w};
    const Shape out{window.n, window.out, window.out_h(), window.out_w()};
    const Shape extents{window.out, window.c / window.groups, window.kernel_h, window.kernel_w};
    const bool to_kernel = conv.pass == Work::ConvPass::backward_weights;
    const DType kernel_type = to_kernel ? DType::f32 : compute;  // a gradient of weights is float32
    a_ = random_reals(runtime, ops, compute, in.count());
    b_ = random_reals(runtime, ops, kernel_type, extents.count());
    c_ = random_reals(runtime, ops, compute, out.count());
    const View x{a_.data(), compute, in}, y{c_.data(), compute, out}, kernel{b_.data(), kernel_type, extents};
    if (conv.pass == Work::ConvPass::forward)
        action_ = [=, &ops] { ops.conv_forward(window, x, kernel, {}, Activation::none, y); };
    else if (conv.pass == Work::ConvPass::backward_data)
        action_ = [=, &ops] { ops.conv_backward_data(window, y, kernel, x); };
    else
        action_ = [=, &ops] { ops.conv_backward_weights(window, x, y, kernel, false); };
}

Product::Product(Runtime& runtime, Ops& ops, const Work::AttentionPass& pass, DType compute) {
    Attention args = pass.shape;
    const Shape q{args.n, args.t, args.heads, args.d}, kv{args.n, args.t, args.kv_heads, args.d};
    const Shape log_sums{args.n, args.heads, args.t};
    const auto tensor = [&](Buffer& buffer, const Shape& shape) {
        buffer = random_reals(runtime, ops, compute, shape.count());
        return View{buffer.data(), compute, shape};
    };
    args.scale = 1 / std::sqrt(static_cast<float>(args.d));
    args.q = tensor(a_, q);
    args.k = tensor(b_, kv);
    args.v = tensor(c_, kv);
    args.y = tensor(d_, q);
    sums_ = elements_of(runtime.device, DType::f32, log_sums.count());
    args.log_sums = view_of(sums_.as<float>(), log_sums);
    if (!pass.backward) {
        action_ = [args, &ops] { ops.attention_forward(args); };
        return;
    }
    ops.attention_forward(args);
    const View dy = tensor(e_, q), dq = tensor(f_, q), dk = tensor(g_, kv), dv = tensor(h_, kv);
    action_ = [=, &ops] { ops.attention_backward(args, dy, dq, dk, dv); };
}

double copy_rate(Runtime& runtime, Ops& ops, std::int64_t count) {
    // Zeros: a copy takes as long whatever it carries, and both buffers have been written to.
    const Buffer from = elements_of(runtime.device, DType::f32, count),
                 to = elements_of(runtime.device, DType::f32, count);
    const View x = view_of(from.as<float>(), Shape{count}), y = view_of(to.as<float>(), Shape{count});
    const double seconds = seconds_of(
        runtime.mesh.world(), runtime.device, [&] { ops.copy(x, y); }, 0.5);
    return 2.0 * static_cast<double>(x.bytes()) / seconds;
}

double reduce_seconds(Communicator& ranks, Runtime& runtime, std::int64_t elements, double budget) {
    const Buffer buffer = elements_of(runtime.device, DType::f32, elements);  // zeros: the sums stay finite
    const View view = view_of(buffer.as<float>(), Shape{elements});
    return seconds_of(
        ranks, runtime.device, [&] { ranks.all_reduce(view, Reduce::sum); }, budget);
}

}  // namespace trireme::app
