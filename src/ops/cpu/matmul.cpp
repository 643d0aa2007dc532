// C = act(op(A)·op(B) + bias): the library's sgemm, then one pass over C while it is still in cache.
#include <algorithm>

#include "ops/cpu/checks.hpp"
#include "ops/cpu/cpu_ops.hpp"
#include "ops/cpu/parallel.hpp"

namespace trireme::cpu {
namespace {

/// An operand as a matrix: outer extents are folded into its rows.
struct Matrix {
    float* data;
    std::int64_t rows, columns;
};

Matrix matrix(const View& view) {
    const int rank = view.shape.rank();
    if (rank == 0) throw failure("cpu matmul: a scalar operand");
    std::int64_t rows = 1;
    for (int axis = 0; axis + 1 < rank; ++axis) rows *= view.shape[axis];
    return {floats(view, "matmul"), rows, view.shape[rank - 1]};
}

void bias_rows(float* c, const float* bias, std::int64_t rows, std::int64_t n) {
    for (std::int64_t r = 0; r < rows; ++r) {
        float* row = c + r * n;
        for (std::int64_t j = 0; j < n; ++j) row[j] += bias[j];
    }
}

void bias_relu_rows(float* c, const float* bias, std::int64_t rows, std::int64_t n) {
    for (std::int64_t r = 0; r < rows; ++r) {
        float* row = c + r * n;
        for (std::int64_t j = 0; j < n; ++j) {
            const float z = row[j] + bias[j];
            row[j] = z < 0 ? 0 : z;  // keeps NaN
        }
    }
}

void relu_in_place(float* c, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) c[i] = c[i] < 0 ? 0 : c[i];
}

/// Rows of C handled between two epilogues: large enough for the product, small enough to stay in a
/// second-level cache.
std::int64_t epilogue_rows(std::int64_t n) {
    constexpr std::int64_t elements = std::int64_t{1} << 18;
    return std::max<std::int64_t>(256, elements / n / 64 * 64);
}

}  // namespace

void CpuOps::matmul(const Matmul& args) {
    const Matrix a = matrix(args.a), b = matrix(args.b), c = matrix(args.c);
    const std::int64_t m = c.rows, n = c.columns, k = args.transpose_a ? a.rows : a.columns;
    const bool shapes_match = (args.transpose_a ? a.columns : a.rows) == m &&
                              (args.transpose_b ? b.columns : b.rows) == k &&
                              (args.transpose_b ? b.rows : b.columns) == n;
    if (!shapes_match)
        throw failure("cpu matmul: op(" + args.a.shape.text() + ") * op(" + args.b.shape.text() + ") into " +
                      args.c.shape.text());
    if (!derivative_from_output(args.activation) ||
        (args.accumulate && (args.bias || args.activation != Activation::none)))
        throw failure("cpu matmul: this epilogue is not one of a matmul: " +
                      std::string(name_of(args.activation)));
    const float* bias = optional_floats(args.bias, n, "matmul bias");
    if (m == 0 || n == 0) return;

    set_library_threads();
    const bool relu = args.activation == Activation::relu;
    const bool epilogue = bias != nullptr || relu;
    const std::int64_t rows_at_once = epilogue ? epilogue_rows(n) : m;
    for (std::int64_t begin = 0; begin < m; begin += rows_at_once) {
        const std::int64_t rows = std::min(rows_at_once, m - begin);
        float* block = c.data + begin * n;
        if (k > 0)
            check(dnnl_sgemm(args.transpose_a ? 'T' : 'N', args.transpose_b ? 'T' : 'N', rows, n, k, 1.0F,
                             args.transpose_a ? a.data + begin : a.data + begin * k, a.columns, b.data,
                             b.columns, args.accumulate ? 1.0F : 0.0F, block, n));
        else if (!args.accumulate)
            std::fill_n(block, rows * n, 0.0F);
        if (!epilogue) continue;
        for_blocks(threads_, rows * n, rows, row_block(n),
                   [=](std::int64_t, std::int64_t first, std::int64_t last) {
                       float* part = block + first * n;
                       if (bias != nullptr && relu)
                           bias_relu_rows(part, bias, last - first, n);
                       else if (bias != nullptr)
                           bias_rows(part, bias, last - first, n);
                       else
                           relu_in_place(part, (last - first) * n);
                   });
    }
    if (args.activation == Activation::tanh || args.activation == Activation::sigmoid)
        eltwise(args.activation, m * n, c.data, c.data);
}

}  // namespace trireme::cpu
