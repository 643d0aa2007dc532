// Philox over several neighbouring blocks at a time, in a form that compiles to vector code. The words are those of
// RandomStream::block; only the order of work differs.
#pragma once

#include <cstdint>

#include "trireme/base/philox.hpp"

namespace trireme::cpu {

/// Blocks per call.
constexpr int philox_lanes = 16;

/// words[k][j] = word k of block first + j.
inline void philox_blocks(const RandomStream& stream, std::uint64_t first, std::uint32_t (&words)[4][philox_lanes]) {
    std::uint32_t c0[philox_lanes], c1[philox_lanes], c2[philox_lanes], c3[philox_lanes];
    for (int j = 0; j < philox_lanes; ++j) {
        const std::uint64_t index = first + static_cast<std::uint64_t>(j);
        c0[j] = static_cast<std::uint32_t>(index);
        c1[j] = static_cast<std::uint32_t>(index >> 32);
        c2[j] = stream.purpose_a;
        c3[j] = stream.b;
    }
    std::uint32_t lo = stream.key.lo, hi = stream.key.hi;
    for (int round = 0; round < 10; ++round) {
        for (int j = 0; j < philox_lanes; ++j) {
            const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * c0[j], p1 = std::uint64_t{0xCD9E8D57U} * c2[j];
            c0[j] = static_cast<std::uint32_t>(p1 >> 32) ^ c1[j] ^ lo;
            c1[j] = static_cast<std::uint32_t>(p1);
            c2[j] = static_cast<std::uint32_t>(p0 >> 32) ^ c3[j] ^ hi;
            c3[j] = static_cast<std::uint32_t>(p0);
        }
        lo += 0x9E3779B9U;
        hi += 0xBB67AE85U;
    }
    for (int j = 0; j < philox_lanes; ++j) {
        words[0][j] = c0[j];
        words[1][j] = c1[j];
        words[2][j] = c2[j];
        words[3][j] = c3[j];
    }
}

}  // namespace trireme::cpu
