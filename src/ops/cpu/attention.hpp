// What both directions of attention share: where the heads lie in memory, products of tiles, and how the work
// is handed to threads.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>

#include "ops/cpu/onednn.hpp"
#include "ops/cpu/parallel.hpp"
#include "ops/cpu/reals.hpp"
#include "ops/cpu/scratch.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme::cpu {

/// How many queries and keys meet in a tile of scores: 64 KiB, which stay in a second-level cache. The second
/// is a multiple of the first so that under the causal mask each row of a tile that is visited sees a key.
constexpr std::int64_t query_tile = 64, key_tile = 256;
static_assert(key_tile % query_tile == 0);
/// From row to row of a tile of scores; a power of two would put a column into few sets of the cache.
constexpr std::int64_t score_stride = key_tile + 16;
constexpr std::int64_t score_floats = query_tile * score_stride;

/// Rows of scores are worked on in runs of whole vectors: what follows the last key seen is set so that it
/// counts for nothing.
constexpr std::int64_t vector_run = 16;
constexpr std::int64_t whole_runs(std::int64_t n) {
    return blocks_of(n, vector_run) * vector_run;
}
constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

/// Rows of floats, `stride` apart.
struct Rows {
    float* data = nullptr;
    std::int64_t stride = 0;

    float* row(std::int64_t r) const { return data + r * stride; }
    Rows from(std::int64_t r) const { return {row(r), stride}; }
};

/// Heads of sequences in a tensor [n, t, heads, d].
class Heads {
public:
    Heads(const View& view, const Attention& args, std::int64_t heads, std::string_view verb)
        : elements_(view, args.n * args.t * heads * args.d, verb), t_(args.t), heads_(heads), d_(args.d) {}

    DType type() const { return elements_.type(); }
    /// Positions [first, first + count) of one head, packed into `to` [count, d]: where they lie, neighbours
    /// are so far apart that products would pay a page for each and compete for few sets of the cache.
    void load(std::int64_t sequence, std::int64_t head, std::int64_t first, std::int64_t count,
              float* to) const {
        for (std::int64_t r = 0; r < count; ++r)
            widen(type(), elements_.at(place(sequence, head, first + r)), to + r * d_, d_);
    }
    /// One position of one head, where it lies or in `buffer` [d].
    const float* row(std::int64_t sequence, std::int64_t head, std::int64_t position, float* buffer) const {
        return elements_.load(place(sequence, head, position), d_, buffer);
    }
    /// From packed rows to where they belong.
    void store(std::int64_t sequence, std::int64_t head, std::int64_t first, std::int64_t count,
               const float* from) const {
        for (std::int64_t r = 0; r < count; ++r)
            narrow(type(), from + r * d_, elements_.at(place(sequence, head, first + r)), d_);
    }

private:
    std::int64_t place(std::int64_t sequence, std::int64_t head, std::int64_t position) const {
        return ((sequence * t_ + position) * heads_ + head) * d_;
    }

    Reals elements_;
    std::int64_t t_, heads_, d_;
};

/// Q, K, V and Y, checked.
struct AttentionOperands {
    Heads q, k, v, y;
    AttentionOperands(const Attention& args, std::string_view verb);
};

/// The keys that the queries before `query_end` see.
inline std::int64_t keys_seen(const Attention& args, std::int64_t query_end) {
    return args.causal ? query_end : args.t;
}
/// How many of the `columns` keys from `first_key` on the query sees: at least one, see key_tile.
inline std::int64_t visible(const Attention& args, std::int64_t query, std::int64_t first_key,
                            std::int64_t columns) {
    return args.causal ? std::min(columns, query + 1 - first_key) : columns;
}

/// Products of tiles, c = alpha·op(a)·op(b) + beta·c. They run inside of parallel regions, which no exception
/// may leave: what fails is told by status() afterwards.
class TileProducts {
public:
    /// a [m, k], b [n, k], c [m, n].
    void rows_by_rows(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, Rows a, Rows b, float beta,
                      Rows c) {
        product('N', 'T', m, n, k, alpha, a, b, beta, c);
    }
    /// a [m, k], b [k, n], c [m, n].
    void rows_by_columns(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, Rows a, Rows b,
                         float beta, Rows c) {
        product('N', 'N', m, n, k, alpha, a, b, beta, c);
    }
    /// a [k, m], b [k, n], c [m, n].
    void columns_by_columns(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, Rows a, Rows b,
                            float beta, Rows c) {
        product('T', 'N', m, n, k, alpha, a, b, beta, c);
    }
    dnnl_status_t status() const { return status_; }

private:
    void product(char transpose_a, char transpose_b, std::int64_t m, std::int64_t n, std::int64_t k,
                 float alpha, Rows a, Rows b, float beta, Rows c) {
        const dnnl_status_t status = dnnl_sgemm(transpose_a, transpose_b, m, n, k, alpha, a.data, a.stride,
                                                b.data, b.stride, beta, c.data, c.stride);
        if (status != dnnl_success) status_ = status;
    }
    dnnl_status_t status_ = dnnl_success;
};

/// A thread's working memory, handed out piece by piece on cache lines.
class Pieces {
public:
    static constexpr std::int64_t size(std::int64_t floats) { return (floats + 15) / 16 * 16; }

    explicit Pieces(float* memory) : next_(memory) {}
    float* take(std::int64_t floats) {
        float* piece = next_;
        next_ += size(floats);
        return piece;
    }

private:
    float* next_;
};

/// Calls body(memory, begin, end) on each thread for its share of the items [0, n), with `floats` of memory;
/// body returns a status of the library. `work` as in for_blocks.
template <class Body>
void for_shares(int threads, std::int64_t work, std::int64_t n, std::int64_t floats, Scratch& scratch,
                const Body& body) {
    if (n == 0) return;
    const int team = work > worth_threads ? static_cast<int>(std::min<std::int64_t>(threads, n)) : 1;
    float* memory = scratch.reserve_of<float>(static_cast<std::size_t>(team * floats));
    int worst = dnnl_success;
#pragma omp parallel num_threads(team) reduction(max : worst)
    {
        // In a team of one the library would start a team itself, and add in an order that depends on it.
        omp_set_num_threads(1);
        const std::int64_t share = omp_get_thread_num(), shares = omp_get_num_threads();
        worst = body(memory + share * floats, n * share / shares, n * (share + 1) / shares);
    }
    check(static_cast<dnnl_status_t>(worst));
}

}  // namespace trireme::cpu
