// Sums and maxima in explicit vector lanes (the vector types of GCC and Clang). A compiler may not reorder a
// floating-point sum by itself, and one that it was allowed to reorder could depend on the alignment of the data.
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
inline void store8(float* to, const Float8& v) { std::memcpy(to, &v, sizeof v); }

/// Σ of eight lanes, pairwise.
inline double total(const Float8& v) {
    return ((double{v[0]} + double{v[4]}) + (double{v[1]} + double{v[5]})) +
           ((double{v[2]} + double{v[6]}) + (double{v[3]} + double{v[7]}));
}
inline double total(const Double4& v) { return (v[0] + v[2]) + (v[1] + v[3]); }

/// A running sum in double over eight lanes.
class DoubleSum8 {
public:
    void add(const Float8& v) {
        low_ += __builtin_convertvector(__builtin_shufflevector(v, v, 0, 1, 2, 3), Double4);
        high_ += __builtin_convertvector(__builtin_shufflevector(v, v, 4, 5, 6, 7), Double4);
    }
    void add_square(const Float8& v) {
        const Double4 a = __builtin_convertvector(__builtin_shufflevector(v, v, 0, 1, 2, 3), Double4);
        const Double4 b = __builtin_convertvector(__builtin_shufflevector(v, v, 4, 5, 6, 7), Double4);
        low_ += a * a;
        high_ += b * b;
    }
    double value() const { return total(low_ + high_); }

private:
    Double4 low_{}, high_{};
};

/// Σ x[i]² of a block, in double.
inline double square_sum(const float* x, std::int64_t n) {
    DoubleSum8 even, odd;
    std::int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        even.add_square(load8(x + i));
        odd.add_square(load8(x + i + 8));
    }
    double rest = 0;
    for (; i < n; ++i) rest += double{x[i]} * double{x[i]};
    return even.value() + odd.value() + rest;
}

}  // namespace trireme::cpu
