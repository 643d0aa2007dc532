// What every verb checks before it touches memory: element types and counts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/base/error.hpp"
#include "trireme/tensor/view.hpp"

namespace trireme::cpu {

/// The elements of a view that this backend computes on; null where the view is absent.
/// @throws Error when they are not float32.
inline float* floats(const View& view, std::string_view verb) {
    if (view && view.dtype != DType::f32)
        throw failure("cpu " + std::string(verb) + ": " + std::string(name_of(view.dtype)) +
                      " is not supported, expected float32");
    return static_cast<float*>(view.data);
}

/// As floats, and @throws Error when the view does not hold `count` elements.
inline float* floats(const View& view, std::int64_t count, std::string_view verb) {
    if (view.count() != count || (!view && count > 0))
        throw failure("cpu " + std::string(verb) + ": a tensor of " + view.shape.text() + " where " +
                      std::to_string(count) + " elements are expected");
    return floats(view, verb);
}

/// As above, but an absent view is allowed and gives null.
inline float* optional_floats(const View& view, std::int64_t count, std::string_view verb) {
    return view ? floats(view, count, verb) : nullptr;
}

/// Labels and indices.
inline std::int32_t* integers(const View& view, std::int64_t count, std::string_view verb) {
    if (view.count() != count || (!view && count > 0) || view.dtype != DType::i32)
        throw failure("cpu " + std::string(verb) + ": " + std::string(name_of(view.dtype)) + " " +
                      view.shape.text() + " where " + std::to_string(count) + " int32 are expected");
    return static_cast<std::int32_t*>(view.data);
}

}  // namespace trireme::cpu
