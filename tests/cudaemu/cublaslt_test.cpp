// Matrix products against plain loops in double.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <functional>
#include <optional>

#include "samples/buffers.hpp"
#include "support/catch.hpp"

using namespace trireme::sample;
using trireme::testing::Approx;

namespace {

template <class T>
constexpr cudaDataType type_of = CUDA_R_32F;
template <>
constexpr cudaDataType type_of<__nv_bfloat16> = CUDA_R_16BF;
template <>
constexpr cudaDataType type_of<__half> = CUDA_R_16F;

constexpr int m = 13, n = 9, k = 17;

class Layout {
public:
    Layout(cudaDataType type, int rows, int cols, bool by_rows, int batches, int pad = 0) {
        cublasLtMatrixLayoutCreate(&layout_, type, static_cast<std::uint64_t>(rows),
                                   static_cast<std::uint64_t>(cols), (by_rows ? cols : rows) + pad);
        const cublasLtOrder_t order = by_rows ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
        const std::int64_t stride = std::int64_t{(by_rows ? cols : rows) + pad} * (by_rows ? rows : cols);
        cublasLtMatrixLayoutSetAttribute(layout_, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof order);
        cublasLtMatrixLayoutSetAttribute(layout_, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches,
                                         sizeof batches);
        cublasLtMatrixLayoutSetAttribute(layout_, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                         sizeof stride);
    }
    ~Layout() { cublasLtMatrixLayoutDestroy(layout_); }
    Layout(const Layout&) = delete;
    Layout& operator=(const Layout&) = delete;
    operator cublasLtMatrixLayout_t() const { return layout_; }

private:
    cublasLtMatrixLayout_t layout_ = nullptr;
};

struct Setting {
    bool ta = false, tb = false, by_rows = false;
    int batches = 1;
    float alpha = 1, beta = 0;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
};

// d = epilogue(alpha a b + beta c) through the library, and what it should be. Everything by batch, row,
// column.
template <class In, class Out>
struct Case {
    Setting how;
    std::vector<float> a, b, c;
    std::vector<float> bias, aux;
    std::vector<Out> d, bias_out, aux_out;

    static std::vector<float> rounded(const std::vector<float>& v) {
        std::vector<float> r;
        for (const float x : v) r.push_back(static_cast<float>(In(x)));
        return r;
    }

    explicit Case(Setting how_) : how(how_) {
        const auto batches = static_cast<std::size_t>(how.batches);
        a = rounded(normals(batches * m * k, 1));
        b = rounded(normals(batches * k * n, 2));
        c = rounded(normals(batches * m * n, 3));
        bias = rounded(normals(16, 4));
        aux = rounded(normals(16 * n, 5));
    }

    double product(int batch, int i, int j) const {
        double sum = 0;
        for (int q = 0; q < k; ++q) {
            sum += double(a[static_cast<std::size_t>((batch * m + i) * k + q)]) *
                   b[static_cast<std::size_t>((batch * k + q) * n + j)];
        }
        return how.alpha * sum + how.beta * c[static_cast<std::size_t>((batch * m + i) * n + j)];
    }

    // Memory of a matrix given by rows, as the layout has it.
    template <class T>
    std::vector<T> stored(const std::vector<float>& v, int rows, int cols, bool transposed) const {
        std::vector<T> r(v.size());
        for (std::size_t i = 0; i < v.size(); ++i) {
            const auto at = static_cast<int>(i), batch = at / (rows * cols), row = at / cols % rows,
                       col = at % cols;
            const bool across = transposed != how.by_rows;  // rows of the stored matrix lie one after another
            const int to = across ? row * cols + col : col * rows + row;
            r[static_cast<std::size_t>(batch * rows * cols + to)] = T(v[i]);
        }
        return r;
    }

    double result(int batch, int i, int j) const {
        const int at = how.by_rows ? i * n + j : j * m + i;
        return static_cast<float>(d[static_cast<std::size_t>(batch * m * n + at)]);
    }

