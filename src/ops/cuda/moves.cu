// Rows moved as they are or converted: out of a table by number (token embeddings), columns taken and put
// back; and one row added to all (learned positions).
#include "ops/cuda/cuda_ops.hpp"
#include "ops/cuda/map.cuh"
#include "ops/cuda/warp.cuh"

namespace trireme::cuda {
namespace {

/// `columns` elements of each of `rows` rows, a warp a row: from x at row·x_row + x_first, or, where there
/// are ids, at (ids[row] - first)·x_row, zeros where that is none of `x_rows`.
__global__ void __launch_bounds__(threads)
    move_rows_kernel(std::int64_t rows, std::int64_t columns, bool wide, const std::int32_t* ids,
                     std::int64_t first, std::int64_t x_rows, const void* x, DType x_type, std::int64_t x_row,
                     std::int64_t x_first, void* y, DType y_type, std::int64_t y_row, std::int64_t y_first) {
    for (std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * warps + warp_of(); r < rows;
         r += static_cast<std::int64_t>(gridDim.x) * warps) {
        const std::int64_t row = ids == nullptr ? r : ids[r] - first;
        const bool there = ids == nullptr || (row >= 0 && row < x_rows);
        const std::int64_t from = row * x_row + x_first, to = r * y_row + y_first;
        for (std::int64_t c = lane_of() * pack_size; c < columns; c += 32 * pack_size) {
            const int count = some_of(c, columns);
            Pack p = {};
            if (there) p = load_some(x, x_type, from + c, count, wide);
            store_some(y, y_type, to + c, count, wide, p);
        }
    }
}

/// A warp for each row of the table: it looks at all ids, 32 at a time, and adds what is its own in their
/// order.
__global__ void __launch_bounds__(threads)
    embedding_backward_kernel(const std::int32_t* ids, std::int64_t n, std::int64_t first, const void* dy,
                              DType type, float* d_table, std::int64_t rows, std::int64_t columns) {
    for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * warps + warp_of(); row < rows;
         row += static_cast<std::int64_t>(gridDim.x) * warps)
        for (std::int64_t at = 0; at < n; at += 32) {
            const bool mine = at + lane_of() < n && ids[at + lane_of()] - first == row;
            unsigned found = __ballot_sync(all_lanes, mine);
            for (; found != 0; found &= found - 1) {
                const std::int64_t i = at + __ffs(static_cast<int>(found)) - 1;
                for (std::int64_t c = lane_of(); c < columns; c += 32)
                    d_table[row * columns + c] += load(dy, type, i * columns + c);
            }
        }
}

struct AddRow {
    static constexpr int inputs = 1;
    const void* row;
    DType type;
    __device__ float operator()(std::int64_t, std::int64_t column, float x, float, float) const {
        return x + load(row, type, column);
    }
};

Grid grid_of(const CudaDevice& device, std::int64_t rows) {
    return covering(rows, warps, 16 * device.multiprocessors());
}

/// Columns of a matrix: [rows, columns] and the part [rows, part] of it.
struct Extents {
    std::int64_t rows, columns, part;
};

Extents extents(const View& whole, std::int64_t first, const View& part, const char* verb) {
    if (whole.shape.rank() != 2 || part.shape.rank() != 2 || whole.shape[0] != part.shape[0] || first < 0 ||
        first + part.shape[1] > whole.shape[1])
        throw refusal(verb, "columns from " + std::to_string(first) + " on of " + whole.shape.text() +
                                " as " + part.shape.text());
    return {whole.shape[0], whole.shape[1], part.shape[1]};
}

bool wide_rows(const Extents& e, std::int64_t first, Real x, Real y) {
    return e.columns % pack_size == 0 && e.part % pack_size == 0 && first % pack_size == 0 &&
           aligned(static_cast<const void*>(x.data), y.data);
}

constexpr const std::int32_t* no_ids = nullptr;

}  // namespace

void CudaOps::embedding_forward(View ids, View table, std::int64_t first, View y) {
    const std::int64_t n = ids.count(), elements = y.count();
    const std::int32_t* id = integers(ids, n, "embedding ids");
    if (n == 0 || elements == 0) return;
    const std::int64_t columns = elements / n, rows = table.count() / columns;
    const Real from = real(table, rows * columns, "embedding table"), to = real(y, n * columns, "embedding");
    const bool wide = columns % pack_size == 0 && aligned(static_cast<const void*>(from.data), to.data);
    launch(device_.stream(), grid_of(device_, n), move_rows_kernel, n, columns, wide, id, first, rows,
           from.data, from.type, columns, 0, to.data, to.type, columns, 0);
}

void CudaOps::embedding_backward(View ids, View dy, std::int64_t first, View d_table, bool accumulate) {
    const std::int64_t n = ids.count(), columns = n == 0 ? 0 : dy.count() / n, size = d_table.count();
    const std::int64_t rows = columns == 0 ? 0 : size / columns;
    const std::int32_t* id = integers(ids, n, "embedding ids");
    const Real from = real(dy, n * columns, "embedding backward");
    float* sums = floats(d_table, columns == 0 ? size : rows * columns, "embedding d_table");
    if (!accumulate) zero(sums, size);
    if (columns == 0 || rows == 0) return;
    launch(device_.stream(), grid_of(device_, rows), embedding_backward_kernel, id, n, first, from.data,
           from.type, sums, rows, columns);
}

void CudaOps::add_row(View x, View row, View y) {
    const std::int64_t elements = y.count(), columns = row.count();
    const Real from = real(x, elements, "add_row"), to = real(y, elements, "add_row"),
               added = real(row, columns, "add_row");
    if (elements == 0) return;
    if (columns == 0 || elements % columns != 0)
        throw refusal("add_row", x.shape.text() + " is no number of rows of " + row.shape.text());
    run_map(device_, AddRow{added.data, added.type}, elements, to, {from}, columns);
}

void CudaOps::take_columns(View x, std::int64_t first, View y) {
    const Extents e = extents(x, first, y, "take_columns");
    const Real from = real(x, e.rows * e.columns, "take_columns"),
               to = real(y, e.rows * e.part, "take_columns");
    if (e.rows * e.part == 0) return;
    launch(device_.stream(), grid_of(device_, e.rows), move_rows_kernel, e.rows, e.part,
           wide_rows(e, first, from, to), no_ids, 0, 0, from.data, from.type, e.columns, first, to.data,
           to.type, e.part, 0);
}

void CudaOps::put_columns(View x, std::int64_t first, View y) {
    const Extents e = extents(y, first, x, "put_columns");
    const Real from = real(x, e.rows * e.part, "put_columns"),
               to = real(y, e.rows * e.columns, "put_columns");
    if (e.rows * e.part == 0) return;
    launch(device_.stream(), grid_of(device_, e.rows), move_rows_kernel, e.rows, e.part,
           wide_rows(e, first, from, to), no_ids, 0, 0, from.data, from.type, e.part, 0, to.data, to.type,
           e.columns, first);
}

}  // namespace trireme::cuda
