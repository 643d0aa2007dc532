#include "reference/attention.hpp"
#include "support/allocations.hpp"
#include "support/attention_cases.hpp"
#include "support/devices.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

const std::vector<DType> real_types{DType::f32, DType::bf16, DType::f16};

/// Beyond the last rounding: backward takes y as it was rounded.
double looseness(DType type) {
    return type == DType::bf16 ? 1e-2 : type == DType::f16 ? 1e-3 : 2e-5;
}

std::string text(const Attention& shape) {
    return "n " + std::to_string(shape.n) + " t " + std::to_string(shape.t) + " heads " +
           std::to_string(shape.heads) + "/" + std::to_string(shape.kv_heads) + " d " +
           std::to_string(shape.d) + (shape.causal ? " causal" : " full");
}

void append(Values& all, const Values& more) {
    all.insert(all.end(), more.begin(), more.end());
}

Values results(const std::string& kind, int threads, const Attention& shape, DType type) {
    const Machine machine(kind, threads);
    const AttentionTensors tensors(machine, shape, type, AttentionValues(shape, type));
    machine.ops->attention_forward(tensors.args());
    machine.ops->attention_backward(tensors.args(), tensors.dy, tensors.dq, tensors.dk, tensors.dv);
    machine.ops->rotate(tensors.q, 5, 10000, false, tensors.dy);
    Values all;
    for (const Real* tensor : {&tensors.y, &tensors.dq, &tensors.dk, &tensors.dv, &tensors.dy})
        append(all, tensor->values());
    for (const float value : tensors.log_sums.values()) all.push_back(static_cast<double>(value));
    return all;
}

}  // namespace

TEST_CASE("attention forward and backward", "[unit][ops][many-elements]") {
    const Machine machine(GENERATE(from_range(devices())));
    const DType type = GENERATE(from_range(real_types));
    for (const Attention& shape : attention_cases()) {
        INFO(text(shape) << " " << name_of(type));
        const AttentionValues at(shape, type);
        const AttentionTensors tensors(machine, shape, type, at);
        const reference::Attended want = reference::attention(shape, at.q, at.k, at.v);
        const reference::AttentionGradients gradients =
            reference::attention_backward(shape, at.q, at.k, at.v, at.dy);
        machine.ops->attention_forward(tensors.args());
        require_close(tensors.y, want.y);
        require_close(tensors.log_sums, want.log_sums, 2e-6, 2e-6);
        machine.ops->attention_backward(tensors.args(), tensors.dy, tensors.dq, tensors.dk, tensors.dv);
        require_close(tensors.dq, gradients.dq, 2e-5, looseness(type));
        require_close(tensors.dk, gradients.dk, 2e-5, looseness(type));
        require_close(tensors.dv, gradients.dv, 2e-5, looseness(type));
    }
}

TEST_CASE("attention without log_sums, and dq in the place of dy", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    const DType type = GENERATE(from_range(real_types));
    for (const bool causal : {true, false}) {
        const Attention shape = attention_shape(2, 130, 4, 2, 8, causal);
        const AttentionValues at(shape, type);
        const AttentionTensors tensors(machine, shape, type, at), again(machine, shape, type, at);
        machine.ops->attention_forward(tensors.args());
        Attention args = again.args();
        args.log_sums = {};
        machine.ops->attention_forward(args);
        REQUIRE(again.y.values() == tensors.y.values());
        machine.ops->attention_backward(tensors.args(), tensors.dy, tensors.dq, tensors.dk, tensors.dv);
        machine.ops->attention_backward(tensors.args(), again.dy, again.dy, again.dk, again.dv);
        REQUIRE(again.dy.values() == tensors.dq.values());
        REQUIRE(again.dk.values() == tensors.dk.values());
        REQUIRE(again.dv.values() == tensors.dv.values());
    }
}

TEST_CASE("attention of nothing", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const Attention& shape :
         {attention_shape(0, 5, 2, 1, 4, true), attention_shape(3, 0, 2, 1, 4, false)}) {
        const AttentionTensors tensors(machine, shape, DType::f32, AttentionValues(shape, DType::f32));
        machine.ops->attention_forward(tensors.args());
        machine.ops->attention_backward(tensors.args(), tensors.dy, tensors.dq, tensors.dk, tensors.dv);
    }
}

// Products of small integers are exact, so that even scores of tens of thousands have no rounding.
TEST_CASE("attention with large scores", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const bool causal : {true, false}) {
        Attention shape = attention_shape(1, 300, 2, 1, 16, causal);
        shape.scale = 1;
        AttentionValues at(shape, DType::f32, 60);
        for (Values* values : {&at.q, &at.k})
            for (double& value : *values) value = std::nearbyint(value);
        const AttentionTensors tensors(machine, shape, DType::f32, at);
        const reference::Attended want = reference::attention(shape, at.q, at.k, at.v);
        const reference::AttentionGradients gradients =
            reference::attention_backward(shape, at.q, at.k, at.v, at.dy);
        machine.ops->attention_forward(tensors.args());
        machine.ops->attention_backward(tensors.args(), tensors.dy, tensors.dq, tensors.dk, tensors.dv);
        require_close(tensors.y, want.y);
        require_close(tensors.log_sums, want.log_sums, 2e-7, 1e-6);
        // log_sums of 10^4 have steps of 10^-3, and p is as wrong as they are.
        require_close(tensors.dq, gradients.dq, 1e-2, 1e-2);
        require_close(tensors.dk, gradients.dk, 1e-2, 1e-2);
        require_close(tensors.dv, gradients.dv, 1e-2, 1e-2);
    }
}