    cublasStatus_t run() {
        const Stream s;
        const Buffer<In> da(stored<In>(a, m, k, how.ta)), db(stored<In>(b, k, n, how.tb));
        const Buffer<Out> dc(stored<Out>(c, m, n, false)), dd(dc.size());
        const Buffer<Out> dbias(narrowed<Out>(bias)), daux(narrowed<Out>(aux));
        cublasLtHandle_t handle = nullptr;
        cublasLtMatmulDesc_t desc = nullptr;
        cublasLtCreate(&handle);
        cublasLtMatmulDescCreate(&desc, how.compute, CUDA_R_32F);
        const auto set = [&](cublasLtMatmulDescAttributes_t what, auto value) {
            CHECK(cublasLtMatmulDescSetAttribute(desc, what, &value, sizeof value) == CUBLAS_STATUS_SUCCESS);
        };
        set(CUBLASLT_MATMUL_DESC_TRANSA, how.ta ? CUBLAS_OP_T : CUBLAS_OP_N);
        set(CUBLASLT_MATMUL_DESC_TRANSB, how.tb ? CUBLAS_OP_T : CUBLAS_OP_N);
        set(CUBLASLT_MATMUL_DESC_EPILOGUE, how.epilogue);
        if (how.epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
            set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, dbias.data());
            set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of<Out>);
            set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, daux.data());
            set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{16});
        }
        const int q = how.batches;
        const Layout la(type_of<In>, how.ta ? k : m, how.ta ? m : k, how.by_rows, q);
        const Layout lb(type_of<In>, how.tb ? n : k, how.tb ? k : n, how.by_rows, q);
        const Layout ld(type_of<Out>, m, n, how.by_rows, q);
        const cublasStatus_t status = cublasLtMatmul(handle, desc, &how.alpha, da, la, db, lb, &how.beta, dc,
                                                     ld, dd, ld, nullptr, nullptr, 0, s);
        s.wait();
        d = dd.get();
        bias_out = dbias.get();
        aux_out = daux.get();
        cublasLtMatmulDescDestroy(desc);
        cublasLtDestroy(handle);
        return status;
    }

    void check(const std::function<double(double, int, int)>& epilogue) {
        REQUIRE(run() == CUBLAS_STATUS_SUCCESS);
        const double tolerance = sizeof(Out) == 4 ? 1e-4 : type_of<Out> == CUDA_R_16F ? 1e-2 : 0.08;
        for (int q = 0; q < how.batches; ++q) {
            for (int i = 0; i < m; ++i) {
                for (int j = 0; j < n; ++j) {
                    CHECK(result(q, i, j) == Approx(epilogue(product(q, i, j), i, j)).margin(tolerance));
                }
            }
        }
    }
};

double plain(double x, int, int) {
    return x;
}

double gelu(double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

}  // namespace

TEST_CASE("products of either operand transposed, by columns and by rows, in batches", "[cudaemu]") {
    for (const bool by_rows : {false, true}) {
        for (const bool ta : {false, true}) {
            for (const bool tb : {false, true}) {
                Case<float, float>({ta, tb, by_rows, 3, 0.5f, 2.0f}).check(plain);
            }
        }
    }
}

TEST_CASE("products of 16-bit matrices are added up in float", "[cudaemu]") {
    Case<__nv_bfloat16, __nv_bfloat16>({true, false}).check(plain);
    Case<__nv_bfloat16, float>({false, true}).check(plain);
    Case<__half, __half>({false, false, true}).check(plain);
    Case<__half, float>({true, true, false, 2, 1, 1}).check(plain);
}

TEST_CASE("tf32 rounds its factors", "[cudaemu]") {
    Setting how;
    how.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
    Case<float, float> c(how);
    REQUIRE(c.run() == CUBLAS_STATUS_SUCCESS);
    double worst = 0;
    for (int i = 0; i < m; ++i) worst = std::max(worst, std::abs(c.result(0, i, 0) - c.product(0, i, 0)));
    CHECK(worst > 1e-5);
    CHECK(worst < 1e-2);
}

