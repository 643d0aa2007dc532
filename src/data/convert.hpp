// Private to data: stored values as inputs, targets and labels.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "trireme/base/error.hpp"
#include "trireme/tensor/dtype.hpp"

namespace trireme {

struct Half {
    std::uint16_t bits;
    operator float() const {
        const std::uint32_t exponent = bits >> 10 & 31u, mantissa = bits & 1023u;
        const std::uint32_t rebased = (exponent == 31u ? 255u : exponent + 112u) << 23 | mantissa << 13;
        const float magnitude =
            exponent == 0 ? static_cast<float>(mantissa) * 0x1p-24f : std::bit_cast<float>(rebased);
        return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) |
                                    std::uint32_t{bits} >> 15 << 31);
    }
};

struct BFloat16 {
    std::uint16_t bits;
    operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
};

/// Calls `use` with a null pointer of the C++ type that `type` stands for.
template <class Use>
decltype(auto) with_type(DType type, Use use) {
    switch (type) {
        case DType::f32:
            return use(static_cast<const float*>(nullptr));
        case DType::f64:
            return use(static_cast<const double*>(nullptr));
        case DType::f16:
            return use(static_cast<const Half*>(nullptr));
        case DType::bf16:
            return use(static_cast<const BFloat16*>(nullptr));
        case DType::i8:
            return use(static_cast<const std::int8_t*>(nullptr));
        case DType::u8:
            return use(static_cast<const std::uint8_t*>(nullptr));
        case DType::i16:
            return use(static_cast<const std::int16_t*>(nullptr));
        case DType::u16:
            return use(static_cast<const std::uint16_t*>(nullptr));
        case DType::i32:
            return use(static_cast<const std::int32_t*>(nullptr));
        case DType::u32:
            return use(static_cast<const std::uint32_t*>(nullptr));
        case DType::i64:
            return use(static_cast<const std::int64_t*>(nullptr));
        case DType::u64:
            return use(static_cast<const std::uint64_t*>(nullptr));
    }
    throw failure("an unknown element type");
}

/// out[i] = (raw[i] - shift) * scale, in double where the stored values need it.
void to_inputs(DType type, const void* raw, std::int64_t count, float shift, float scale, float* out);
/// The same with a shift and scale for each element.
void to_inputs(DType type, const void* raw, std::int64_t count, const float* shift, const float* scale,
               float* out);

/// Stored integers as tokens. Returns the index of the first that is negative or not below `limit`, and
/// `count` where there is none.
std::int64_t to_tokens(DType type, const void* raw, std::int64_t count, std::int64_t limit,
                       std::int32_t* out);

bool all_finite(const float* values, std::int64_t count);

double value_at(DType type, const void* raw, std::int64_t index);
/// The value as an integer; nothing where it is none, or beyond 64 bits.
std::optional<std::int64_t> integer_at(DType type, const void* raw, std::int64_t index);

}  // namespace trireme
