#include "comm/combine.hpp"

#include <algorithm>
#include <string>
#include <type_traits>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

template <class T>
T sum_of(T a, T b) {
    if constexpr (std::is_integral_v<T>) {  // without the overflow of signed types, which is undefined
        using Unsigned = std::make_unsigned_t<T>;
        return static_cast<T>(static_cast<Unsigned>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b)));
    } else {
        return a + b;
    }
}

template <class T>
void combine_as(Reduce op, void* into, const void* from, std::int64_t count) {
    T* __restrict__ a = static_cast<T*>(into);
    const T* __restrict__ b = static_cast<const T*>(from);
    switch (op) {
        case Reduce::sum:
            for (std::int64_t i = 0; i < count; ++i) a[i] = sum_of(a[i], b[i]);
            break;
        case Reduce::max:
            for (std::int64_t i = 0; i < count; ++i) a[i] = std::max(a[i], b[i]);
            break;
        case Reduce::min:
            for (std::int64_t i = 0; i < count; ++i) a[i] = std::min(a[i], b[i]);
            break;
    }
}

}  // namespace

void require_reducible(DType type) {
    if (type == DType::f16 || type == DType::bf16)
        throw failure("a collective cannot reduce " + std::string(name_of(type)) + "; reduce in float32");
}

void combine(Reduce op, DType type, void* into, const void* from, std::int64_t count) {
    switch (type) {
        case DType::f32:
            return combine_as<float>(op, into, from, count);
        case DType::f64:
            return combine_as<double>(op, into, from, count);
        case DType::i8:
            return combine_as<std::int8_t>(op, into, from, count);
        case DType::u8:
            return combine_as<std::uint8_t>(op, into, from, count);
        case DType::i16:
            return combine_as<std::int16_t>(op, into, from, count);
        case DType::u16:
            return combine_as<std::uint16_t>(op, into, from, count);
        case DType::i32:
            return combine_as<std::int32_t>(op, into, from, count);
        case DType::u32:
            return combine_as<std::uint32_t>(op, into, from, count);
        case DType::i64:
            return combine_as<std::int64_t>(op, into, from, count);
        case DType::u64:
            return combine_as<std::uint64_t>(op, into, from, count);
        case DType::f16:
        case DType::bf16:
            break;
    }
    require_reducible(type);
}

}  // namespace trireme
