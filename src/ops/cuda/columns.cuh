// Sums over the rows of a matrix, column by column, in double. Blocks take a stretch of rows and up to 32
// columns, and leave their parts, which are added in order; how rows are cut depends on the shape alone.
// A sum is a small structure:
//   static constexpr int inputs, terms;
//   __device__ void operator()(int64 row, int64 column, float a, float b, float c, double* terms) const
#pragma once

#include <algorithm>

#include "ops/cuda/map.cuh"
#include "ops/cuda/scratch.hpp"

namespace trireme::cuda {

/// How a matrix is cut.
struct ColumnPlan {
    ColumnPlan(std::int64_t rows_, std::int64_t columns_) : rows(rows_), columns(columns_) {
        while (width < 32 && width < columns) width *= 2;
        tiles = divided_up(columns, width);
        const std::int64_t lines = threads / width;
        constexpr std::int64_t most_chunks = 256, rows_of_a_thread = 16;
        rows_per_chunk = std::max(divided_up(rows, most_chunks), lines * rows_of_a_thread);
        chunks = divided_up(rows, rows_per_chunk);
    }
    std::int64_t rows, columns;
    int width = 1;  // columns of a block; a power of two
    std::int64_t tiles = 0, rows_per_chunk = 1, chunks = 0;
};

namespace {

template <class Sum>
__global__ void __launch_bounds__(threads)
    column_sums_kernel(Sum sum, std::int64_t rows, std::int64_t columns, int width,
                       std::int64_t rows_per_chunk, double* parts, const void* a, DType a_type, const void* b,
                       DType b_type, const void* c, DType c_type) {
    __shared__ double shared[Sum::terms][threads];
    const int lines = threads / width, line = static_cast<int>(threadIdx.x) / width;
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * width + threadIdx.x % width;
    const std::int64_t begin = blockIdx.y * rows_per_chunk,
                       end = begin + rows_per_chunk < rows ? begin + rows_per_chunk : rows;
    double total[Sum::terms] = {};
    if (column < columns)
        for (std::int64_t r = begin + line; r < end; r += lines) {
            const std::int64_t i = r * columns + column;
            sum(r, column, Sum::inputs > 0 ? load(a, a_type, i) : 0.0f,
                Sum::inputs > 1 ? load(b, b_type, i) : 0.0f, Sum::inputs > 2 ? load(c, c_type, i) : 0.0f,
                total);
        }
    for (int t = 0; t < Sum::terms; ++t) shared[t][threadIdx.x] = total[t];
    for (int half = lines / 2; half > 0; half /= 2) {
        __syncthreads();
        if (line < half)
            for (int t = 0; t < Sum::terms; ++t)
                shared[t][threadIdx.x] += shared[t][threadIdx.x + static_cast<unsigned>(half * width)];
    }
    if (line == 0 && column < columns)
        for (int t = 0; t < Sum::terms; ++t)
            parts[(blockIdx.y * Sum::terms + t) * columns + column] = shared[t][threadIdx.x];
}

/// Sum `term` of a column.
__device__ inline double column_total(const double* parts, std::int64_t chunks, int terms, int term,
                                      std::int64_t columns, std::int64_t column) {
    double total = 0;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
        total += parts[(chunk * terms + term) * columns + column];
    return total;
}

__global__ void __launch_bounds__(threads)
    store_columns_kernel(const double* parts, std::int64_t chunks, int terms, std::int64_t columns, float* a,
                         float* b, bool accumulate) {
    const std::int64_t column = global_thread();
    if (column >= columns) return;
    const double first = column_total(parts, chunks, terms, 0, columns, column);
    a[column] = static_cast<float>(first) + (accumulate ? a[column] : 0.0f);
    if (terms < 2) return;
    const double second = column_total(parts, chunks, terms, 1, columns, column);
    b[column] = static_cast<float>(second) + (accumulate ? b[column] : 0.0f);
}

}  // namespace

/// Leaves the parts [chunks, terms, columns] in scratch; there is at least one column.
template <class Sum>
double* column_sums(const CudaDevice& device, Scratch& scratch, const ColumnPlan& plan, const Sum& sum,
                    Inputs in) {
    double* parts =
        scratch.reserve_of<double>(std::max<std::int64_t>(1, plan.chunks * Sum::terms * plan.columns));
    if (plan.chunks > 0)
        launch(device.stream(), {plan.tiles, plan.chunks}, column_sums_kernel<Sum>, sum, plan.rows,
               plan.columns, plan.width, plan.rows_per_chunk, parts, in.a.data, in.a.type, in.b.data,
               in.b.type, in.c.data, in.c.type);
    return parts;
}

/// a, and where there are two terms b, (+)= the sums.
inline void store_columns(const CudaDevice& device, const ColumnPlan& plan, const double* parts, int terms,
                          float* a, float* b, bool accumulate) {
    launch(device.stream(), {divided_up(plan.columns, threads)}, store_columns_kernel, parts, plan.chunks,
           terms, plan.columns, a, b, accumulate);
}

}  // namespace trireme::cuda
