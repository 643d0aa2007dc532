// A keyed bijection of [0, n): a shuffle that needs no memory, for any n.
#pragma once

#include <cstdint>

#include "trireme/base/philox.hpp"

namespace trireme {

/// A balanced Feistel network over the smallest even number of bits that holds n, with Philox as its round
/// function; values that fall outside [0, n) are sent through again ("cycle walking", Black and Rogaway,
/// CT-RSA 2002).
class Permutation {
public:
    /// @throws Error when n is negative.
    Permutation(std::int64_t n, RandomStream stream);

    std::int64_t size() const { return n_; }
    /// The image of i, 0 <= i < size(). Expected cost: under four Feistel passes.
    std::int64_t operator()(std::int64_t i) const;

private:
    std::uint64_t once(std::uint64_t value) const;

    std::int64_t n_;
    RandomStream stream_;
    unsigned half_bits_;
};

}  // namespace trireme
