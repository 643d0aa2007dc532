// The verbs on bfloat16 and float16, alone and mixed with float32: each computes in float32 and rounds once.
#include <bit>
#include <cmath>

#include "reference/reference.hpp"
#include "support/allocations.hpp"
#include "support/devices.hpp"
#include "support/op_cases.hpp"
#include "support/tensors.hpp"

using namespace trireme;
using namespace trireme::testing;
using enum DType;

namespace {

/// `values`, each the exact result of one operation on float32, as float32 arithmetic and one more rounding
/// give them.
Values float_rounded(DType type, const Values& values) {
    return rounded(type, rounded(f32, values));
}

Guarded<std::uint16_t> patterns(Device& device, const std::vector<std::uint16_t>& bits) {
    return {device, {static_cast<std::int64_t>(bits.size())}, bits};
}

View as_type(DType type, View bits) {
    bits.dtype = type;
    return bits;
}

View part(View view, std::int64_t first, std::int64_t n) {
    view.data = static_cast<char*>(view.data) + static_cast<std::size_t>(first) * size_of(view.dtype);
    view.shape = {n};
    return view;
}

/// body(first, count) for pieces of [0, n).
template <class Body>
void in_pieces(std::int64_t n, std::int64_t piece, const Body& body) {
    for (std::int64_t at = 0; at < n; at += piece) body(at, std::min(piece, n - at));
}

/// Equal with the same sign of zero, or both NaN.
bool same(double a, double b) {
    return a == b ? std::signbit(a) == std::signbit(b) : std::isnan(a) && std::isnan(b);
}

}  // namespace

TEST_CASE("every 16-bit pattern survives the way to float32 and back", "[unit][ops][many-calls]") {
    const Machine machine(GENERATE(from_range(devices())));
    const DType type = GENERATE(bf16, f16);
    const std::int64_t n = 65536;
    std::vector<std::uint16_t> bits(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
    const Guarded<std::uint16_t> from = patterns(*machine.device, bits);
    // As a whole through vector code, in sevens through the code for what is left over.
    std::vector<std::uint16_t> results[2];
    for (const bool whole : {true, false}) {
        INFO(name_of(type) << (whole ? " as a whole" : " in sevens"));
        const Tensor wide = machine.output({n});
        const Guarded<std::uint16_t> back =
            patterns(*machine.device, std::vector<std::uint16_t>(bits.rbegin(), bits.rend()));
        in_pieces(n, whole ? n : 7, [&](std::int64_t at, std::int64_t count) {
            machine.ops->copy(part(as_type(type, from), at, count), part(wide, at, count));
            machine.ops->copy(part(wide, at, count), part(as_type(type, back), at, count));
        });
        const std::vector<float> values = wide.values();
        const std::vector<std::uint16_t>& returned = results[whole ? 0 : 1] = back.values();
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < bits.size(); ++i) {
            const double want = value_of(type, bits[i]);
            const bool kept =
                std::isnan(want) ? std::isnan(value_of(type, returned[i])) : returned[i] == bits[i];
            wrong += same(static_cast<double>(values[i]), want) && kept ? 0 : 1;
        }
        REQUIRE(wrong == 0);
    }
    REQUIRE((results[0] == results[1]));  // in parentheses, so that a failure does not print them all
}

TEST_CASE("narrowing rounds to nearest, ties to even", "[unit][ops][many-calls]") {
    const Machine machine(GENERATE(from_range(devices())));
    const DType type = GENERATE(bf16, f16);
    // Every value, every tie between neighbours (denormals and the edge to infinity included), what lies next
    // to a tie on both sides, and any bits.
    Values values;
    for (std::uint32_t pattern = 0; pattern < 65536; ++pattern) {
        const double low = value_of(type, static_cast<std::uint16_t>(pattern));
        if (!std::isfinite(low)) continue;
        double high = value_of(type, static_cast<std::uint16_t>(pattern + 1));
        if (!std::isfinite(high)) high = 2 * low - value_of(type, static_cast<std::uint16_t>(pattern - 1));
        const auto tie = static_cast<float>((low + high) / 2);
        for (const float value :
             {static_cast<float>(low), std::nextafter(tie, -INFINITY), tie, std::nextafter(tie, INFINITY)})
            values.push_back(static_cast<double>(value));
    }
    const RandomStream stream(3, Purpose::augment, 9);
    for (std::uint64_t i = 0; i < 200000; ++i)
        values.push_back(static_cast<double>(std::bit_cast<float>(stream.word(i))));
    const auto n = static_cast<std::int64_t>(values.size());
    const Tensor from = machine.tensor({n}, values);
    std::vector<std::uint16_t> results[2];
    for (const bool whole : {true, false}) {
        INFO(name_of(type) << (whole ? " as a whole" : " in sevens"));
        const Guarded<std::uint16_t> to =
            patterns(*machine.device, std::vector<std::uint16_t>(values.size(), 0x1234));
        in_pieces(n, whole ? n : 7, [&](std::int64_t at, std::int64_t count) {
            machine.ops->copy(part(from, at, count), part(as_type(type, to), at, count));
        });
        const std::vector<std::uint16_t>& got = results[whole ? 0 : 1] = to.values();
        for (std::size_t i = 0; i < values.size(); ++i) {
            if (same(value_of(type, got[i]), rounded(type, values[i]))) continue;
            INFO("of " << values[i]);
            INFO("gives " << value_of(type, got[i]) << ", not " << rounded(type, values[i]));
            REQUIRE(same(value_of(type, got[i]), rounded(type, values[i])));
        }
    }
    REQUIRE((results[0] == results[1]));
}

