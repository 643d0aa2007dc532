#include "trireme/base/permutation.hpp"

#include <bit>
#include <string>

#include "trireme/base/error.hpp"

namespace trireme {

Permutation::Permutation(std::int64_t n, RandomStream stream) : n_(n), stream_(stream) {
    if (n < 0) throw failure("a permutation of " + std::to_string(n) + " elements was asked for");
    const int bits = n > 1 ? std::bit_width(static_cast<std::uint64_t>(n - 1)) : 1;
    half_bits_ = static_cast<unsigned>((bits + 1) / 2);
}

std::int64_t Permutation::operator()(std::int64_t i) const {
    std::uint64_t value = static_cast<std::uint64_t>(i);
    do {
        value = once(value);
    } while (value >= static_cast<std::uint64_t>(n_));
    return static_cast<std::int64_t>(value);
}

std::uint64_t Permutation::once(std::uint64_t value) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
    std::uint64_t left = value >> half_bits_, right = value & mask;
    for (std::uint64_t round = 0; round < 4; ++round) {
        const PhiloxBlock words = stream_.block(round << 40 | right);
        const std::uint64_t mixed = (std::uint64_t{words[1]} << 32 | words[0]) & mask;
        const std::uint64_t next = left ^ mixed;
        left = right;
        right = next;
    }
    return left << half_bits_ | right;
}

}  // namespace trireme
