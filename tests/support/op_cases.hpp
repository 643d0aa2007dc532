#pragma once
// One table of cases per operation, used by the comparison with the oracle, by the finite-difference
// gradients and by whoever times the operations. Sizes are awkward on purpose: 1, primes, just below and
// above vector lengths.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/ops/ops.hpp"

namespace trireme::testing {

struct MatmulCase {
    std::int64_t m, n, k;
};

inline std::vector<MatmulCase> matmul_cases() {
    return {{1, 1, 1},     {1, 7, 3},      {13, 1, 17}, {3, 13, 1}, {7, 17, 13}, {16, 32, 8},
            {33, 65, 129}, {300, 1030, 5}, {5, 3, 0},   {0, 3, 5},  {4, 0, 5}};
}

struct WindowCase {
    std::string name;
    Window window;
};

inline std::vector<WindowCase> conv_cases() {
    //                        n  c   h   w   out kh kw sh sw ph pw dh dw g
    return {{"1x1", Window{1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1}},
            {"image to features", Window{2, 1, 9, 7, 8, 3, 3, 1, 1, 1, 1, 1, 1, 1}},
            {"three channels, stride 2", Window{1, 3, 11, 13, 16, 7, 7, 2, 2, 3, 3, 1, 1, 1}},
            {"prime channels", Window{3, 7, 5, 6, 13, 3, 3, 1, 1, 1, 1, 1, 1, 1}},
            {"vector channels", Window{2, 32, 6, 6, 16, 3, 3, 1, 1, 1, 1, 1, 1, 1}},
            {"strided", Window{2, 16, 9, 9, 32, 3, 3, 2, 2, 1, 1, 1, 1, 1}},
            {"not square", Window{2, 5, 10, 4, 6, 3, 2, 2, 1, 1, 0, 1, 1, 1}},
            {"dilated", Window{1, 16, 9, 8, 16, 3, 3, 1, 1, 2, 2, 2, 2, 1}},
            {"dilated unevenly", Window{2, 3, 9, 11, 4, 2, 3, 1, 2, 1, 2, 3, 2, 1}},
            {"two groups", Window{2, 8, 5, 5, 12, 3, 3, 1, 1, 1, 1, 1, 1, 2}},
            {"three odd groups", Window{1, 9, 7, 6, 15, 3, 3, 2, 1, 1, 1, 1, 1, 3}},
            {"depthwise", Window{2, 17, 6, 5, 17, 3, 3, 1, 1, 1, 1, 1, 1, 17}},
            {"depthwise, 32", Window{2, 32, 6, 5, 32, 3, 3, 2, 2, 1, 1, 1, 1, 32}},
            {"depthwise with multiplier", Window{1, 7, 5, 5, 14, 3, 3, 1, 1, 1, 1, 1, 1, 7}},
            {"pointwise", Window{2, 13, 4, 5, 17, 1, 1, 1, 1, 0, 0, 1, 1, 1}},
            {"pointwise, strided", Window{2, 16, 5, 5, 32, 1, 1, 2, 2, 0, 0, 1, 1, 1}},
            {"whole image", Window{2, 4, 5, 5, 10, 5, 5, 1, 1, 0, 0, 1, 1, 1}},
            {"no samples", Window{0, 4, 5, 5, 3, 3, 3, 1, 1, 1, 1, 1, 1, 1}}};
}

inline std::vector<WindowCase> pool_cases() {
    return {{"2x2", Window{2, 3, 6, 8, 3, 2, 2, 2, 2}},
            {"2x2, a row left over", Window{1, 17, 7, 5, 17, 2, 2, 2, 2}},
            {"3x3 overlapping, padded", Window{2, 7, 7, 9, 7, 3, 3, 2, 2, 1, 1}},
            {"dilated", Window{1, 5, 9, 9, 5, 2, 3, 1, 2, 1, 1, 2, 3}},
            {"global", Window{3, 13, 4, 5, 13, 4, 5, 1, 1}},
            {"1x1", Window{2, 1, 3, 3, 1, 1, 1, 1, 1}},
            {"no samples", Window{0, 3, 4, 4, 3, 2, 2, 2, 2}}};
}

struct MatrixCase {
    std::int64_t rows, columns;
};

inline std::vector<MatrixCase> norm_cases() {
    return {{1, 1},   {1, 7},   {2, 3},    {3, 1},    {13, 17}, {64, 16},
            {37, 65}, {5, 513}, {300, 33}, {1000, 3}, {4099, 1}};
}

inline std::vector<MatrixCase> logits_cases() {
    return {{1, 2}, {3, 7}, {13, 17}, {5, 1000}, {130, 10}, {2, 1}};
}

inline std::vector<std::int64_t> flat_cases() {
    return {0, 1, 3, 7, 13, 17, 64, 4095, 4097, 40001};
}

/// Types of the operands of a verb: each 16-bit type throughout, then mixtures in which any two operands
/// differ somewhere.
inline std::vector<std::array<DType, 4>> type_cases() {
    using enum DType;
    return {{bf16, bf16, bf16, bf16}, {f16, f16, f16, f16}, {f32, bf16, f16, bf16}, {bf16, f16, f32, f32},
            {f16, f32, bf16, f16},    {f32, f32, f32, f16}, {bf16, bf16, bf16, f32}};
}

inline std::string text(const std::array<DType, 4>& types) {
    std::string result;
    for (const DType type : types) result += std::string(name_of(type)) + " ";
    return result;
}

inline std::vector<Activation> activation_cases() {
    return {Activation::none, Activation::relu, Activation::gelu,   Activation::gelu_tanh,
            Activation::silu, Activation::tanh, Activation::sigmoid};
}

/// What a matmul or a convolution may apply to its result.
inline std::vector<Activation> epilogue_cases() {
    return {Activation::none, Activation::relu, Activation::tanh, Activation::sigmoid};
}

inline Shape input_shape(const Window& w) {
    return {w.n, w.c, w.h, w.w};
}
inline Shape output_shape(const Window& w) {
    return {w.n, w.out, w.out_h(), w.out_w()};
}
inline Shape kernel_shape(const Window& w) {
    return {w.out, w.c / w.groups, w.kernel_h, w.kernel_w};
}

}  // namespace trireme::testing
