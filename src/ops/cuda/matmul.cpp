// C = act(op(A)·op(B) + bias). A bias is the library's epilogue where the result is float32. Where it has 16
// bits the library would want the bias in 16 bits too, and round before an activation: then the product goes
// to float32 and is rounded once, with bias and activation. The library's relu is not used: nothing says that
// it keeps NaN.
#include "ops/cuda/cuda_ops.hpp"

namespace trireme::cuda {
namespace {

/// An operand as a matrix: outer extents are folded into its rows.
struct Matrix {
    Real elements;
    std::int64_t rows, columns;
};

Matrix matrix(const View& view) {
    const int rank = view.shape.rank();
    if (rank == 0) throw refusal("matmul", "a scalar operand");
    std::int64_t rows = 1;
    for (int axis = 0; axis + 1 < rank; ++axis) rows *= view.shape[axis];
    return {real(view, view.count(), "matmul"), rows, view.shape[rank - 1]};
}

}  // namespace

void CudaOps::matmul(const Matmul& args) {
    const Matrix a = matrix(args.a), b = matrix(args.b), c = matrix(args.c);
    const std::int64_t m = c.rows, n = c.columns, k = args.transpose_a ? a.rows : a.columns;
    const bool shapes_match = (args.transpose_a ? a.columns : a.rows) == m &&
                              (args.transpose_b ? b.columns : b.rows) == k &&
                              (args.transpose_b ? b.rows : b.columns) == n;
    if (!shapes_match)
        throw refusal("matmul", "op(" + args.a.shape.text() + ") * op(" + args.b.shape.text() + ") into " +
                                    args.c.shape.text());
    if (!derivative_from_output(args.activation) ||
        (args.accumulate && (args.bias || args.activation != Activation::none)))
        throw refusal("matmul",
                      "this epilogue is not one of a matmul: " + std::string(name_of(args.activation)));
    require_product_types("matmul", args.a.dtype, args.b.dtype, args.c.dtype);
    if (args.accumulate && args.c.dtype != DType::f32)
        throw refusal("matmul", "accumulation in " + std::string(trireme::name_of(args.c.dtype)) +
                                    ", expected float32");
    const float* bias = optional_floats(args.bias, n, "matmul bias");
    if (m == 0 || n == 0) return;

    const bool wide_result = args.c.dtype == DType::f32;
    const bool rounds_again =
        bias != nullptr || args.activation == Activation::tanh || args.activation == Activation::sigmoid;
    Real sums = c.elements;
    if (!wide_result && rounds_again) sums = {wide_scratch_.reserve_of<float>(m * n), DType::f32};
    const bool fused = bias != nullptr && wide_result && k > 0;
    if (k > 0)
        gemm_.run({.m = m,
                   .n = n,
                   .k = k,
                   .lda = a.columns,
                   .ldb = b.columns,
                   .ldc = n,
                   .transpose_a = args.transpose_a,
                   .transpose_b = args.transpose_b,
                   .accumulate = args.accumulate,
                   .bias = fused,
                   .operands = args.a.dtype,
                   .result = sums.type},
                  a.elements.data, b.elements.data, sums.data, bias);
    else if (!args.accumulate)
        fill({sums.data, sums.type, {m, n}}, 0);
    const float* missing = fused ? nullptr : bias;
    if (missing != nullptr || args.activation != Activation::none || sums.data != c.elements.data)
        finish_product(sums, missing, args.activation, m * n, n, c.elements);
}

}  // namespace trireme::cuda