TEST_CASE("float16 overflows to infinity from halfway on", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    const Real edge = machine.real_output(f16, {4});
    machine.ops->copy(machine.tensor({4}, {65519.99, 65520, -65519.99, -65520}), edge);
    REQUIRE(edge.values() == Values{65504, INFINITY, -65504, -INFINITY});
}

TEST_CASE("element-wise verbs round once, in any mixture of types", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    Ops& ops = *machine.ops;
    const auto types = GENERATE(from_range(type_cases()));
    for (const std::int64_t n : flat_cases()) {
        INFO(text(types) << n);
        const Values a = rounded(types[0], random_values(n, 1)), b = rounded(types[1], random_values(n, 2)),
                     old = rounded(types[3], random_values(n, 3));
        Values sum(a.size()), scaled(a.size());
        for (std::size_t i = 0; i < a.size(); ++i) {
            sum[i] = a[i] + b[i];
            scaled[i] = old[i] + static_cast<double>(static_cast<float>(0.7F * static_cast<float>(a[i])));
        }
        const Real ta = machine.real(types[0], {n}, a), tb = machine.real(types[1], {n}, b);
        const Real y = machine.real_output(types[3], {n}), z = machine.real(types[3], {n}, old);
        ops.add(ta, tb, Activation::none, y);
        REQUIRE(y.values() == float_rounded(types[3], sum));
        ops.add_scaled(ta, 0.7F, z);
        REQUIRE(z.values() == float_rounded(types[3], scaled));
        ops.fill(y, 0.7F);
        REQUIRE(y.values() == float_rounded(types[3], Values(a.size(), static_cast<double>(0.7F))));
        ops.copy(ta, y);
        REQUIRE(y.values() == rounded(types[3], a));
        double squares = 0;
        for (const double value : a) squares += value * value;
        Cell total(*machine.device, 1.5);
        ops.sum_squares(ta, total.get());
        REQUIRE(total.value() == Approx(1.5 + squares).epsilon(1e-12));
        ops.add(ta, tb, Activation::relu, ta);
        REQUIRE(ta.values() == float_rounded(types[0], reference::activate(Activation::relu, sum)));
        const Real again = machine.real(types[0], {n}, a);
        ops.add(again, tb, Activation::none, tb);
        REQUIRE(tb.values() == float_rounded(types[1], sum));
    }
}

TEST_CASE("sum_rows of 16-bit gradients", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    for (const DType type : {bf16, f16})
        for (const auto& [rows, columns] : norm_cases()) {
            INFO(name_of(type) << " " << rows << "x" << columns);
            const Values x = rounded(type, random_values(rows * columns, 1)), old = random_values(columns, 2);
            Values want = reference::sum_rows(x, columns);
            for (std::size_t c = 0; c < want.size(); ++c) want[c] += old[c];
            const Tensor sum = machine.tensor({columns}, old);
            machine.ops->sum_rows(machine.real(type, {rows, columns}, x), sum, true);
            require_close(sum, want, 2e-5, 1e-4);
        }
}

TEST_CASE("dropout on 16-bit types, in place too", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    const RandomStream stream(42, Purpose::dropout, 3, 7);
    const auto types = GENERATE(from_range(type_cases()));
    for (const std::int64_t n : flat_cases())
        for (const float p : {0.0F, 0.25F, 1.0F}) {
            INFO(text(types) << n << " p " << p);
            const Values x = rounded(types[0], random_values(n, 1, 0.5, 2));
            const Real tx = machine.real(types[0], {n}, x), y = machine.real_output(types[3], {n});
            const Values want = p == 1 ? Values(x.size(), 0.0) : reference::dropout(stream, 5, p, x);
            machine.ops->dropout(stream, 5, 0, p, tx, y);
            require_close(y, want, 1e-6, 1e-30);
            machine.ops->dropout(stream, 5, 0, p, tx, tx);
            require_close(tx, want, 1e-6, 1e-30);
        }
}

