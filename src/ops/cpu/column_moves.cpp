// Columns of a matrix taken out, and put back: how features that are split over ranks come together.
#include <cstring>

#include "ops/cpu/cpu_ops.hpp"
#include "ops/cpu/parallel.hpp"
#include "ops/cpu/reals.hpp"

namespace trireme::cpu {
namespace {

/// Row r of `columns` elements from row r of x, from column x_first on, to row r of y, from y_first on.
struct Move {
    Reals x, y;
    std::int64_t x_row, x_first, y_row, y_first, columns;

    void operator()(std::int64_t row) const {
        const std::int64_t from = row * x_row + x_first, to = row * y_row + y_first;
        if (x.type() == y.type()) {
            std::memcpy(y.at(to), x.at(from), static_cast<std::size_t>(columns) * size_of(x.type()));
            return;
        }
        Stretch in, out;
        for (std::int64_t at = 0; at < columns; at += stretch) {
            const std::int64_t n = std::min(stretch, columns - at);
            const float* values = x.load(from + at, n, in);
            float* place = y.place(to + at, out);
            std::copy_n(values, n, place);
            y.store(to + at, n, place);
        }
    }
};

void move_rows(int threads, std::int64_t rows, const Move& move) {
    for_blocks(threads, rows * move.columns, rows, row_block(move.columns),
               [&](std::int64_t, std::int64_t begin, std::int64_t end) {
                   for (std::int64_t row = begin; row < end; ++row) move(row);
               });
}

/// Extents of a whole matrix and of the columns [first, first + c) of it.
struct Extents {
    std::int64_t rows, columns, part;
};

Extents extents(const View& whole, std::int64_t first, const View& part, const char* verb) {
    if (whole.shape.rank() != 2 || part.shape.rank() != 2 || whole.shape[0] != part.shape[0] || first < 0 ||
        first + part.shape[1] > whole.shape[1])
        throw failure(std::string("cpu ") + verb + ": columns from " + std::to_string(first) + " on of " +
                      whole.shape.text() + " as " + part.shape.text());
    return {whole.shape[0], whole.shape[1], part.shape[1]};
}

}  // namespace

void CpuOps::take_columns(View x, std::int64_t first, View y) {
    const Extents e = extents(x, first, y, "take_columns");
    move_rows(threads_, e.rows,
              {Reals(x, e.rows * e.columns, "take_columns"), Reals(y, e.rows * e.part, "take_columns"),
               e.columns, first, e.part, 0, e.part});
}

void CpuOps::put_columns(View x, std::int64_t first, View y) {
    const Extents e = extents(y, first, x, "put_columns");
    move_rows(threads_, e.rows,
              {Reals(x, e.rows * e.part, "put_columns"), Reals(y, e.rows * e.columns, "put_columns"), e.part,
               0, e.columns, first, e.part});
}

}  // namespace trireme::cpu
