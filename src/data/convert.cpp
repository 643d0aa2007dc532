#include "data/convert.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

namespace trireme {
namespace {

/// float holds the values of all types of up to two bytes.
template <class T>
using Arithmetic = std::conditional_t<(sizeof(T) > 2) && !std::is_same_v<T, float>, double, float>;

template <class T>
constexpr bool is_integer = std::numeric_limits<T>::is_integer;

}  // namespace

void to_inputs(DType type, const void* raw, std::int64_t count, float shift, float scale, float* out) {
    with_type(type, [&]<class T>(const T*) {
        const T* in = static_cast<const T*>(raw);
        using A = Arithmetic<T>;
        for (std::int64_t i = 0; i < count; ++i)
            out[i] = static_cast<float>((static_cast<A>(in[i]) - A{shift}) * A{scale});
    });
}

void to_inputs(DType type, const void* raw, std::int64_t count, const float* shift, const float* scale,
               float* out) {
    with_type(type, [&]<class T>(const T*) {
        const T* in = static_cast<const T*>(raw);
        using A = Arithmetic<T>;
        for (std::int64_t i = 0; i < count; ++i)
            out[i] = static_cast<float>((static_cast<A>(in[i]) - A{shift[i]}) * A{scale[i]});
    });
}

std::int64_t to_tokens(DType type, const void* raw, std::int64_t count, std::int64_t limit,
                       std::int32_t* out) {
    return with_type(type, [&]<class T>(const T*) -> std::int64_t {
        if constexpr (!is_integer<T>) {
            throw failure("tokens of type " + std::string(name_of(type)));
        } else {
            const T* in = static_cast<const T*>(raw);
            // Without a sign, negative values lie above every limit.
            const auto fits = [&](T value) {
                return static_cast<std::uint64_t>(value) < static_cast<std::uint64_t>(limit);
            };
            bool all = true;
            for (std::int64_t i = 0; i < count; ++i) {
                all &= fits(in[i]);
                out[i] = static_cast<std::int32_t>(in[i]);
            }
            return all ? count : std::find_if_not(in, in + count, fits) - in;
        }
    });
}

bool all_finite(const float* values, std::int64_t count) {
    constexpr std::uint32_t exponent = 0x7f800000u;
    std::uint32_t bad = 0;
    for (std::int64_t i = 0; i < count; ++i)
        bad |= (std::bit_cast<std::uint32_t>(values[i]) & exponent) == exponent ? 1u : 0u;
    return bad == 0;
}

double value_at(DType type, const void* raw, std::int64_t index) {
    return with_type(type, [&]<class T>(const T*) {
        return static_cast<double>(static_cast<Arithmetic<T>>(static_cast<const T*>(raw)[index]));
    });
}

std::optional<std::int64_t> integer_at(DType type, const void* raw, std::int64_t index) {
    return with_type(type, [&]<class T>(const T*) -> std::optional<std::int64_t> {
        const T value = static_cast<const T*>(raw)[index];
        if constexpr (is_integer<T>) {
            constexpr auto largest = std::numeric_limits<std::int64_t>::max();
            if constexpr (std::is_same_v<T, std::uint64_t>)
                if (value > static_cast<std::uint64_t>(largest)) return std::nullopt;
            return static_cast<std::int64_t>(value);
        } else {
            const double real = static_cast<double>(static_cast<Arithmetic<T>>(value));
            if (!(std::fabs(real) < 0x1p62) || std::floor(real) != real) return std::nullopt;
            return static_cast<std::int64_t>(real);
        }
    });
}

}  // namespace trireme