TEST_CASE("layout changes keep and convert 16-bit elements", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    const auto types = GENERATE(from_range(type_cases()));
    for (const Shape& shape :
         {Shape{2, 3, 5, 7}, Shape{1, 1, 4, 4}, Shape{3, 17, 1, 1}, Shape{2, 33, 6, 9}, Shape{0, 3, 2, 2}}) {
        INFO(text(types) << shape.text());
        const Values x = rounded(types[0], random_values(shape.count(), 1));
        const std::int64_t channels = shape[1], pixels = shape[2] * shape[3];
        Values want(x.size());
        for (std::size_t i = 0; i < x.size(); ++i) {
            const auto at = static_cast<std::int64_t>(i);
            const std::int64_t c = at % channels, p = at / channels % pixels, n = at / channels / pixels;
            want[static_cast<std::size_t>((n * channels + c) * pixels + p)] = x[i];
        }
        const Real tx = machine.real(types[0], shape, x), first = machine.real_output(types[1], shape),
                   last = machine.real_output(types[3], shape);
        machine.ops->to_channels_first(tx, first);
        REQUIRE(first.values() == rounded(types[1], want));
        machine.ops->to_channels_last(first, last);
        REQUIRE(last.values() == rounded(types[3], rounded(types[1], x)));
    }
}

TEST_CASE("pooling of 16-bit images", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    const auto types = GENERATE(from_range(type_cases()));
    for (const auto& [name, window] : pool_cases())
        for (const Pool kind : {Pool::max, Pool::average}) {
            INFO(text(types) << name << (kind == Pool::max ? ", max" : ", average"));
            const Shape in = input_shape(window), out = output_shape(window);
            const Values x = rounded(types[0], random_values(in.count(), 1));
            const Values dy = rounded(types[2], random_values(out.count(), 2));
            const reference::Pooled want = reference::pool(kind, window, x);
            const Real tx = machine.real(types[0], in, x), y = machine.real_output(types[1], out);
            const Real tdy = machine.real(types[2], out, dy), dx = machine.real_output(types[3], in);
            const Indices index = machine.indices(out, std::vector<std::int32_t>(want.y.size(), -7));
            const View winners = kind == Pool::max ? index.view() : View{};
            machine.ops->pool_forward(kind, window, tx, y, winners);
            if (kind == Pool::max) {
                REQUIRE(y.values() == rounded(types[1], want.y));
                REQUIRE(index.values() == want.index);
            }
            require_close(y, want.y, 1e-6, 1e-6);
            machine.ops->pool_backward(kind, window, tdy, winners, dx);
            require_close(dx, reference::pool_backward(kind, window, dy, want.index), 1e-5, 1e-6);
        }
}

TEST_CASE("sums of 16-bit pooling do not round on the way", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    // Windows of 1x3 with stride 1: position 2 is in all three. In bfloat16 256 + 1 + 1 would stay 256.
    const Window window{1, 1, 1, 5, 1, 1, 3, 1, 1};
    const Real dy = machine.real(bf16, {1, 1, 1, 3}, {256, 1, 1}),
               dx = machine.real_output(bf16, {1, 1, 1, 5});
    const Indices index = machine.indices({1, 1, 1, 3}, {2, 2, 2});
    machine.ops->pool_backward(Pool::max, window, dy, index, dx);
    REQUIRE(dx.values() == Values{0, 0, 258, 0, 0});
    const Window average{1, 1, 1, 4, 1, 1, 4, 1, 1};
    const Real x = machine.real(bf16, {1, 1, 1, 4}, {1024, 4, 4, 4}),
               y = machine.real_output(bf16, {1, 1, 1, 1});
    machine.ops->pool_forward(Pool::average, average, x, y, {});
    REQUIRE(y.values() == Values{260});  // 259, halfway between 258 and 260
}

namespace {

/// Each verb that shares 16-bit work among threads, on [2048, 36] or, as images, [64, 36, 4, 8].
struct Verbs {
    explicit Verbs(const std::string& kind, int threads) : machine(kind, threads) {}

