// Counter-based random numbers: Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy
// as 1, 2, 3", SC 2011). A number is a pure function of (key, index), so no rank or thread can change it.
#pragma once

#include <array>
#include <cstdint>

namespace trireme {

/// What random numbers are drawn for; part of every key, so that no two uses share a stream.
enum class Purpose : std::uint32_t {
    shuffle = 1,
    init = 2,
    dropout = 3,
    augment = 4,
    split = 5,
    generate = 6,
    sweep = 7
};

struct PhiloxKey {
    std::uint32_t lo = 0, hi = 0;
};

using PhiloxBlock = std::array<std::uint32_t, 4>;

/// Ten rounds over a 128-bit counter.
constexpr PhiloxBlock philox(PhiloxKey key, PhiloxBlock counter) {
    constexpr std::uint64_t m0 = 0xD2511F53u, m1 = 0xCD9E8D57u;
    constexpr std::uint32_t w0 = 0x9E3779B9u, w1 = 0xBB67AE85u;
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t p0 = m0 * counter[0], p1 = m1 * counter[2];
        counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key.lo, static_cast<std::uint32_t>(p1),
                   static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key.hi,
                   static_cast<std::uint32_t>(p0)};
        key.lo += w0;
        key.hi += w1;
    }
    return counter;
}

/// A named stream of random numbers: the key holds the run's seed, the upper counter words what it is for.
/// `a` and `b` are the use's own coordinates (layer and step; parameter; epoch).
struct RandomStream {
    PhiloxKey key;
    std::uint32_t purpose_a = 0, b = 0;

    RandomStream() = default;
    RandomStream(std::uint64_t seed, Purpose purpose, std::uint64_t a_, std::uint64_t b_ = 0)
        : key{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)} {
        // Purpose, a and b are hashed by one Philox call into the two words that the index leaves free.
        const PhiloxBlock mixed =
            philox({static_cast<std::uint32_t>(purpose), 0x54524952u},
                   {static_cast<std::uint32_t>(a_), static_cast<std::uint32_t>(a_ >> 32),
                    static_cast<std::uint32_t>(b_), static_cast<std::uint32_t>(b_ >> 32)});
        key.lo ^= mixed[2];
        key.hi ^= mixed[3];
        purpose_a = mixed[0];
        b = mixed[1];
    }

    /// The four 32-bit words of block `index`.
    constexpr PhiloxBlock block(std::uint64_t index) const {
        return philox(
            key, {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), purpose_a, b});
    }
    /// The 32-bit word at element `index`.
    constexpr std::uint32_t word(std::uint64_t index) const { return block(index / 4)[index % 4]; }
};

/// A word as a real in [0, 1) with 24 bits.
constexpr float unit_interval(std::uint32_t word) {
    return static_cast<float>(word >> 8) * 0x1p-24f;
}

}  // namespace trireme
