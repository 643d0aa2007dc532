// Verbs that move or combine elements one by one, and the sums that need no more than that.
#include <cstring>

#include "ops/cpu/checks.hpp"
#include "ops/cpu/columns.hpp"
#include "ops/cpu/cpu_ops.hpp"
#include "ops/cpu/lanes.hpp"
#include "ops/cpu/parallel.hpp"

namespace trireme::cpu {
namespace {

void add_to(const float* x, float a, float* __restrict y, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) y[i] += a * x[i];
}

void sum_of(const float* a, const float* b, bool relu, float* y, std::int64_t n) {
    if (relu) {
#pragma omp simd
        for (std::int64_t i = 0; i < n; ++i) {
            const float z = a[i] + b[i];
            y[i] = z < 0 ? 0 : z;
        }
    } else {
#pragma omp simd
        for (std::int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
    }
}

/// to[c, r] = from[r, c] for rows [begin, end), in tiles that stay in cache.
void transpose(const float* __restrict from, float* __restrict to, std::int64_t rows, std::int64_t columns) {
    constexpr std::int64_t tile = 16;
    for (std::int64_t r0 = 0; r0 < rows; r0 += tile)
        for (std::int64_t c0 = 0; c0 < columns; c0 += tile) {
            const std::int64_t r1 = std::min(rows, r0 + tile), c1 = std::min(columns, c0 + tile);
            for (std::int64_t c = c0; c < c1; ++c)
                for (std::int64_t r = r0; r < r1; ++r) to[c * rows + r] = from[r * columns + c];
        }
}

/// [n, rows, columns] to [n, columns, rows].
void transpose_each(int threads, std::int64_t n, std::int64_t rows, std::int64_t columns, const float* x,
                    float* y) {
    const std::int64_t plane = rows * columns;
    for_blocks(threads, n * plane, n, 1, [=](std::int64_t i, std::int64_t, std::int64_t) {
        transpose(x + i * plane, y + i * plane, rows, columns);
    });
}

void require_images(const View& view) {
    if (view.shape.rank() != 4)
        throw failure("cpu layout change: " + view.shape.text() + " is not [N, C, H, W]");
}

}  // namespace

void CpuOps::sum_rows(View x, View sum, bool accumulate) {
    const std::int64_t columns = sum.count();
    float* to = floats(sum, "sum_rows");
    if (columns == 0) return;
    const std::int64_t rows = x.count() / columns;
    const float* from = floats(x, rows * columns, "sum_rows");
    const ColumnPlan plan(rows, columns);
    const double* sums =
        column_sums<1>(threads_, plan, scratch_, [&](std::int64_t begin, std::int64_t end, float* run) {
            for_lines(plan, begin, end,
                      [&](std::int64_t at, std::int64_t lanes) { add_to(from + at, 1.0F, run, lanes); });
        });
    store_sums(sums, to, columns, accumulate);
}

void CpuOps::add_scaled(View x, float a, View y) {
    const std::int64_t n = y.count();
    const float* from = floats(x, n, "add_scaled");
    float* to = floats(y, n, "add_scaled");
    for_blocks(threads_, n, n, element_block, [=](std::int64_t, std::int64_t begin, std::int64_t end) {
        add_to(from + begin, a, to + begin, end - begin);
    });
}

void CpuOps::add(View a, View b, Activation activation, View y) {
    const std::int64_t n = y.count();
    const float* left = floats(a, n, "add");
    const float* right = floats(b, n, "add");
    float* to = floats(y, n, "add");
    if (activation != Activation::none && activation != Activation::relu)
        throw failure("cpu add: " + std::string(name_of(activation)) + " where none or relu is expected");
    const bool relu = activation == Activation::relu;
    for_blocks(threads_, n, n, element_block, [=](std::int64_t, std::int64_t begin, std::int64_t end) {
        sum_of(left + begin, right + begin, relu, to + begin, end - begin);
    });
}

void CpuOps::fill(View y, float value) {
    const std::int64_t n = y.count();
    float* to = floats(y, n, "fill");
    for_blocks(threads_, n, n, element_block, [=](std::int64_t, std::int64_t begin, std::int64_t end) {
        std::fill(to + begin, to + end, value);
    });
}

void CpuOps::copy(View x, View y) {
    const std::int64_t n = y.count();
    if (x.count() != n || x.dtype != y.dtype)
        throw failure("cpu copy: " + std::string(trireme::name_of(x.dtype)) + " " + x.shape.text() + " to " +
                      std::string(trireme::name_of(y.dtype)) + " " + y.shape.text());
    if (x.data == y.data || n == 0) return;
    const auto size = static_cast<std::int64_t>(size_of(x.dtype));
    const char* from = static_cast<const char*>(x.data);
    char* to = static_cast<char*>(y.data);
    // One piece for each thread: only a large memcpy goes past the cache, twice as fast.
    for_blocks(threads_, n, n, (n + threads_ - 1) / threads_,
               [=](std::int64_t, std::int64_t begin, std::int64_t end) {
                   std::memcpy(to + begin * size, from + begin * size,
                               static_cast<std::size_t>((end - begin) * size));
               });
}

void CpuOps::to_channels_first(View x, View y) {
    require_images(x);
    const std::int64_t n = x.shape[0], c = x.shape[1], pixels = x.shape[2] * x.shape[3];
    if (c == 1 || pixels == 1) return copy(x, y);
    transpose_each(threads_, n, pixels, c, floats(x, "to_channels_first"),
                   floats(y, n * c * pixels, "to_channels_first"));
}

void CpuOps::to_channels_last(View x, View y) {
    require_images(x);
    const std::int64_t n = x.shape[0], c = x.shape[1], pixels = x.shape[2] * x.shape[3];
    if (c == 1 || pixels == 1) return copy(x, y);
    transpose_each(threads_, n, c, pixels, floats(x, "to_channels_last"),
                   floats(y, n * c * pixels, "to_channels_last"));
}

void CpuOps::sum_squares(View x, double* sum) {
    const std::int64_t n = x.count();
    const float* from = floats(x, n, "sum_squares");
    const std::int64_t blocks = blocks_of(n, element_block);
    double* part = scratch_.reserve_of<double>(static_cast<std::size_t>(blocks));
    for_blocks(threads_, n, n, element_block, [=](std::int64_t block, std::int64_t begin, std::int64_t end) {
        part[block] = square_sum(from + begin, 1.0F, end - begin);
    });
    for (std::int64_t block = 0; block < blocks; ++block) *sum += part[block];
}

}  // namespace trireme::cpu
