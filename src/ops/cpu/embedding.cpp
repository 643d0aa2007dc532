// Rows of a table by number (token embeddings), and one row added to all (learned positions).
#include <algorithm>
#include <cstring>

#include "ops/cpu/checks.hpp"
#include "ops/cpu/cpu_ops.hpp"
#include "ops/cpu/parallel.hpp"
#include "ops/cpu/reals.hpp"

namespace trireme::cpu {
namespace {

std::size_t bytes_of(const Reals& reals, std::int64_t n) {
    return static_cast<std::size_t>(n) * size_of(reals.type());
}

/// to[to_at + i] = from[from_at + i] for n elements, converted where the types differ.
void copy_row(const Reals& from, std::int64_t from_at, const Reals& to, std::int64_t to_at, std::int64_t n) {
    if (from.type() == to.type()) {
        std::memcpy(to.at(to_at), from.at(from_at), bytes_of(from, n));
        return;
    }
    for (std::int64_t i = 0; i < n; i += stretch) {
        const std::int64_t count = std::min(stretch, n - i);
        Stretch buffer;
        to.store(to_at + i, count, from.load(from_at + i, count, to.place(to_at + i, buffer)));
    }
}

void add_to(const float* x, float* __restrict y, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) y[i] += x[i];
}

/// y may be a.
void sum_of(const float* a, const float* b, float* y, std::int64_t n) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
}

/// One piece for each thread: where it is cut does not show in the result, and a large memset is fastest.
void set_zero(int threads, float* x, std::int64_t n) {
    for_blocks(threads, n, n, (n + threads - 1) / threads,
               [=](std::int64_t, std::int64_t begin, std::int64_t end) {
                   std::memset(x + begin, 0, static_cast<std::size_t>(end - begin) * sizeof(float));
               });
}

/// Columns that a thread adds: whole cache lines, so that no two threads write to one of an aligned table.
std::int64_t column_block(int threads, std::int64_t columns) {
    constexpr std::int64_t line = 16;
    return blocks_of(blocks_of(columns, threads), line) * line;
}

}  // namespace

void CpuOps::embedding_forward(View ids, View table, std::int64_t first, View y) {
    const std::int64_t n = ids.count(), elements = y.count();
    const std::int32_t* id = integers(ids, n, "embedding ids");
    if (n == 0 || elements == 0) return;
    const std::int64_t columns = elements / n, rows = table.count() / columns;
    const Reals from(table, rows * columns, "embedding table"), to(y, n * columns, "embedding");
    for_blocks(threads_, elements, n, row_block(columns),
               [=](std::int64_t, std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) {
                       const std::int64_t row = id[i] - first;
                       if (row >= 0 && row < rows)
                           copy_row(from, row * columns, to, i * columns, columns);
                       else
                           std::memset(to.at(i * columns), 0, bytes_of(to, columns));
                   }
               });
}

void CpuOps::embedding_backward(View ids, View dy, std::int64_t first, View d_table, bool accumulate) {
    const std::int64_t n = ids.count(), columns = n == 0 ? 0 : dy.count() / n, size = d_table.count();
    const std::int64_t rows = columns == 0 ? 0 : size / columns;
    const std::int32_t* id = integers(ids, n, "embedding ids");
    const Reals from(dy, n * columns, "embedding backward");
    float* sums = floats(d_table, columns == 0 ? size : rows * columns, "embedding d_table");
    if (!accumulate && size > 0) set_zero(threads_, sums, size);
    if (columns == 0) return;
    // Each thread has columns of its own and goes through all ids: some tokens are far more frequent than
    // others, so that a split by rows of the table would leave most threads without work.
    for_blocks(threads_, n * columns, columns, column_block(threads_, columns),
               [=](std::int64_t, std::int64_t begin, std::int64_t end) {
                   Stretch buffer;
                   for (std::int64_t i = 0; i < n; ++i) {
                       const std::int64_t row = id[i] - first;
                       if (row < 0 || row >= rows) continue;
                       for (std::int64_t c = begin; c < end; c += stretch) {
                           const std::int64_t count = std::min(stretch, end - c);
                           add_to(from.load(i * columns + c, count, buffer), sums + row * columns + c, count);
                       }
                   }
               });
}

void CpuOps::add_row(View x, View row, View y) {
    const std::int64_t elements = y.count(), columns = row.count();
    const Reals from(x, elements, "add_row"), to(y, elements, "add_row"), added(row, columns, "add_row");
    if (elements == 0) return;
    if (columns == 0 || elements % columns != 0)
        throw failure("cpu add_row: " + x.shape.text() + " is no number of rows of " + row.shape.text());
    for_blocks(threads_, elements, elements, element_block,
               [=](std::int64_t, std::int64_t begin, std::int64_t end) {
                   Stretch inputs, terms;
                   for (std::int64_t at = begin; at < end; at += stretch) {
                       const std::int64_t n = std::min(stretch, end - at);
                       const float* values = from.load(at, n, inputs);
                       float* results = to.place(at, inputs);
                       std::int64_t column = at % columns;
                       for (std::int64_t i = 0, part = 0; i < n; i += part, column = 0) {
                           part = std::min(columns - column, n - i);
                           sum_of(values + i, added.load(column, part, terms), results + i, part);
                       }
                       to.store(at, n, results);
                   }
               });
}

}  // namespace trireme::cpu
