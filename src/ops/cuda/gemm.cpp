#include "ops/cuda/gemm.hpp"

#include <cstddef>
#include <string>

#include "trireme/base/error.hpp"

namespace trireme::cuda {
namespace {

constexpr std::size_t most_workspace = std::size_t{32} << 20;

void check(cublasStatus_t status, const std::string& call) {
    if (status != CUBLAS_STATUS_SUCCESS)
        throw failure("cuda: " + call + ": " + cublasLtGetStatusString(status));
}

cudaDataType type_of(DType type) {
    return type == DType::f32 ? CUDA_R_32F : type == DType::bf16 ? CUDA_R_16BF : CUDA_R_16F;
}

std::uint32_t alignment(const void* data) {
    constexpr std::uintptr_t most = 256;
    const auto address = reinterpret_cast<std::uintptr_t>(data) | most;
    return static_cast<std::uint32_t>(address & (~address + 1));
}

template <class T>
void set(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t what, T value) {
    check(cublasLtMatmulDescSetAttribute(product, what, &value, sizeof value), "description of a product");
}

template <class T>
void set(cublasLtMatrixLayout_t matrix, cublasLtMatrixLayoutAttribute_t what, T value) {
    check(cublasLtMatrixLayoutSetAttribute(matrix, what, &value, sizeof value), "layout of a matrix");
}

template <class T>
void set(cublasLtMatmulPreference_t wish, cublasLtMatmulPreferenceAttributes_t what, T value) {
    check(cublasLtMatmulPreferenceSetAttribute(wish, what, &value, sizeof value), "choice of an algorithm");
}

/// A matrix that lies row by row is its transpose column by column.
cublasLtMatrixLayout_t layout(DType type, std::int64_t rows, std::int64_t columns, std::int64_t pitch,
                              std::int64_t batches, std::int64_t stride) {
    cublasLtMatrixLayout_t result = nullptr;
    check(cublasLtMatrixLayoutCreate(&result, type_of(type), static_cast<std::uint64_t>(columns),
                                     static_cast<std::uint64_t>(rows), pitch),
          "layout of a matrix");
    set(result, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(batches));
    set(result, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
    return result;
}

std::string text(const GemmShape& s) {
    return "product of " + std::to_string(s.m) + "x" + std::to_string(s.k) + " by " + std::to_string(s.k) +
           "x" + std::to_string(s.n) + ", " + std::string(name_of(s.operands)) + " into " +
           std::string(name_of(s.result));
}

}  // namespace

std::size_t Gemm::KeyHash::operator()(const Key& key) const {
    const GemmShape& s = key.shape;
    std::size_t hash = 0;
    for (const std::int64_t word :
         {s.m, s.n, s.k, s.lda, s.ldb, s.ldc, s.batches,
          std::int64_t{s.transpose_a} | std::int64_t{s.transpose_b} << 1 | std::int64_t{s.accumulate} << 2 |
              std::int64_t{s.bias} << 3 | static_cast<std::int64_t>(s.operands) << 4 |
              static_cast<std::int64_t>(s.result) << 12 | static_cast<std::int64_t>(key.align_a) << 20 |
              static_cast<std::int64_t>(key.align_b) << 30 | static_cast<std::int64_t>(key.align_c) << 40})
        hash = (hash ^ static_cast<std::size_t>(word)) * 0x9E3779B97F4A7C15ULL;
    return hash ^ hash >> 32;
}

Gemm::Gemm(CudaDevice& device) : device_(device), workspace_(device) {
    device_.stream();  // the library takes the thread's device
    check(cublasLtCreate(&library_), "cublasLtCreate");
}

Gemm::~Gemm() {
    for (const auto& [key, plan] : plans_) {
        cublasLtMatmulDescDestroy(plan.product);
        for (cublasLtMatrixLayout_t matrix : {plan.a, plan.b, plan.c}) cublasLtMatrixLayoutDestroy(matrix);
    }
    cublasLtDestroy(library_);
}

Gemm::Plan& Gemm::plan(const Key& key, const float* bias) {
    const auto found = plans_.find(key);
    if (found != plans_.end()) return found->second;
    const GemmShape& s = key.shape;
    Plan& plan = plans_[key];
    check(cublasLtMatmulDescCreate(&plan.product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
          "description of a product");
    set(plan.product, CUBLASLT_MATMUL_DESC_TRANSA, s.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(plan.product, CUBLASLT_MATMUL_DESC_TRANSB, s.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (s.bias) {
        set(plan.product, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
        set(plan.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
        set(plan.product, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, s.stride_bias);
    }
    plan.a = layout(s.operands, s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k, s.lda, s.batches,
                    s.stride_a);
    plan.b = layout(s.operands, s.transpose_b ? s.n : s.k, s.transpose_b ? s.k : s.n, s.ldb, s.batches,
                    s.stride_b);
    plan.c = layout(s.result, s.m, s.n, s.ldc, s.batches, s.stride_c);

    cublasLtMatmulPreference_t wish = nullptr;
    check(cublasLtMatmulPreferenceCreate(&wish), "choice of an algorithm");
    set(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{most_workspace});
    set(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.align_b);
    set(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.align_a);
    set(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.align_c);
    set(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.align_c);
    cublasLtMatmulHeuristicResult_t best{};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(library_, plan.product, plan.b, plan.a,
                                                                 plan.c, plan.c, wish, 1, &best, &count);
    cublasLtMatmulPreferenceDestroy(wish);
    check(status, text(s));
    if (count == 0) throw failure("cuda: cuBLASLt has no algorithm for a " + text(s));
    plan.algorithm = best.algo;
    plan.workspace = best.workspaceSize;
    return plan;
}

void Gemm::run(const GemmShape& shape, const void* a, const void* b, void* c, const float* bias) {
    const cudaStream_t stream = device_.stream();
    Plan& found = plan({shape, alignment(a), alignment(b), alignment(c)}, bias);
    if (shape.bias) set(found.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    void* workspace = found.workspace > 0 ? workspace_.reserve(found.workspace) : nullptr;
    const float one = 1, beta = shape.accumulate ? 1 : 0;
    check(cublasLtMatmul(library_, found.product, &one, b, found.b, a, found.a, &beta, c, found.c, c, found.c,
                         &found.algorithm, workspace, found.workspace, stream),
          text(shape));
}

}  // namespace trireme::cuda
