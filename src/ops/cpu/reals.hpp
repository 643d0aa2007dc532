// Elements of any real type as the float32 that our loops compute in: float32 is used where it lies, 16-bit
// types are converted stretch by stretch through a buffer on the stack, which stays in first-level cache.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/base/error.hpp"
#include "trireme/tensor/view.hpp"

namespace trireme::cpu {

/// n elements of a real type to float32.
void widen(DType type, const void* from, float* to, std::int64_t n);
/// n float32 to a real type: to nearest, ties to even; float16 overflows to inf; NaN stays NaN.
void narrow(DType type, const float* from, void* to, std::int64_t n);

/// Elements that are converted at once.
constexpr std::int64_t stretch = 1024;
using Stretch = float[stretch];

class Reals {
public:
    Reals() = default;
    /// @throws Error when the view does not hold `count` elements of float32, bfloat16 or float16.
    Reals(const View& view, std::int64_t count, std::string_view verb)
        : data_(static_cast<char*>(view.data)), type_(view.dtype) {
        if (view.count() != count || (!view && count > 0))
            throw failure("cpu " + std::string(verb) + ": a tensor of " + view.shape.text() + " where " +
                          std::to_string(count) + " elements are expected");
        if (type_ != DType::f32 && type_ != DType::bf16 && type_ != DType::f16)
            throw failure("cpu " + std::string(verb) + ": " + std::string(name_of(type_)) +
                          " is not supported, expected float32, bfloat16 or float16");
    }

    explicit operator bool() const { return data_ != nullptr; }
    DType type() const { return type_; }
    bool is_float() const { return type_ == DType::f32; }
    void* at(std::int64_t element) const {
        return data_ + static_cast<std::size_t>(element) * size_of(type_);
    }

    /// Elements [at, at + n) as floats: themselves, or in `buffer`.
    const float* load(std::int64_t first, std::int64_t n, float* buffer) const {
        if (is_float()) return static_cast<const float*>(at(first));
        widen(type_, at(first), buffer, n);
        return buffer;
    }
    /// Where results for the elements from `first` are put before store(): where they belong, or `buffer`.
    float* place(std::int64_t first, float* buffer) const {
        return is_float() ? static_cast<float*>(at(first)) : buffer;
    }
    /// Brings what was put into place(first, buffer) to where it belongs.
    void store(std::int64_t first, std::int64_t n, const float* buffer) const {
        if (!is_float()) narrow(type_, buffer, at(first), n);
    }

private:
    char* data_ = nullptr;
    DType type_ = DType::f32;
};

/// As Reals, but an absent view is allowed.
inline Reals optional_reals(const View& view, std::int64_t count, std::string_view verb) {
    return view ? Reals(view, count, verb) : Reals();
}

}  // namespace trireme::cpu
