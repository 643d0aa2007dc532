// Element types. Arithmetic types are what layers compute in; the integer types appear in data files and
// labels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trireme {

enum class DType : std::uint8_t { f32, f64, f16, bf16, i8, u8, i16, u16, i32, u32, i64, u64 };

constexpr std::size_t size_of(DType type) {
    switch (type) {
        case DType::i8:
        case DType::u8:
            return 1;
        case DType::f16:
        case DType::bf16:
        case DType::i16:
        case DType::u16:
            return 2;
        case DType::f32:
        case DType::i32:
        case DType::u32:
            return 4;
        case DType::f64:
        case DType::i64:
        case DType::u64:
            return 8;
    }
    return 0;
}

constexpr bool is_real(DType type) {
    return type == DType::f32 || type == DType::f64 || type == DType::f16 || type == DType::bf16;
}

constexpr std::string_view name_of(DType type) {
    switch (type) {
        case DType::f32:
            return "float32";
        case DType::f64:
            return "float64";
        case DType::f16:
            return "float16";
        case DType::bf16:
            return "bfloat16";
        case DType::i8:
            return "int8";
        case DType::u8:
            return "uint8";
        case DType::i16:
            return "int16";
        case DType::u16:
            return "uint16";
        case DType::i32:
            return "int32";
        case DType::u32:
            return "uint32";
        case DType::i64:
            return "int64";
        case DType::u64:
            return "uint64";
    }
    return "?";
}

template <class T>
struct dtype_of_type;
template <>
struct dtype_of_type<float> {
    static constexpr DType value = DType::f32;
};
template <>
struct dtype_of_type<double> {
    static constexpr DType value = DType::f64;
};
template <>
struct dtype_of_type<std::int8_t> {
    static constexpr DType value = DType::i8;
};
template <>
struct dtype_of_type<std::uint8_t> {
    static constexpr DType value = DType::u8;
};
template <>
struct dtype_of_type<std::int16_t> {
    static constexpr DType value = DType::i16;
};
template <>
struct dtype_of_type<std::uint16_t> {
    static constexpr DType value = DType::u16;
};
template <>
struct dtype_of_type<std::int32_t> {
    static constexpr DType value = DType::i32;
};
template <>
struct dtype_of_type<std::uint32_t> {
    static constexpr DType value = DType::u32;
};
template <>
struct dtype_of_type<std::int64_t> {
    static constexpr DType value = DType::i64;
};
template <>
struct dtype_of_type<std::uint64_t> {
    static constexpr DType value = DType::u64;
};
template <class T>
inline constexpr DType dtype_of = dtype_of_type<T>::value;

}  // namespace trireme
