// Whole tensors of any real type as float32, for verbs whose library call takes nothing else: float32 is used
// where it lies, 16-bit types are converted to scratch before the call or from it afterwards.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "ops/cpu/reals.hpp"
#include "ops/cpu/scratch.hpp"

namespace trireme::cpu {

class Wide {
public:
    /// @throws Error as Reals does. Has its place once place() has been called.
    Wide(const View& view, std::int64_t count, std::string_view verb)
        : own_(view, count, verb), count_(count) {}
    /// Elements [first, first + count).
    Wide(const Reals& whole, std::int64_t first, std::int64_t count)
        : own_(whole), first_(first), count_(count) {}

    DType type() const { return own_.type(); }
    void* own() const { return own_.at(first_); }
    float* floats() const { return floats_; }

    /// Brings the elements to floats().
    void load(int threads) const;
    /// Brings floats() to the elements, rounded once.
    void store(int threads) const;

    /// Gives the tensors of one call their places, all of them different.
    static void place(Scratch& scratch, std::initializer_list<Wide*> tensors);

private:
    Reals own_;
    std::int64_t first_ = 0, count_ = 0;
    float* floats_ = nullptr;
};

/// @throws Error when two operands do not have one type, or a result has neither that nor float32.
void require_product_types(std::string_view verb, DType a, DType b, DType result);

}  // namespace trireme::cpu