TEST_CASE("epilogues with a bias and an activation", "[cudaemu]") {
    const auto with = [](cublasLtEpilogue_t epilogue) {
        Setting how;
        how.epilogue = epilogue;
        return Case<float, float>(how);
    };
    const auto relu = [](double x, int, int) { return std::max(x, 0.0); };
    with(CUBLASLT_EPILOGUE_RELU).check(relu);
    with(CUBLASLT_EPILOGUE_GELU).check([](double x, int, int) { return gelu(x); });
    auto bias = with(CUBLASLT_EPILOGUE_BIAS);
    const auto add = [&](double x, int i) { return x + bias.bias[static_cast<std::size_t>(i)]; };
    bias.check([&](double x, int i, int) { return add(x, i); });
    with(CUBLASLT_EPILOGUE_RELU_BIAS).check([&](double x, int i, int) { return std::max(add(x, i), 0.0); });
    with(CUBLASLT_EPILOGUE_GELU_BIAS).check([&](double x, int i, int) { return gelu(add(x, i)); });
    auto aux = with(CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
    aux.check([&](double x, int i, int) { return gelu(add(x, i)); });
    CHECK(aux.aux_out[16 * 2 + 3] == Approx(add(aux.product(0, 3, 2), 3)));
}

TEST_CASE("epilogues with gradients", "[cudaemu]") {
    Setting how;
    how.epilogue = CUBLASLT_EPILOGUE_BGRADA;
    Case<float, float> a(how);
    a.check(plain);
    double sum = 0;
    for (int q = 0; q < k; ++q) sum += a.a[static_cast<std::size_t>(3 * k + q)];
    CHECK(a.bias_out[3] == Approx(sum));

    how.epilogue = CUBLASLT_EPILOGUE_BGRADB;
    Case<__nv_bfloat16, float> b(how);
    b.check(plain);
    sum = 0;
    for (int q = 0; q < k; ++q) sum += b.b[static_cast<std::size_t>(q * n + 3)];
    CHECK(b.bias_out[3] == Approx(sum));

    how.epilogue = CUBLASLT_EPILOGUE_DGELU_BGRAD;
    Case<float, float> d(how);
    const auto slope = [&](int i, int j) {
        const double x = d.aux[static_cast<std::size_t>(j * 16 + i)];
        return (gelu(x + 1e-4) - gelu(x - 1e-4)) / 2e-4;
    };
    d.check([&](double x, int i, int j) { return x * slope(i, j); });
    sum = 0;
    for (int j = 0; j < n; ++j) sum += d.product(0, 3, j) * slope(3, j);
    CHECK(d.bias_out[3] == Approx(sum).margin(1e-3));
}

TEST_CASE("products that a device would refuse", "[cudaemu]") {
    const Stream s;
    const Buffer<float> a(100), b(100), c(100), workspace(1 << 14);
    std::vector<float> host(100);
    cublasLtHandle_t handle = nullptr;
    cublasLtMatmulDesc_t desc = nullptr;
    cublasLtMatmulPreference_t preference = nullptr;
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulPreferenceCreate(&preference);
    const Layout l(CUDA_R_32F, 8, 8, false, 1), wide(CUDA_R_32F, 8, 9, false, 1),
        narrow(CUDA_R_16BF, 8, 8, false, 1);
    const Layout large(CUDA_R_32F, 8, 8, false, 1, 8);
    std::uint64_t most = 1 << 14;
    std::uint32_t alignment = 16;
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most,
                                         sizeof most);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment,
                                         sizeof alignment);
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    REQUIRE(cublasLtMatmulAlgoGetHeuristic(handle, desc, l, l, l, l, preference, 1, &result, &found) ==
            CUBLAS_STATUS_SUCCESS);
    REQUIRE(found == 1);
    CHECK(result.workspaceSize == most);
    const float one = 1, zero = 0;
    const auto multiply = [&](const float* x, cublasLtMatrixLayout_t lx, const float* y,
                              cublasLtMatrixLayout_t ly, const cublasLtMatmulAlgo_t* algo = nullptr,
                              float* space = nullptr, std::size_t bytes = 0) {
        return cublasLtMatmul(handle, desc, &one, x, lx, y, ly, &zero, c, l, c, l, algo, space, bytes, s);
    };
    const auto refused = CUBLAS_STATUS_INVALID_VALUE;
    CHECK(multiply(a, l, b, l) == CUBLAS_STATUS_SUCCESS);
    CHECK(multiply(host.data(), l, b, l) == refused);
    CHECK(multiply(a, large, b, l) == refused);  // past the end of its buffer
    CHECK(multiply(a, wide, b, l) == refused);
    CHECK(multiply(a, narrow, b, l) == refused);
    CHECK(multiply(a, l, b, l, &result.algo, workspace, most) == CUBLAS_STATUS_SUCCESS);
    CHECK(multiply(a, l, b, l, &result.algo) == refused);                       // no workspace
    CHECK(multiply(a, l, b, l, &result.algo, workspace + 1, most) == refused);  // not aligned
    CHECK(multiply(a + 4, l, b, l, &result.algo, workspace, most) ==
          CUBLAS_STATUS_SUCCESS);  // 16 bytes, as asked
    CHECK(multiply(a + 1, l, b, l, &result.algo, workspace, most) == refused);
    CHECK(multiply(a, l, b + 4, l, &result.algo, workspace, most) ==
          refused);  // 256 bytes, unless told otherwise
    cublasLtMatmulAlgo_t unknown{};
    CHECK(multiply(a, l, b, l, &unknown, workspace, most) == refused);
    s.wait();
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatmulDescDestroy(desc);
    cublasLtDestroy(handle);
}
