// Philox for four neighbouring blocks at a time, one per lane of a vector. The words are those of
// RandomStream::block; only the order of work differs.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "trireme/base/philox.hpp"

namespace trireme::cpu {

constexpr int philox_lanes = 4;

using Word4 = std::uint64_t __attribute__((vector_size(32)));

/// The low 32 bits of each lane times m. Written out for AVX2, which has just that as one instruction that
/// compilers do not find by themselves.
inline Word4 wide_product(Word4 a, std::uint32_t m) {
#if defined(__AVX2__)
    return reinterpret_cast<Word4>(
        _mm256_mul_epu32(reinterpret_cast<__m256i>(a), _mm256_set1_epi64x(static_cast<long long>(m))));
#else
    return (a & 0xFFFFFFFFU) * std::uint64_t{m};
#endif
}

/// Word k of block first + j is in the low 32 bits of lane j of vector k; the high bits hold remains.
inline std::array<Word4, 4> philox_blocks(const RandomStream& stream, std::uint64_t first) {
    const Word4 index = Word4{0, 1, 2, 3} + first;
    Word4 c0 = index, c1 = index >> 32, c2 = Word4{} + stream.purpose_a, c3 = Word4{} + stream.b;
    std::uint32_t lo = stream.key.lo, hi = stream.key.hi;
    for (int round = 0; round < 10; ++round) {
        const Word4 p0 = wide_product(c0, 0xD2511F53U), p1 = wide_product(c2, 0xCD9E8D57U);
        c0 = (p1 >> 32) ^ c1 ^ std::uint64_t{lo};
        c1 = p1;
        c2 = (p0 >> 32) ^ c3 ^ std::uint64_t{hi};
        c3 = p0;
        lo += 0x9E3779B9U;
        hi += 0xBB67AE85U;
    }
    return {c0, c1, c2, c3};
}

/// The sixteen words of blocks first ... first + 3 in the order of their elements.
inline void philox_words(const RandomStream& stream, std::uint64_t first, std::uint32_t* words) {
    const auto [c0, c1, c2, c3] = philox_blocks(stream, first);
    const Word4 front = (c0 & 0xFFFFFFFFU) | (c1 << 32), back = (c2 & 0xFFFFFFFFU) | (c3 << 32);
    const Word4 low = __builtin_shufflevector(front, back, 0, 4, 1, 5);
    const Word4 high = __builtin_shufflevector(front, back, 2, 6, 3, 7);
    std::memcpy(words, &low, sizeof low);
    std::memcpy(words + 8, &high, sizeof high);
}

}  // namespace trireme::cpu
