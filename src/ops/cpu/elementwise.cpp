// Verbs that move or combine elements one by one, and the sums that need no more than that.
#include <algorithm>
#include <cstring>

#include "ops/cpu/checks.hpp"
#include "ops/cpu/columns.hpp"
#include "ops/cpu/cpu_ops.hpp"
#include "ops/cpu/lanes.hpp"
#include "ops/cpu/parallel.hpp"
#include "ops/cpu/reals.hpp"

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

/// for_stretches over [0, n), shared by threads.
template <class Body>
void over_stretches(int threads, bool converted, std::int64_t n, const Body& body) {
    for_blocks(threads, n, n, element_block, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
        for_stretches(converted, begin, end, body);
    });
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
void transpose_each(int threads, Scratch& scratch, std::int64_t n, std::int64_t rows, std::int64_t columns,
                    const Reals& x, const Reals& y) {
    const std::int64_t plane = rows * columns, widened = x.buffer_size(plane);
    const ThreadBuffers buffers(scratch, threads, widened + y.buffer_size(plane));
    for_blocks(threads, n * plane, n, 1, [&](std::int64_t i, std::int64_t, std::int64_t) {
        float* buffer = buffers.mine();
        float* to = y.place(i * plane, buffer + widened);
        transpose(x.load(i * plane, plane, buffer), to, rows, columns);
        y.store(i * plane, plane, to);
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
    const Reals from(x, rows * columns, "sum_rows");
    const ColumnPlan plan(rows, columns);
    const double* sums =
        column_sums<1>(threads_, plan, scratch_, [&](std::int64_t begin, std::int64_t end, float* run) {
            for_pieces(any_converted(from), plan, begin, end, [&](std::int64_t at, std::int64_t n) {
                Stretch buffer;
                const float* values = from.load(at, n, buffer);
                for_lines(plan, at, n, [&](std::int64_t i, std::int64_t lane, std::int64_t lanes) {
                    add_to(values + i, 1.0F, run + lane, lanes);
                });
            });
        });
    store_sums(sums, to, columns, accumulate);
}

void CpuOps::add_scaled(View x, float a, View y) {
    const std::int64_t n = y.count();
    const Reals from(x, n, "add_scaled"), to(y, n, "add_scaled");
    over_stretches(threads_, any_converted(from, to), n, [=](std::int64_t at, std::int64_t count) {
        Stretch terms, buffer;
        float* sums = to.place(at, buffer);
        to.load(at, count, sums);
        add_to(from.load(at, count, terms), a, sums, count);
        to.store(at, count, sums);
    });
}

void CpuOps::add(View a, View b, Activation activation, View y) {
    const std::int64_t n = y.count();
    const Reals left(a, n, "add"), right(b, n, "add"), to(y, n, "add");
    if (activation != Activation::none && activation != Activation::relu)
        throw failure("cpu add: " + std::string(name_of(activation)) + " where none or relu is expected");
    const bool relu = activation == Activation::relu;
    over_stretches(threads_, any_converted(left, right, to), n, [=](std::int64_t at, std::int64_t count) {
        Stretch buffer_a, buffer_b;
        float* sums = to.place(at, buffer_a);
        sum_of(left.load(at, count, buffer_a), right.load(at, count, buffer_b), relu, sums, count);
        to.store(at, count, sums);
    });
}

void CpuOps::fill(View y, float value) {
    const std::int64_t n = y.count();
    const Reals to(y, n, "fill");
    over_stretches(threads_, any_converted(to), n, [=](std::int64_t at, std::int64_t count) {
        Stretch buffer;
        float* values = to.place(at, buffer);
        std::fill_n(values, count, value);
        to.store(at, count, values);
    });
}

void CpuOps::copy(View x, View y) {
    const std::int64_t n = y.count();
    if (x.dtype != y.dtype) {
        const Reals from(x, n, "copy"), to(y, n, "copy");
        return over_stretches(threads_, true, n, [=](std::int64_t at, std::int64_t count) {
            Stretch buffer;
            to.store(at, count, from.load(at, count, to.place(at, buffer)));
        });
    }
    if (x.count() != n) throw failure("cpu copy: " + x.shape.text() + " to " + y.shape.text());
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
    transpose_each(threads_, scratch_, n, pixels, c, Reals(x, n * c * pixels, "to_channels_first"),
                   Reals(y, n * c * pixels, "to_channels_first"));
}

void CpuOps::to_channels_last(View x, View y) {
    require_images(x);
    const std::int64_t n = x.shape[0], c = x.shape[1], pixels = x.shape[2] * x.shape[3];
    if (c == 1 || pixels == 1) return copy(x, y);
    transpose_each(threads_, scratch_, n, c, pixels, Reals(x, n * c * pixels, "to_channels_last"),
                   Reals(y, n * c * pixels, "to_channels_last"));
}

void CpuOps::sum_squares(View x, double* sum) {
    const std::int64_t n = x.count();
    const Reals from(x, n, "sum_squares");
    const std::int64_t blocks = blocks_of(n, element_block);
    double* part = scratch_.reserve_of<double>(static_cast<std::size_t>(blocks));
    for_blocks(threads_, n, n, element_block, [=](std::int64_t block, std::int64_t begin, std::int64_t end) {
        float buffer[element_block];
        part[block] = square_sum(from.load(begin, end - begin, buffer), 1.0F, end - begin);
    });
    for (std::int64_t block = 0; block < blocks; ++block) *sum += part[block];
}

}  // namespace trireme::cpu
