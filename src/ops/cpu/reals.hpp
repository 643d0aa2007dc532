// Elements of any real type as the float32 that our loops compute in: float32 is used where it lies, 16-bit
// types are converted stretch by stretch through a buffer on the stack, which stays in first-level cache, or
// as a whole through one of the thread's own where a loop goes over the same elements several times.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "ops/cpu/scratch.hpp"
#include "trireme/base/error.hpp"
#include "trireme/tensor/view.hpp"

namespace trireme::cpu {

/// n elements of a real type to float32.
void widen(DType type, const void* from, float* to, std::int64_t n);
/// n float32 to a real type: to nearest, ties to even; float16 overflows to inf; NaN stays NaN.
void narrow(DType type, const float* from, void* to, std::int64_t n);

/// Elements that are converted at once: few, so that the next ones are fetched from memory meanwhile.
constexpr std::int64_t stretch = 256;
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

    /// How many floats of buffer n elements ask for.
    std::int64_t buffer_size(std::int64_t n) const { return is_float() ? 0 : n; }

    /// Elements [first, first + n) as floats: themselves, or in `buffer`.
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
    void set_zero(std::int64_t first, std::int64_t n) const {
        std::memset(at(first), 0, static_cast<std::size_t>(n) * size_of(type_));
    }

private:
    char* data_ = nullptr;
    DType type_ = DType::f32;
};

/// As Reals, but an absent view is allowed.
inline Reals optional_reals(const View& view, std::int64_t count, std::string_view verb) {
    return view ? Reals(view, count, verb) : Reals();
}

/// True where some of the operands have to be converted.
template <class... Operands>
bool any_converted(const Operands&... operands) {
    return (!operands.is_float() || ...);
}

/// body(first, n) for pieces of [begin, end): all at once, or what a Stretch holds where there is conversion.
template <class Body>
void for_stretches(bool converted, std::int64_t begin, std::int64_t end, const Body& body) {
    const std::int64_t most = converted ? stretch : end - begin;
    for (std::int64_t at = begin; at < end; at += most) body(at, std::min(most, end - at));
}

/// A buffer of `count` floats for each thread of a loop, for what has to be converted as a whole.
class ThreadBuffers {
public:
    ThreadBuffers(Scratch& scratch, int threads, std::int64_t count)
        : count_((count + line - 1) / line * line),
          memory_(scratch.reserve_of<float>(static_cast<std::size_t>(threads * count_))) {}
    /// The calling thread's.
    float* mine() const { return memory_ + omp_get_thread_num() * count_; }

private:
    static constexpr std::int64_t line = 16;  // threads share no cache line
    std::int64_t count_;
    float* memory_;
};

}  // namespace trireme::cpu
