#include "reference/reference.hpp"
#include "support/devices.hpp"
#include "support/op_cases.hpp"
#include "support/tensors.hpp"

using namespace trireme;
using namespace trireme::testing;

TEST_CASE("philox gives the published words", "[unit][ops]") {
    constexpr std::uint32_t ones = 0xFFFFFFFFU;
    REQUIRE(philox({0, 0}, {0, 0, 0, 0}) == PhiloxBlock{0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U});
    REQUIRE(philox({ones, ones}, {ones, ones, ones, ones}) ==
            PhiloxBlock{0x408f276dU, 0x41c83b0eU, 0xa20bc7c6U, 0x6d5451fdU});
    REQUIRE(philox({0xa4093822U, 0x299f31d0U}, {0x243f6a88U, 0x85a308d3U, 0x13198a2eU, 0x03707344U}) ==
            PhiloxBlock{0xd16cfe09U, 0x94fdccebU, 0x5001e420U, 0x24126ea1U});
}

TEST_CASE("dropout is its word-by-word definition at any offset", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    const RandomStream stream(42, Purpose::dropout, 3, 7);
    for (const std::int64_t n : flat_cases())
        for (const std::int64_t first : {std::int64_t{0}, std::int64_t{1}, std::int64_t{2}, std::int64_t{7},
                                         (std::int64_t{1} << 34) - 5})
            for (const float p : {0.0F, 0.1F, 0.5F, 1.0F}) {
                INFO(n << " from " << first << " p " << p);
                const Values x = random_values(n, 1, 0.5, 2);
                const Values want = p == 1 ? Values(x.size(), 0.0) : reference::dropout(stream, first, p, x);
                const Tensor tx = machine.tensor({n}, x), y = machine.output({n});
                machine.ops->dropout(stream, first, 0, p, tx, y);
                require_close(y, want, 1e-6, 1e-30);
                machine.ops->dropout(stream, first, 0, p, tx, tx);
                REQUIRE(tx.values() == y.values());
            }
}

TEST_CASE("a part of a random stream does not depend on the other parts", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    const RandomStream stream(5, Purpose::init, 1);
    const std::int64_t n = 10007, first = 3;
    const Tensor ones = machine.tensor({n}, Values(static_cast<std::size_t>(n), 1.0));
    const auto draw = [&](int what, std::int64_t at, View y) {
        View x = ones;
        x.shape = y.shape;
        if (what == 0) machine.ops->dropout(stream, at, 0, 0.3F, x, y);
        if (what == 1) machine.ops->fill_normal(stream, at, 1, 2, y);
        if (what == 2) machine.ops->fill_uniform(stream, at, -1, 2, y);
    };
    for (int what = 0; what < 3; ++what)
        for (const std::int64_t cut : {std::int64_t{1}, std::int64_t{4097}, std::int64_t{5002}}) {
            INFO("verb " << what << " cut at " << cut);
            const Tensor whole = machine.output({n}), front = machine.output({cut}),
                         back = machine.output({n - cut});
            draw(what, first, whole);
            draw(what, first, front);
            draw(what, first + cut, back);
            std::vector<float> joined = front.values();
            const std::vector<float> rest = back.values();
            joined.insert(joined.end(), rest.begin(), rest.end());
            REQUIRE(joined == whole.values());
        }
}

TEST_CASE("normal and uniform fills have their moments and bounds", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    const RandomStream stream(9, Purpose::init, 2);
    const std::int64_t n = 200000;
    const auto moment = [&](const std::vector<float>& values, int power, double center) {
        double sum = 0;
        for (const float value : values) sum += std::pow(static_cast<double>(value) - center, power);
        return sum / static_cast<double>(n);
    };
    const Tensor y = machine.output({n});
    machine.ops->fill_normal(stream, 0, 1, 2, y);
    const std::vector<float> normal = y.values();
    REQUIRE(moment(normal, 1, 1) == Approx(0).margin(0.02));
    REQUIRE(moment(normal, 2, 1) == Approx(4).epsilon(0.02));
    REQUIRE(moment(normal, 3, 1) == Approx(0).margin(0.2));
    REQUIRE(moment(normal, 4, 1) == Approx(48).epsilon(0.05));
    machine.ops->fill_uniform(stream, 0, -1, 3, y);
    const std::vector<float> uniform = y.values();
    for (std::size_t i = 0; i < 1000; ++i) REQUIRE(uniform[i] == -1 + 4 * unit_interval(stream.word(i)));
    REQUIRE(moment(uniform, 1, 1) == Approx(0).margin(0.02));
    REQUIRE(*std::max_element(uniform.begin(), uniform.end()) < 3);
    REQUIRE(*std::min_element(uniform.begin(), uniform.end()) >= -1);
}

TEST_CASE("a normal element is Box and Muller's function of its own block", "[unit][ops]") {
    const Machine machine(GENERATE(from_range(devices())));
    const RandomStream stream(9, Purpose::init, 2);
    const std::int64_t n = 5000, first = 77;
    Values want;
    for (std::int64_t i = 0; i < n; ++i) {
        const PhiloxBlock block = stream.block(static_cast<std::uint64_t>(first + i));
        const double u = (static_cast<double>(block[0] >> 8) + 0.5) * 0x1p-24;
        const double t = static_cast<double>(block[1] >> 8) * 0x1p-24;
        want.push_back(std::sqrt(-2 * std::log(u)) * std::cos(2 * 3.14159265358979323846 * t));
    }
    const Tensor y = machine.output({n});
    machine.ops->fill_normal(stream, first, 0, 1, y);
    require_close(y, want, 1e-5, 2e-6);
}
