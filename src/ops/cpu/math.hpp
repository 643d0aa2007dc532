// Elementary functions that a compiler can turn into vector code. They contain no table, no branch and no
// call of the mathematics library, so their values are the same on every processor.
#pragma once

#include <bit>
#include <cstdint>

namespace trireme::cpu {

/// e^x for x <= 0, relative error below 2e-7; 0 below -87.3, NaN where x is. Argument reduction by ln 2 in
/// two parts, then a polynomial for e^r on |r| <= ln(2)/2 (Cody and Waite 1980).
constexpr float exp_nonpositive(float x) {
    const float bounded = x < -87.3F ? -87.3F : x;
    constexpr float rounder = 12582912.0F;  // 1.5·2^23: adding it rounds to an integer, held in the low bits
    const float shifted = bounded * 1.44269504F + rounder;
    const float n = shifted - rounder;
    const float r = (bounded - n * 0.693359375F) + n * 2.12194440e-4F;
    float p = 1.0F / 720.0F;
    p = p * r + 1.0F / 120.0F;
    p = p * r + 1.0F / 24.0F;
    p = p * r + 1.0F / 6.0F;
    p = p * r + 0.5F;
    p = p * r * r + r + 1.0F;
    const float scale = std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) + 127U) << 23);
    return x < -87.3F ? 0.0F : p * scale;
}

/// ln(1 + e) for 0 <= e <= 1, with a small relative error also near 0: 2·artanh(e / (2 + e)).
constexpr float log1p_unit(float e) {
    const float s = e / (2.0F + e), q = s * s;
    float p = 1.0F / 15.0F;
    p = p * q + 1.0F / 13.0F;
    p = p * q + 1.0F / 11.0F;
    p = p * q + 1.0F / 9.0F;
    p = p * q + 1.0F / 7.0F;
    p = p * q + 1.0F / 5.0F;
    p = p * q + 1.0F / 3.0F;
    return 2.0F * s * (p * q + 1.0F);
}

/// ln u for a positive normal u <= 1: u = 2^e·f with f in [√½, √2), then 2·artanh((f - 1) / (f + 1)).
constexpr float log_unit(float u) {
    constexpr std::uint32_t root_half = 0x3F3504F3U;
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(u) - root_half;
    const float exponent = static_cast<float>(static_cast<std::int32_t>(bits) >> 23);
    const float f = std::bit_cast<float>((bits & 0x007FFFFFU) + root_half);
    const float s = (f - 1.0F) / (f + 1.0F), q = s * s;  // |s| < 0.172
    float p = 1.0F / 9.0F;
    p = p * q + 1.0F / 7.0F;
    p = p * q + 1.0F / 5.0F;
    p = p * q + 1.0F / 3.0F;
    return exponent * 0.69314718F + 2.0F * s * (p * q + 1.0F);
}

/// cos(2πt) for 0 <= t < 1: sin(2πc) with c = |t - ½| - ¼, by its series on a quarter turn.
constexpr float cos_turn(float t) {
    const float a = t - 0.5F, c = (a < 0 ? -a : a) - 0.25F;
    const float z = c * 6.28318531F, q = z * z;
    float p = -1.0F / 39916800.0F;
    p = p * q + 1.0F / 362880.0F;
    p = p * q - 1.0F / 5040.0F;
    p = p * q + 1.0F / 120.0F;
    p = p * q - 1.0F / 6.0F;
    return z * (p * q + 1.0F);
}

}  // namespace trireme::cpu
