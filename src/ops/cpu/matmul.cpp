// C = act(op(A)·op(B) + bias). float32: the library's sgemm, then one pass over C. (In blocks of rows, so
// that C stays in cache for that pass, B is packed again for each of them: measured, 6 to 10 % slower.)
// bfloat16, where the processor is fast with it: the library's primitive, which does it all at once. Other
// 16-bit products: by way of float32.
#include <algorithm>

#include "ops/cpu/checks.hpp"
#include "ops/cpu/cpu_ops.hpp"
#include "ops/cpu/parallel.hpp"
#include "ops/cpu/wide.hpp"

namespace trireme::cpu {
namespace {

/// An operand as a matrix: outer extents are folded into its rows.
struct Matrix {
    Wide elements;
    std::int64_t rows, columns;
};

Matrix matrix(const View& view) {
    const int rank = view.shape.rank();
    if (rank == 0) throw failure("cpu matmul: a scalar operand");
    std::int64_t rows = 1;
    for (int axis = 0; axis + 1 < rank; ++axis) rows *= view.shape[axis];
    return {Wide(view, view.count(), "matmul"), rows, view.shape[rank - 1]};
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

/// [rows, columns] of a type, kept row by row or, transposed, column by column.
dnnl::memory::desc layout(std::int64_t rows, std::int64_t columns, DType type, bool transposed) {
    using Tag = dnnl::memory::format_tag;
    return {{rows, columns}, data_type_of(type), transposed ? Tag::ba : Tag::ab};
}

Plan matmul_plan(const OneDnn& library, const PlanKey& key) {
    const std::int64_t m = key.window.n, k = key.window.c, n = key.window.out;
    const auto a = layout(m, k, key.operands, key.transpose_a);
    const auto b = layout(k, n, key.operands, key.transpose_b);
    const auto c = layout(m, n, key.result, false);
    const auto bias = key.bias ? layout(1, n, DType::f32, false) : dnnl::memory::desc();
    const auto desc = matmul_desc(library, a, b, bias, c, key.activation, key.accumulate);
    Plan plan;
    if (is_reference(desc)) return plan;
    const int left = plan.operand(library, a, 0), right = plan.operand(library, b, 1),
              result = plan.operand(library, c, 2);
    if (key.bias)
        plan.step(library, dnnl::matmul(desc), desc.scratchpad_desc(),
                  {{DNNL_ARG_SRC, left},
                   {DNNL_ARG_WEIGHTS, right},
                   {DNNL_ARG_BIAS, plan.operand(library, bias, 3)},
                   {DNNL_ARG_DST, result}});
    else
        plan.step(library, dnnl::matmul(desc), desc.scratchpad_desc(),
                  {{DNNL_ARG_SRC, left}, {DNNL_ARG_WEIGHTS, right}, {DNNL_ARG_DST, result}});
    return plan;
}

}  // namespace

void CpuOps::matmul(const Matmul& args) {
    Matrix a = matrix(args.a), b = matrix(args.b), c = matrix(args.c);
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
    require_product_types("matmul", args.a.dtype, args.b.dtype, args.c.dtype);
    if (args.accumulate && args.c.dtype != DType::f32)
        throw failure("cpu matmul: accumulation in " + std::string(trireme::name_of(args.c.dtype)) +
                      ", expected float32");
    float* bias = optional_floats(args.bias, n, "matmul bias");
    if (m == 0 || n == 0) return;

    const PlanKey key{.verb = Verb::matmul,
                      .window = {.n = m, .c = k, .out = n},
                      .activation = args.activation,
                      .bias = bias != nullptr,
                      .accumulate = args.accumulate,
                      .transpose_a = args.transpose_a,
                      .transpose_b = args.transpose_b,
                      .operands = args.a.dtype,
                      .result = args.c.dtype};
    if (k > 0) {
        // The library's relu turns NaN into 0; ours does not, and comes to the same after rounding as before.
        const bool relu = args.activation == Activation::relu;
        PlanKey fused = key;
        if (relu) fused.activation = Activation::none;
        if (Plan* direct = bf16_plan(fused, [&] { return matmul_plan(library_, fused); })) {
            run(*direct, {args.a.data, args.b.data, args.c.data, bias});
            if (relu) activation_forward(Activation::relu, args.c, args.c);
            return;
        }
    }
    Wide::place(wide_scratch_, {&a.elements, &b.elements, &c.elements});
    a.elements.load(threads_);
    b.elements.load(threads_);
    multiply_floats(key, a.elements.floats(), b.elements.floats(), c.elements.floats(), bias);
    c.elements.store(threads_);
}

void CpuOps::multiply_floats(const PlanKey& key, const float* a, const float* b, float* c,
                             const float* bias) {
    const std::int64_t m = key.window.n, k = key.window.c, n = key.window.out;
    set_library_threads();
    const bool relu = key.activation == Activation::relu;
    if (k > 0)
        check(dnnl_sgemm(key.transpose_a ? 'T' : 'N', key.transpose_b ? 'T' : 'N', m, n, k, 1.0F, a,
                         key.transpose_a ? m : k, b, key.transpose_b ? k : n, key.accumulate ? 1.0F : 0.0F, c,
                         n));
    else if (!key.accumulate)
        std::fill_n(c, m * n, 0.0F);
    if (bias != nullptr || relu)
        for_blocks(threads_, m * n, m, row_block(n),
                   [=](std::int64_t, std::int64_t first, std::int64_t last) {
                       float* part = c + first * n;
                       if (bias != nullptr && relu)
                           bias_relu_rows(part, bias, last - first, n);
                       else if (bias != nullptr)
                           bias_rows(part, bias, last - first, n);
                       else
                           relu_in_place(part, (last - first) * n);
                   });
    if (key.activation == Activation::tanh || key.activation == Activation::sigmoid)
        eltwise(key.activation, m * n, c, c);
}

}  // namespace trireme::cpu
