// Sums and maxima in explicit vector lanes (the vector types of GCC and Clang). A compiler may not reorder a
// floating-point sum by itself, and one that it was allowed to reorder could depend on the alignment of the
// data.
#pragma once

#include <cstdint>
#include <cstring>

namespace trireme::cpu {

using Float8 = float __attribute__((vector_size(32)));
using Double4 = double __attribute__((vector_size(32)));
using Float4 = float __attribute__((vector_size(16)));

inline Float8 load8(const float* from) {
    Float8 v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

/// Four floats as doubles. Written lane by lane: compilers turn just this into one conversion.
inline Double4 widen(const Float4& v) {
    return Double4{v[0], v[1], v[2], v[3]};
}
inline Double4 widen(const float* from) {
    return Double4{from[0], from[1], from[2], from[3]};
}

inline double total(const Double4& v) {
    return (v[0] + v[2]) + (v[1] + v[3]);
}
/// Σ of eight lanes, pairwise.
inline double total(const Float8& v) {
    return total(Double4{v[0], v[1], v[2], v[3]} + Double4{v[4], v[5], v[6], v[7]});
}

/// Σ x[i] in double.
inline double double_sum(const float* x, std::int64_t n) {
    Double4 lanes[4] = {};
    std::int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        lanes[0] += widen(x + i);
        lanes[1] += widen(x + i + 4);
        lanes[2] += widen(x + i + 8);
        lanes[3] += widen(x + i + 12);
    }
    double rest = 0;
    for (; i < n; ++i) rest += static_cast<double>(x[i]);
    return total((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + rest;
}

/// Σ (scale·x[i])², the product rounded to float, the squares and their sum in double.
inline double square_sum(const float* x, float scale, std::int64_t n) {
    Double4 lanes[4] = {};
    std::int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int part = 0; part < 4; ++part) {
            Float4 v;
            std::memcpy(&v, x + i + 4 * part, sizeof v);
            const Double4 wide = widen(v * scale);
            lanes[part] += wide * wide;
        }
    double rest = 0;
    for (; i < n; ++i) {
        const auto wide = static_cast<double>(x[i] * scale);
        rest += wide * wide;
    }
    return total((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + rest;
}

}  // namespace trireme::cpu
