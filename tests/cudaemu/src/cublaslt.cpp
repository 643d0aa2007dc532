// cuBLASLt's calls.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "call.hpp"
#include "matmul.hpp"
#include "stream.hpp"

struct cublasLtContext {
    int device = 0;
};

namespace trireme::cudaemu {
namespace {

constexpr std::uint64_t workspace_unit = 64 << 10, most_units = 5;

// What the algorithm for a product of this shape asks for: as with the real library, a smaller product may
// want more than a larger one.
std::uint64_t workspace_for(std::uint64_t rows, std::uint64_t cols) {
    return workspace_unit * (1 + (3 * rows + cols) % most_units);
}

// A word on stderr, since the status alone does not say what was wrong.
cublasStatus_t refuse(cublasStatus_t status, const char* why) {
    std::fprintf(stderr, "cudaemu: cublasLtMatmul: %s\n", why);
    return status;
}

template <class T>
cublasStatus_t assign(T& to, const void* from, std::size_t n) {
    if (n != sizeof to || from == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&to, from, n);
    return CUBLAS_STATUS_SUCCESS;
}

Matrix matrix(const void* p, cublasLtMatrixLayout_t layout) {
    const auto& l = inside<Layout>(layout);
    return {const_cast<void*>(p),
            l.type,
            static_cast<std::int64_t>(l.rows),
            static_cast<std::int64_t>(l.cols),
            l.ld,
            l.stride,
            l.order == CUBLASLT_ORDER_ROW};
}

// An algorithm as the heuristic hands them out, or what would be chosen for a call without one.
Algorithm algorithm(const cublasLtMatmulAlgo_t* given, std::size_t workspace) {
    if (given != nullptr) return inside<Algorithm>(given);
    return {algorithm_magic, std::min<std::uint64_t>(workspace, workspace_unit), {}};
}

void scribble(void* workspace, std::size_t n) {
    if (n == 0) return;
    san::writes(workspace, n);
    std::memset(workspace, 0xff, n);
}

cublasStatus_t matmul(cublasLtHandle_t handle, const Product& p, bool one_batch_count,
                      const cublasLtMatmulAlgo_t* given, void* workspace, std::size_t bytes,
                      cudaStream_t stream) {
    const int device = handle->device;
    const Algorithm algo = algorithm(given, bytes);
    if (algo.magic != algorithm_magic) {
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "the algorithm does not come from the heuristic");
    }
    if (!one_batch_count)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "the matrices differ in their batch counts");
    if (const char* wrong = fault(p, device, algo.alignment); wrong != nullptr) {
        return refuse(CUBLAS_STATUS_INVALID_VALUE, wrong);
    }
    if (algo.workspace > bytes) return refuse(CUBLAS_STATUS_INVALID_VALUE, "the workspace is too small");
    if (bytes != 0 &&
        (device_of(workspace, bytes) != device || reinterpret_cast<std::uintptr_t>(workspace) % 256 != 0)) {
        return refuse(CUBLAS_STATUS_INVALID_VALUE,
                      "the workspace is not in the device's memory, aligned to 256");
    }
    if (stream != nullptr && stream->device != device) {
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "the stream is another device's than the handle");
    }
    const auto describe = [m = p.d.rows, n = p.d.cols] {
        return "a matrix product of " + std::to_string(m) + " x " + std::to_string(n);
    };
    const auto go = [p, device, workspace, n = algo.workspace] {
        // A recorded product is done again and again, and nobody looks at its arguments any more.
        if (n != 0 && device_of(workspace, n) != device) {
            std::fputs("cudaemu: cublasLtMatmul: the workspace was freed before the product was done\n",
                       stderr);
            std::abort();
        }
        scribble(workspace, n);
        for (std::int64_t i = 0; i < p.batches; ++i) run(p, i);
        scribble(workspace, n);
    };
    const cudaError_t e = submit(stream, work(NodeKind::kernel, device, describe, go));
    return note(e) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace
}  // namespace trireme::cudaemu

using namespace trireme::cudaemu;

