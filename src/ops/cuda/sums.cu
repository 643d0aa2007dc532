// Sums: of the rows of a matrix, and of squares.
#include <cmath>

#include "ops/cuda/columns.cuh"
#include "ops/cuda/cuda_ops.hpp"
#include "ops/cuda/warp.cuh"

namespace trireme::cuda {
namespace {

struct Plain {
    static constexpr int inputs = 1, terms = 1;
    __device__ void operator()(std::int64_t, std::int64_t, float x, float, float, double* sum) const {
        sum[0] += static_cast<double>(x);
    }
};

/// Blocks of a sum over n elements: by n alone, so that bits do not depend on the GPU.
constexpr std::int64_t most_blocks = 1024;

__global__ void __launch_bounds__(threads)
    sum_squares_kernel(const void* x, DType type, std::int64_t n, bool wide, float limit, double* parts) {
    double sum = 0;
    bool beyond = false;
    for (std::int64_t i = global_thread() * pack_size; i < n; i += all_threads() * pack_size) {
        const Pack p = load_some(x, type, i, some_of(i, n), wide);
#pragma unroll
        for (int j = 0; j < pack_size; ++j) {
            const auto value = static_cast<double>(p.v[j]);
            sum += value * value;
            beyond = beyond || fabsf(p.v[j]) > limit;
        }
    }
    sum = block_sum(beyond ? static_cast<double>(INFINITY) : sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

}  // namespace

void CudaOps::sum_rows(View x, View sum, bool accumulate) {
    const std::int64_t columns = sum.count();
    float* to = floats(sum, columns, "sum_rows");
    if (columns == 0) return;
    const std::int64_t rows = x.count() / columns;
    const Real from = real(x, rows * columns, "sum_rows");
    const ColumnPlan plan(rows, columns);
    const double* parts = column_sums(device_, scratch_, plan, Plain{}, {from});
    store_columns(device_, plan, parts, Plain::terms, to, nullptr, accumulate);
}

void CudaOps::sum_squares(View x, double* sum, float limit) {
    const std::int64_t n = x.count();
    const Real from = real(x, n, "sum_squares");
    if (n == 0) return;
    const Grid grid = covering(n, threads * pack_size, most_blocks);
    double* parts = scalars_.parts(grid.blocks, 1);
    launch(device_.stream(), grid, sum_squares_kernel, from.data, from.type, n, aligned(from.data), limit,
           parts);
    scalars_.add(parts, grid.blocks, 1, {sum});
}

}  // namespace trireme::cuda
