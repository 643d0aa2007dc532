// What every verb checks before it touches memory: element types and counts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/base/error.hpp"
#include "trireme/tensor/view.hpp"

namespace trireme::cuda {

inline Error refusal(std::string_view verb, const std::string& why) {
    return failure("cuda " + std::string(verb) + ": " + why);
}

/// Elements of a real type, checked: what a kernel takes.
struct Real {
    void* data = nullptr;
    DType type = DType::f32;

    explicit operator bool() const { return data != nullptr; }
    void* at(std::int64_t i) const {
        return static_cast<char*>(data) + static_cast<std::size_t>(i) * size_of(type);
    }
};

inline void require_count(const View& view, std::int64_t count, std::string_view verb) {
    if (view.count() != count || (!view && count > 0))
        throw refusal(verb, "a tensor of " + view.shape.text() + " where " + std::to_string(count) +
                                " elements are expected");
}

/// @throws Error when the view does not hold `count` elements of float32, bfloat16 or float16.
inline Real real(const View& view, std::int64_t count, std::string_view verb) {
    require_count(view, count, verb);
    if (view.dtype != DType::f32 && view.dtype != DType::bf16 && view.dtype != DType::f16)
        throw refusal(verb, std::string(name_of(view.dtype)) +
                                " is not supported, expected float32, bfloat16 or float16");
    return {view.data, view.dtype};
}

/// As above, but an absent view is allowed.
inline Real optional_real(const View& view, std::int64_t count, std::string_view verb) {
    return view ? real(view, count, verb) : Real{};
}

/// @throws Error when the view does not hold `count` float32.
inline float* floats(const View& view, std::int64_t count, std::string_view verb) {
    require_count(view, count, verb);
    if (view && view.dtype != DType::f32)
        throw refusal(verb, std::string(name_of(view.dtype)) + " is not supported, expected float32");
    return static_cast<float*>(view.data);
}

/// As above, but an absent view is allowed and gives null.
inline float* optional_floats(const View& view, std::int64_t count, std::string_view verb) {
    return view ? floats(view, count, verb) : nullptr;
}

/// Labels and indices.
inline std::int32_t* integers(const View& view, std::int64_t count, std::string_view verb) {
    if (view.count() != count || (!view && count > 0) || view.dtype != DType::i32)
        throw refusal(verb, std::string(name_of(view.dtype)) + " " + view.shape.text() + " where " +
                                std::to_string(count) + " int32 are expected");
    return static_cast<std::int32_t*>(view.data);
}

/// @throws Error when two operands do not have one type, or a result has neither that nor float32.
inline void require_product_types(std::string_view verb, DType a, DType b, DType result) {
    if (a == b && (result == a || result == DType::f32)) return;
    throw refusal(verb, std::string(name_of(a)) + " by " + std::string(name_of(b)) + " into " +
                            std::string(name_of(result)) +
                            ", expected operands of one type and a result of that or float32");
}

}  // namespace trireme::cuda
