#include "ops/cpu/reals.hpp"

#include <bit>
#include <cstring>

#if defined(__F16C__) || defined(__AVX2__)
#include <immintrin.h>
#endif

namespace trireme::cpu {
namespace {

// bfloat16 is the upper half of a float32.
void widen_bf16(const std::uint16_t* from, float* to, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = std::bit_cast<float>(std::uint32_t{from[i]} << 16);
}

std::uint16_t bfloat_from_float(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t nearest = bits + 0x7FFFU + ((bits >> 16) & 1U), quiet = bits | 0x400000U;
    return static_cast<std::uint16_t>((value != value ? quiet : nearest) >> 16);
}

#ifdef __AVX2__
/// As above for eight, each in the lower half of its lane.
__m256i bfloats_from_floats(const float* from) {
    const __m256 values = _mm256_loadu_ps(from);
    const __m256i bits = _mm256_castps_si256(values);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i nearest = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256 nan = _mm256_cmp_ps(values, values, _CMP_UNORD_Q);
    const __m256 chosen = _mm256_blendv_ps(_mm256_castsi256_ps(nearest), _mm256_castsi256_ps(quiet), nan);
    return _mm256_srli_epi32(_mm256_castps_si256(chosen), 16);
}
#endif

void narrow_bf16(const float* from, std::uint16_t* to, std::int64_t n) {
    std::int64_t i = 0;
#ifdef __AVX2__
    // A compiler left alone masks what it packs once more, which costs a fifth.
    for (; i + 16 <= n; i += 16) {
        const __m256i packed =
            _mm256_packus_epi32(bfloats_from_floats(from + i), bfloats_from_floats(from + i + 8));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), _mm256_permute4x64_epi64(packed, 0xD8));
    }
#endif
    for (; i < n; ++i) to[i] = bfloat_from_float(from[i]);
}

/// float16 by arithmetic on float32 (no table, no branch that costs): a denormal float16 is a whole multiple
/// of 2^-24. NaN keeps the bits that it can and becomes a quiet one, as the processor's own conversion does.
float float_from_half(std::uint16_t half) {
    const std::uint32_t sign = std::uint32_t{half & 0x8000U} << 16, rest = half & 0x7FFFU;
    const float normal = std::bit_cast<float>((rest << 13) + (112U << 23));
    const float denormal = static_cast<float>(static_cast<std::int32_t>(rest)) * 0x1p-24F;
    const float infinite = std::bit_cast<float>((rest << 13) | (rest > 0x7C00U ? 0x7FC00000U : 0x7F800000U));
    const float magnitude = rest >= 0x7C00U ? infinite : rest < 0x400U ? denormal : normal;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
}

std::uint16_t half_from_float(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000U, rest = bits & 0x7FFFFFFFU;
    std::uint32_t half = 0;
    if (rest > 0x7F800000U) {
        half = 0x7E00U | ((rest >> 13) & 0x3FFU);  // NaN
    } else if (rest >= 0x477FF000U) {
        half = 0x7C00U;  // from 65520 on: inf
    } else if (rest < 0x38800000U) {
        // Below 2^-14: adding 0.5 leaves the multiples of 2^-24 in the low bits, rounded to even.
        half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest) + 0.5F) - 0x3F000000U;
    } else {
        half = (rest - (112U << 23) + 0xFFFU + ((rest >> 13) & 1U)) >> 13;
    }
    return static_cast<std::uint16_t>(half | sign);
}

void widen_f16(const std::uint16_t* from, float* to, std::int64_t n) {
    std::int64_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(to + i,
                         _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
#endif
    for (; i < n; ++i) to[i] = float_from_half(from[i]);
}

void narrow_f16(const float* from, std::uint16_t* to, std::int64_t n) {
    std::int64_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < n; ++i) to[i] = half_from_float(from[i]);
}

}  // namespace

void widen(DType type, const void* from, float* to, std::int64_t n) {
    if (type == DType::bf16)
        widen_bf16(static_cast<const std::uint16_t*>(from), to, n);
    else if (type == DType::f16)
        widen_f16(static_cast<const std::uint16_t*>(from), to, n);
    else
        std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float));
}

void narrow(DType type, const float* from, void* to, std::int64_t n) {
    if (type == DType::bf16)
        narrow_bf16(from, static_cast<std::uint16_t*>(to), n);
    else if (type == DType::f16)
        narrow_f16(from, static_cast<std::uint16_t*>(to), n);
    else
        std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float));
}

}  // namespace trireme::cpu
