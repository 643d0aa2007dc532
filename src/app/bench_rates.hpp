// What this machine does at best: the limits that `trireme bench` holds a training step against.
#pragma once

#include <cstdint>
#include <functional>

#include "trireme/nn/layer.hpp"
#include "trireme/train/runtime.hpp"

namespace trireme::app {

/// Seconds of one call of `action`: the median over repetitions that last `budget` seconds together, and of
/// the slowest of these ranks, since they work at the same time and share the memory. Where calls return
/// before the device is done, that of several one after another. Collective.
double seconds_of(Communicator& ranks, Device& device, const std::function<void()>& action,
                  double budget = 0.3);

/// A matrix product or a convolution pass with operands of its own, to be run again and again.
class Product {
public:
    Product(Runtime& runtime, Ops& ops, const Work::Gemm& gemm, DType compute);
    Product(Runtime& runtime, Ops& ops, const Work::Conv& conv, DType compute);
    Product(Runtime& runtime, Ops& ops, const Work::AttentionPass& pass, DType compute);
    void run() const { action_(); }

private:
    Buffer a_, b_, c_, d_, e_, f_, g_, h_, sums_;
    std::function<void()> action_;
};

/// Seconds of one product of this shape, alone: its operands stay in cache where they fit. Collective.
template <class Shape>
double product_seconds(Communicator& ranks, Runtime& runtime, Ops& ops, const Shape& shape, DType compute) {
    const Product product(runtime, ops, shape, compute);
    return seconds_of(ranks, runtime.device, [&] { product.run(); });
}

/// Bytes read plus bytes written per second by a copy of so many float32 (two buffers of 128 MB) on every
/// rank at once. Collective.
double copy_rate(Runtime& runtime, Ops& ops, std::int64_t elements = 32 << 20);
/// Seconds of an in-place all-reduce (sum) of this many float32 over these ranks. Collective.
double reduce_seconds(Communicator& ranks, Runtime& runtime, std::int64_t elements, double budget = 0.3);

}  // namespace trireme::app