extern "C" {

std::size_t cublasLtGetVersion() {
    return CUBLAS_VERSION;
}

const char* cublasLtGetStatusName(cublasStatus_t status) {
    switch (status) {
        case CUBLAS_STATUS_SUCCESS:
            return "CUBLAS_STATUS_SUCCESS";
        case CUBLAS_STATUS_NOT_INITIALIZED:
            return "CUBLAS_STATUS_NOT_INITIALIZED";
        case CUBLAS_STATUS_ALLOC_FAILED:
            return "CUBLAS_STATUS_ALLOC_FAILED";
        case CUBLAS_STATUS_INVALID_VALUE:
            return "CUBLAS_STATUS_INVALID_VALUE";
        case CUBLAS_STATUS_EXECUTION_FAILED:
            return "CUBLAS_STATUS_EXECUTION_FAILED";
        case CUBLAS_STATUS_NOT_SUPPORTED:
            return "CUBLAS_STATUS_NOT_SUPPORTED";
        default:
            return "an unknown status of cuBLAS";
    }
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
    return cublasLtGetStatusName(status);
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    const Lock lock;
    const san::Aside aside;
    if (obstacle() != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = new cublasLtContext{current_device()};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t d, std::size_t,
                                               cublasComputeType_t compute, cudaDataType_t scale_type) {
    *d = {};
    inside<Description>(d) = {
        compute, scale_type, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr, -1, 0,
        nullptr, 0,          0,           -1,          CUBLASLT_POINTER_MODE_HOST};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* d, cublasComputeType_t compute,
                                        cudaDataType_t scale_type) {
    *d = new cublasLtMatmulDescOpaque_t{};
    return cublasLtMatmulDescInit_internal(*d, sizeof **d, compute, scale_type);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
    delete d;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t what,
                                              const void* from, std::size_t n) {
    auto& x = inside<Description>(d);
    switch (what) {
        case CUBLASLT_MATMUL_DESC_TRANSA:
            return assign(x.a, from, n);
        case CUBLASLT_MATMUL_DESC_TRANSB:
            return assign(x.b, from, n);
        case CUBLASLT_MATMUL_DESC_POINTER_MODE:
            return assign(x.pointer_mode, from, n);
        case CUBLASLT_MATMUL_DESC_EPILOGUE:
            return assign(x.epilogue, from, n);
        case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
            return assign(x.bias, from, n);
        case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
            return assign(x.bias_stride, from, n);
        case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
            return assign(x.bias_type, from, n);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
            return assign(x.aux, from, n);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
            return assign(x.aux_ld, from, n);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
            return assign(x.aux_stride, from, n);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
            return assign(x.aux_type, from, n);
        default:
            return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t l, std::size_t, cudaDataType type,
                                                 std::uint64_t rows, std::uint64_t cols, std::int64_t ld) {
    *l = {};
    inside<Layout>(l) = {type, CUBLASLT_ORDER_COL, rows, cols, ld, 0, 1};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* l, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t cols, std::int64_t ld) {
    *l = new cublasLtMatrixLayoutOpaque_t{};
    return cublasLtMatrixLayoutInit_internal(*l, sizeof **l, type, rows, cols, ld);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
    delete l;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t what, const void* from,
                                                std::size_t n) {
    auto& x = inside<Layout>(l);
    switch (what) {
        case CUBLASLT_MATRIX_LAYOUT_TYPE:
            return assign(x.type, from, n);
        case CUBLASLT_MATRIX_LAYOUT_ORDER: {
            cublasLtOrder_t order{};
            const auto status = assign(order, from, n);
            if (order != CUBLASLT_ORDER_COL && order != CUBLASLT_ORDER_ROW)
                return CUBLAS_STATUS_NOT_SUPPORTED;
            x.order = order;
            return status;
        }
        case CUBLASLT_MATRIX_LAYOUT_ROWS:
            return assign(x.rows, from, n);
        case CUBLASLT_MATRIX_LAYOUT_COLS:
            return assign(x.cols, from, n);
        case CUBLASLT_MATRIX_LAYOUT_LD:
            return assign(x.ld, from, n);
        case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
            return assign(x.batches, from, n);
        case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
            return assign(x.stride, from, n);
        default:
            return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t p, std::size_t) {
    *p = {};
    inside<Preference>(p) = {0, {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) {
    *p = new cublasLtMatmulPreferenceOpaque_t{};
    return cublasLtMatmulPreferenceInit_internal(*p, sizeof **p);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
    delete p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void* from, std::size_t n) {
    auto& x = inside<Preference>(p);
    switch (what) {
        case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
            return assign(x.workspace, from, n);
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
            return assign(x.alignment[0], from, n);
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
            return assign(x.alignment[1], from, n);
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
            return assign(x.alignment[2], from, n);
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
            return assign(x.alignment[3], from, n);
        case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
        case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
            return CUBLAS_STATUS_SUCCESS;
        default:
            return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

// The algorithm remembers what it was chosen for: workspace and alignment, which the product then needs.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t ld,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
    *found = 0;
    if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
    const Preference wish = preference != nullptr ? inside<Preference>(preference) : Preference{};
    results[0] = {};
    const Matrix result = matrix(nullptr, ld);
    const auto workspace = std::min(wish.workspace, workspace_for(static_cast<std::uint64_t>(result.rows),
                                                                  static_cast<std::uint64_t>(result.cols)));
    inside<Algorithm>(&results[0].algo) = {algorithm_magic, workspace, wish.alignment};
    results[0].workspaceSize = workspace;
    results[0].state = CUBLAS_STATUS_SUCCESS;
    results[0].wavesCount = 1;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t la, const void* b,
                              cublasLtMatrixLayout_t lb, const void* beta, const void* c,
                              cublasLtMatrixLayout_t lc, void* d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t* algo, void* workspace, std::size_t bytes,
                              cudaStream_t stream) {
    const Lock lock;
    const san::Aside aside;
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (obstacle() != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
    const auto batches = [](cublasLtMatrixLayout_t l) { return inside<Layout>(l).batches; };
    const Product p{inside<Description>(desc),
                    matrix(a, la),
                    matrix(b, lb),
                    matrix(c, lc),
                    matrix(d, ld),
                    batches(ld),
                    *static_cast<const float*>(alpha),
                    *static_cast<const float*>(beta)};
    const bool one_count = batches(la) == p.batches && batches(lb) == p.batches && batches(lc) == p.batches;
    return matmul(handle, p, one_count, algo, workspace, bytes, stream);
}

}  // extern "C"