TEST_CASE("attention far below the first key's score loses nothing", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    // One key in the third tile stands out: what was summed before it must vanish.
    Attention shape = attention_shape(1, 700, 1, 1, 3, false);
    AttentionValues at(shape, DType::f32);
    for (std::size_t c = 0; c < 3; ++c)
        for (std::size_t i = 0; i < 700; ++i) at.q[3 * i + c] = 10;
    for (std::size_t c = 0; c < 3; ++c) at.k[3 * 600 + c] = 20;
    const AttentionTensors tensors(machine, shape, DType::f32, at);
    machine.ops->attention_forward(tensors.args());
    const reference::Attended want = reference::attention(shape, at.q, at.k, at.v);
    require_close(tensors.y, want.y);
    require_close(tensors.log_sums, want.log_sums, 1e-6, 1e-6);
}

TEST_CASE("attention keeps what is not a number", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    const Attention shape = attention_shape(1, 70, 1, 1, 2, true);
    AttentionValues at(shape, DType::f32);
    at.q[2 * 66] = NAN;
    const AttentionTensors tensors(machine, shape, DType::f32, at);
    machine.ops->attention_forward(tensors.args());
    const Values y = tensors.y.values();
    for (std::size_t i = 0; i < 70; ++i) {
        INFO("position " << i);
        REQUIRE(std::isnan(y[2 * i]) == (i == 66));
    }
}

TEST_CASE("attention and rotation do not depend on the thread count", "[unit][ops][many-elements]") {
    const std::string kind = GENERATE(from_range(devices()));
    const DType type = GENERATE(from_range(real_types));
    for (const Attention& shape :
         {attention_shape(2, 130, 4, 2, 64, true), attention_shape(1, 301, 3, 3, 8, false)}) {
        INFO(text(shape) << " " << name_of(type));
        const Values one = results(kind, 1, shape, type);
        REQUIRE(results(kind, 1, shape, type) == one);
        REQUIRE(results(kind, 2, shape, type) == one);
        REQUIRE(results(kind, 3, shape, type) == one);
    }
}

TEST_CASE("attention allocates nothing once it has its memory", "[unit][ops]") {
    if (!can_count_allocations()) {
        WARN("skipped: allocations are not counted under the address sanitizer");
        return;
    }
    const Machine machine("cpu", 2);
    const Attention shape = attention_shape(2, 130, 4, 2, 64, true);
    const AttentionTensors tensors(machine, shape, DType::bf16, AttentionValues(shape, DType::bf16));
    const auto step = [&] {
        machine.ops->rotate(tensors.q, 0, 10000, false, tensors.q);
        machine.ops->attention_forward(tensors.args());
        machine.ops->attention_backward(tensors.args(), tensors.dy, tensors.dq, tensors.dk, tensors.dv);
    };
    step();
    count_allocations();
    step();
    CHECK(allocations().ours == 0);
}

TEST_CASE("attention names what does not fit", "[unit][ops]") {
    const Machine machine("cpu");
    const Attention shape = attention_shape(1, 3, 4, 2, 2, true);
    const AttentionTensors tensors(machine, shape, DType::f32, AttentionValues(shape, DType::f32));
    Attention args = tensors.args();
    args.heads = 3;
    args.q = args.y = machine.output({1, 3, 3, 2});
    REQUIRE_THROWS_WITH(machine.ops->attention_forward(args), contains("no multiple of 2 key heads"));
    args = tensors.args();
    args.k = machine.output({1, 3, 4, 2});
    REQUIRE_THROWS_WITH(machine.ops->attention_forward(args), contains("12 elements are expected"));
    args = tensors.args();
    const Real narrow = machine.real_output(DType::bf16, {1, 3, 2, 2});
    args.v = narrow;
    REQUIRE_THROWS_WITH(machine.ops->attention_forward(args), contains("beside queries of float32"));
    args = tensors.args();
    args.log_sums = {};
    REQUIRE_THROWS_WITH(machine.ops->attention_backward(args, tensors.dy, tensors.dq, tensors.dk, tensors.dv),
                        contains("log_sums"));
}

TEST_CASE("rotary positions", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    const DType type = GENERATE(from_range(real_types));
    struct Case {
        std::int64_t n, t, heads, d, first;
    };
    for (const auto& [n, t, heads, d, first] : std::vector<Case>{{1, 1, 1, 2, 0},
                                                                 {2, 7, 3, 6, 0},
                                                                 {1, 33, 2, 64, 1000000},
                                                                 {3, 5, 1, 2500, 17},
                                                                 {0, 4, 2, 8, 0},
                                                                 {2, 300, 4, 64, 3}}) {
        INFO(n << "x" << t << "x" << heads << "x" << d << " from " << first);
        const Shape shape{n, t, heads, d};
        const Values x = rounded(type, random_values(shape.count(), 1));
        const Real tx = machine.real(type, shape, x), y = machine.real_output(type, shape);
        machine.ops->rotate(tx, first, 10000, false, y);
        const double rounding = type == DType::f32 ? 0 : looseness(type);
        // Next to zero, a sum of two products keeps their rounding, not its own.
        require_close(y, reference::rotate(x, t, heads, d, first, 10000, false), 2e-6, 2e-6);
        machine.ops->rotate(y, first, 10000, true, y);
        require_close(y, x, 2e-6, 2e-6 + rounding);
        machine.ops->rotate(tx, first, 10000, true, tx);
        require_close(tx, reference::rotate(x, t, heads, d, first, 10000, true), 2e-6, 2e-6);
    }
}

TEST_CASE("rotary positions want pairs", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    const Tensor x = machine.output({1, 2, 1, 3});
    REQUIRE_THROWS_WITH(machine.ops->rotate(x, 0, 10000, false, x), contains("do not make pairs"));
}
