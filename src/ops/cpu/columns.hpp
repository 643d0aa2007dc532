// Sums down the columns of a [rows, C] matrix: the shared part of bias gradients, batch and layer norm. Short
// runs are added in float, in many columns at once; the runs are added in double; the cut depends on the
// shape alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/cpu/parallel.hpp"
#include "ops/cpu/reals.hpp"
#include "ops/cpu/scratch.hpp"

namespace trireme::cpu {

/// How [rows, C] is cut. A line is as many whole rows as make enough lanes for vector code; lane l belongs to
/// column l mod C. A block is a run of lines, a chunk a run of blocks: what one thread sums before chunks are
/// added.
struct ColumnPlan {
    std::int64_t columns, lanes, elements;
    std::int64_t block;   ///< elements, a multiple of lanes
    std::int64_t chunk;   ///< elements, a multiple of block
    std::int64_t chunks;  ///< at most 32

    ColumnPlan(std::int64_t rows, std::int64_t columns_) : columns(columns_), elements(rows * columns_) {
        constexpr std::int64_t enough_lanes = 64, most_chunks = 32, shortest = 16;
        lanes = columns >= enough_lanes ? columns : columns * (enough_lanes / columns);
        block = std::max(shortest, element_block / lanes) * lanes;
        chunk = std::max<std::int64_t>(1, blocks_of(blocks_of(elements, block), most_chunks)) * block;
        chunks = blocks_of(elements, chunk);
    }
};

/// K sums per column. body(begin, end, run) adds elements [begin, end), a whole block or the last one, to
/// K·lanes floats, sum k of lane l at run[k·lanes + l]. Returns K·C doubles in scratch: sum k of column c at
/// [k·C + c].
template <int K, class Body>
double* column_sums(int threads, const ColumnPlan& plan, Scratch& scratch, const Body& body) {
    const std::int64_t sums = K * plan.columns, run_length = K * plan.lanes;
    const std::int64_t stride = sums + (run_length + 1) / 2;  // in doubles, per chunk
    double* memory =
        scratch.reserve_of<double>(static_cast<std::size_t>(std::max<std::int64_t>(1, plan.chunks) * stride));
    std::fill_n(memory, sums, 0.0);
    for_blocks(threads, plan.elements, plan.elements, plan.chunk,
               [&](std::int64_t number, std::int64_t begin, std::int64_t end) {
                   double* total = memory + number * stride;
                   float* run = reinterpret_cast<float*>(total + sums);
                   std::fill_n(total, sums, 0.0);
                   for (std::int64_t at = begin; at < end; at += plan.block) {
                       std::fill_n(run, run_length, 0.0F);
                       body(at, std::min(end, at + plan.block), run);
                       for (std::int64_t k = 0; k < K; ++k)
                           for (std::int64_t first = 0; first < plan.lanes; first += plan.columns) {
                               const float* lane = run + k * plan.lanes + first;
                               double* column = total + k * plan.columns;
                               for (std::int64_t c = 0; c < plan.columns; ++c)
                                   column[c] += static_cast<double>(lane[c]);
                           }
                   }
               });
    for (std::int64_t number = 1; number < plan.chunks; ++number)
        for (std::int64_t i = 0; i < sums; ++i) memory[i] += memory[number * stride + i];
    return memory;
}

/// body(first element, n) for pieces of [begin, end), where begin starts a line: all at once, or where there
/// is conversion as many whole lines as a Stretch holds, or parts of one line.
template <class Body>
void for_pieces(bool converted, const ColumnPlan& plan, std::int64_t begin, std::int64_t end,
                const Body& body) {
    const std::int64_t lines = std::max<std::int64_t>(1, stretch / plan.lanes) * plan.lanes;
    const std::int64_t most = converted ? lines : end - begin;
    for (std::int64_t at = begin; at < end; at += most)
        for_stretches(converted, at, std::min(end, at + most), body);
}

/// The lines of the piece of n elements from `at`, or its part of one: body(offset in the piece, first lane,
/// number of lanes).
template <class Body>
void for_lines(const ColumnPlan& plan, std::int64_t at, std::int64_t n, const Body& body) {
    const std::int64_t lane = at % plan.lanes;
    for (std::int64_t i = 0; i < n; i += plan.lanes) body(i, lane, std::min(plan.lanes, n - i));
}

/// to[c] (+)= from[c].
inline void store_sums(const double* from, float* to, std::int64_t n, bool accumulate) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(from[i]) + (accumulate ? to[i] : 0.0F);
}

}  // namespace trireme::cpu
