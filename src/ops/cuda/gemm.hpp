// Matrix products through cuBLASLt. Matrices are row by row here; the library's are column by column, so that
// it is asked for C transposed = op(B) transposed · op(A) transposed, with the operands as they lie.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <unordered_map>

#include "ops/cuda/scratch.hpp"
#include "tensor/cuda/device.hpp"
#include "trireme/tensor/dtype.hpp"

namespace trireme::cuda {

/// What a product is planned for. [m, k]·[k, n]; `lda` and so on: elements from one row to the next.
struct GemmShape {
    std::int64_t m = 0, n = 0, k = 0;
    std::int64_t lda = 0, ldb = 0, ldc = 0;
    bool transpose_a = false, transpose_b = false;
    bool accumulate = false;
    bool bias = false;  ///< one float32 for each column of C; only where C is float32
    DType operands = DType::f32, result = DType::f32;
    std::int64_t batches = 1;
    std::int64_t stride_a = 0, stride_b = 0, stride_c = 0, stride_bias = 0;
    friend bool operator==(const GemmShape&, const GemmShape&) = default;
};

class Gemm {
public:
    explicit Gemm(CudaDevice& device);
    ~Gemm();
    Gemm(const Gemm&) = delete;
    Gemm& operator=(const Gemm&) = delete;

    /// None of the extents is 0. @throws Error naming the product that the library has nothing for.
    void run(const GemmShape& shape, const void* a, const void* b, void* c, const float* bias = nullptr);

private:
    /// Powers of two that the operands' addresses are multiples of.
    struct Key {
        GemmShape shape;
        std::uint32_t align_a = 0, align_b = 0, align_c = 0;
        friend bool operator==(const Key&, const Key&) = default;
    };
    struct KeyHash {
        std::size_t operator()(const Key& key) const;
    };
    struct Plan {
        cublasLtMatmulDesc_t product = nullptr;
        cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
        cublasLtMatmulAlgo_t algorithm{};
        std::size_t workspace = 0;
    };

    Plan& plan(const Key& key, const float* bias);

    CudaDevice& device_;
    cublasLtHandle_t library_ = nullptr;
    std::unordered_map<Key, Plan, KeyHash> plans_;
    Scratch workspace_;
};

}  // namespace trireme::cuda
