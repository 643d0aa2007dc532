#include "ops/cpu/reals.hpp"

#include <bit>
#include <cstring>

#ifdef __F16C__
#include <immintrin.h>
#endif

namespace trireme::cpu {
namespace {

// bfloat16 is the upper half of a float32.
void widen_bf16(const std::uint16_t* from, float* to, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = std::bit_cast<float>(std::uint32_t{from[i]} << 16);
}

void narrow_bf16(const float* from, std::uint16_t* to, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
        const auto bits = std::bit_cast<std::uint32_t>(from[i]);
        const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
        const bool nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
        to[i] = static_cast<std::uint16_t>(nan ? (bits >> 16) | 0x40U : rounded);
    }
}

/// float16 by arithmetic on float32 (no table, no branch that costs): a denormal float16 is a whole multiple
/// of 2^-24.
float float_from_half(std::uint16_t half) {
    const std::uint32_t sign = std::uint32_t{half & 0x8000U} << 16, rest = half & 0x7FFFU;
    const float normal = std::bit_cast<float>((rest << 13) + (112U << 23));
    const float denormal = static_cast<float>(static_cast<std::int32_t>(rest)) * 0x1p-24F;
    const float infinite = std::bit_cast<float>((rest << 13) | 0x7F800000U);
    const float magnitude = rest >= 0x7C00U ? infinite : rest < 0x400U ? denormal : normal;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
}

std::uint16_t half_from_float(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000U, rest = bits & 0x7FFFFFFFU;
    std::uint32_t half = 0;
    if (rest > 0x7F800000U) {
        half = 0x7E00U;  // NaN
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