    void run() {
        Ops& ops = *machine.ops;
        const BatchNorm batch{x, y[0], gamma, gamma, 1e-5F, statistics[0], statistics[1], Activation::relu};
        ops.batchnorm_forward(batch, {}, {}, 1, false);
        ops.batchnorm_backward(batch, dy, dx[0], statistics[2], statistics[3], false);
        const LayerNorm layer{x, y[1], gamma, gamma, 1e-5F, row_statistics[0], row_statistics[1]};
        ops.layernorm_forward(layer);
        ops.layernorm_backward(layer, dy, dx[1], statistics[4], statistics[5], false);
        ops.sum_rows(x, statistics[6], false);
        ops.cross_entropy({x, labels, 0.1F, -100, 1, dx[2], {sums[0].get(), sums[1].get(), sums[2].get()}});
        ops.mean_squared_error({x, target, 1, dx[3], {sums[0].get(), sums[1].get(), sums[2].get()}});
        ops.sum_squares(x, sums[2].get());
        ops.dropout(RandomStream(1, Purpose::dropout, 2), 5, 0, 0.2F, x, y[2]);
        ops.pool_forward(Pool::max, window, image(x), pooled, index);
        ops.pool_backward(Pool::max, window, pooled, index, image(dx[4]));
        ops.to_channels_first(image(x), image(y[3]));
    }
    Values results() const {
        Values all;
        const auto keep = [&all](const auto& values) { all.insert(all.end(), values.begin(), values.end()); };
        for (const Real& tensor : y) keep(tensor.values());
        for (const Real& tensor : dx) keep(tensor.values());
        for (const Tensor& tensor : statistics) keep(tensor.values());
        for (const Cell& sum : sums) all.push_back(sum.value());
        return all;
    }

private:
    static constexpr std::int64_t rows = 2048, columns = 36, n = rows * columns;

    View image(View view) const {
        view.shape = input_shape(window);
        return view;
    }
    template <class T, class Make>
    static std::vector<T> several(int count, const Make& make) {
        std::vector<T> result;
        for (int i = 0; i < count; ++i) result.push_back(make());
        return result;
    }
    Real output(DType type) const { return machine.real_output(type, {rows, columns}); }

    Machine machine;
    Window window{64, columns, 4, 8, columns, 2, 2, 2, 2};
    Real x = machine.real(bf16, {rows, columns}, random_values(n, 1));
    Real dy = machine.real(f16, {rows, columns}, random_values(n, 2));
    std::vector<Real> y = several<Real>(4, [this] { return output(f16); });
    std::vector<Real> dx = several<Real>(5, [this] { return output(bf16); });
    Real pooled = machine.real_output(f16, output_shape(window));
    Tensor target = machine.tensor({rows, columns}, random_values(n, 3));
    Tensor gamma = machine.tensor({columns}, random_values(columns, 4));
    std::vector<Tensor> statistics = several<Tensor>(7, [this] { return machine.output({columns}); });
    std::vector<Tensor> row_statistics = several<Tensor>(2, [this] { return machine.output({rows}); });
    Indices labels = machine.indices({rows}, random_labels(rows, columns, 5));
    Indices index = machine.indices(output_shape(window), random_labels(pooled.view().count(), 9, 6));
    std::vector<Cell> sums = several<Cell>(3, [this] { return Cell(*machine.device); });
};

}  // namespace

TEST_CASE("results on 16-bit types do not depend on the thread count", "[unit][ops][many-elements]") {
    const std::string kind = GENERATE(from_range(devices()));
    const auto results = [&kind](int threads) {
        Verbs verbs(kind, threads);
        Values all;
        for (int repeat = 0; repeat < 5; ++repeat) {
            verbs.run();
            const Values values = verbs.results();
            all.insert(all.end(), values.begin(), values.end());
        }
        return all;
    };
    const Values one = results(1);
    // In parentheses, so that a failure does not print millions of values.
    REQUIRE((results(1) == one));
    REQUIRE((results(2) == one));
    REQUIRE((results(3) == one));
}

TEST_CASE("verbs on 16-bit types allocate at first use only", "[unit][ops]") {
    if (!can_count_allocations()) {
        WARN("skipped: allocations are not counted under the address sanitizer");
        return;
    }
    const std::string kind = GENERATE(from_range(devices()));
    if (!Machine(kind).device->host_memory()) return;  // what a driver allocates for its queues is not ours
    Verbs verbs(kind, 2);
    verbs.run();
    count_allocations();
    verbs.run();
    const Allocations found = allocations();
    CHECK(found.ours == 0);
    CHECK(found.live == 0);
}

TEST_CASE("parameters and statistics are float32, other types are named", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    const Real x = machine.real(bf16, {2, 3}, Values(6, 1.0)), sum = machine.real_output(bf16, {3});
    REQUIRE_THROWS_WITH(machine.ops->sum_rows(x, sum, false), contains("bfloat16 is not supported"));
    REQUIRE_THROWS_WITH(machine.ops->mean_squared_error({x, x, 1, {}, {}}),
                        contains("bfloat16 is not supported"));
    const Indices integers = machine.indices({6}, std::vector<std::int32_t>(6));
    REQUIRE_THROWS_WITH(machine.ops->copy(integers, part(x, 0, 6)), contains("int32 is not supported"));
    REQUIRE_THROWS_WITH(machine.ops->add(integers, integers, Activation::none, integers),
                        contains("int32 is not supported"));
}
