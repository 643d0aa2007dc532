// Loops over fixed blocks, shared by threads where the work is worth a parallel region. What a block computes
// and the order in which blocks are combined depend on the shapes alone, never on the thread count.
#pragma once

#include <algorithm>
#include <cstdint>

namespace trireme::cpu {

/// Below this many elements the start of a parallel region costs more than it brings.
constexpr std::int64_t worth_threads = 32768;
/// Elements of a block in element-wise verbs: two or three of them fit in a first-level cache.
constexpr std::int64_t element_block = 4096;

constexpr std::int64_t blocks_of(std::int64_t n, std::int64_t block) {
    return (n + block - 1) / block;
}

/// body(block index, begin, end) for each block of [0, n). `work` is the number of elements touched in all.
template <class Body>
void for_blocks(int threads, std::int64_t work, std::int64_t n, std::int64_t block, const Body& body) {
    const std::int64_t blocks = blocks_of(n, block);
    if (threads > 1 && blocks > 1 && work > worth_threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
        for (std::int64_t b = 0; b < blocks; ++b) body(b, b * block, std::min(n, (b + 1) * block));
    } else {
        for (std::int64_t b = 0; b < blocks; ++b) body(b, b * block, std::min(n, (b + 1) * block));
    }
}

/// Rows of `columns` elements, in blocks of about element_block elements.
constexpr std::int64_t row_block(std::int64_t columns) {
    return std::max<std::int64_t>(1, element_block / std::max<std::int64_t>(1, columns));
}

}  // namespace trireme::cpu
