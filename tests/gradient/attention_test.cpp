// Backward of attention and of rotary positions against finite differences of the oracle's forward pass.
#include "reference/attention.hpp"
#include "support/attention_cases.hpp"
#include "support/devices.hpp"
#include "support/finite_differences.hpp"

using namespace trireme;
using namespace trireme::testing;

TEST_CASE("gradients of attention", "[gradient]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const bool causal : {true, false})
        for (const Attention& shape :
             {attention_shape(1, 1, 1, 1, 1, causal), attention_shape(2, 3, 2, 2, 3, causal),
              attention_shape(1, 7, 4, 2, 5, causal), attention_shape(2, 5, 3, 1, 2, causal),
              attention_shape(1, 67, 1, 1, 1, causal)}) {
            INFO("n " << shape.n << " t " << shape.t << " heads " << shape.heads << "/" << shape.kv_heads
                      << " d " << shape.d << " causal " << causal);
            const AttentionValues at(shape, DType::f32, 2);
            const AttentionTensors tensors(machine, shape, DType::f32, at);
            machine.ops->attention_forward(tensors.args());
            machine.ops->attention_backward(tensors.args(), tensors.dy, tensors.dq, tensors.dk, tensors.dv);
            const auto loss = [&](const Values& q, const Values& k, const Values& v) {
                return inner_product(reference::attention(shape, q, k, v).y, at.dy);
            };
            require_close(tensors.dq,
                          finite_differences(at.q, [&](const Values& q) { return loss(q, at.k, at.v); }));
            require_close(tensors.dk,
                          finite_differences(at.k, [&](const Values& k) { return loss(at.q, k, at.v); }));
            require_close(tensors.dv,
                          finite_differences(at.v, [&](const Values& v) { return loss(at.q, at.k, v); }));
        }
}

TEST_CASE("gradients of rotary positions", "[gradient]") {
    const Machine machine(GENERATE(from_range(devices())));
    const std::int64_t t = 5, heads = 2, d = 6, n = 2 * t * heads * d;
    const Shape shape{2, t, heads, d};
    const Values x = random_values(n, 1), dy = random_values(n, 2);
    const Tensor dx = machine.output(shape);
    machine.ops->rotate(machine.tensor(shape, dy), 3, 100, true, dx);
    require_close(dx, finite_differences(x, [&](const Values& at) {
                      return inner_product(reference::rotate(at, t, heads, d, 3, 100, false), dy);
                  }));
}
