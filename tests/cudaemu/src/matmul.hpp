// cuBLASLt's descriptions, which live in the opaque words that it lets the caller hold.
#pragma once

#include <cublasLt.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "matrix.hpp"

namespace trireme::cudaemu {

struct Layout {
    cudaDataType type;
    cublasLtOrder_t order;
    std::uint64_t rows, cols;
    std::int64_t ld, stride;
    std::int32_t batches;
};

struct Description {
    cublasComputeType_t compute;
    cudaDataType scale_type;
    cublasOperation_t a, b;
    cublasLtEpilogue_t epilogue;
    void* bias;
    std::int32_t bias_type;  // -1: that of the result
    std::int64_t bias_stride;
    void* aux;
    std::int64_t aux_ld, aux_stride;
    std::int32_t aux_type;  // -1: that of the result
    std::int32_t pointer_mode;
};

// Bytes to which A, B, C and D must be aligned.
using Alignments = std::array<std::uint32_t, 4>;

struct Preference {
    std::uint64_t workspace;
    Alignments alignment;
};

struct Algorithm {
    std::uint64_t magic, workspace;
    Alignments alignment;
};
inline constexpr std::uint64_t algorithm_magic = 0x7472697265;

template <class Inner, class Outer>
Inner& inside(Outer* outer) {
    static_assert(sizeof(Inner) <= sizeof(Outer) && std::is_trivially_copyable_v<Inner>);
    return *reinterpret_cast<Inner*>(outer);
}

template <class Inner, class Outer>
const Inner& inside(const Outer* outer) {
    return inside<Inner>(const_cast<Outer*>(outer));
}

// A product whose operands have passed all checks: d = epilogue(alpha a b + beta c).
struct Product {
    Description how;
    Matrix a, b, c, d;
    std::int32_t batches;
    float alpha, beta;
};

void run(const Product&, std::int64_t batch);

// What is wrong with it, or null.
const char* fault(const Product&, int device, const Alignments&);

}  // namespace trireme::cudaemu
