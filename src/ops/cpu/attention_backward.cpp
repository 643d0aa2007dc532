// The gradients of attention (Dao et al. 2022). Probabilities p_ij = e^(s_ij - log_sums_i) are computed
// again, tile by tile; with D_i = Σ_c dy_ic·y_ic,
//   dv_j = Σ_i p_ij·dy_i,   ds_ij = p_ij·(dy_i·v_j - D_i),   dq_i = scale·Σ_j ds_ij·k_j,
//   dk_j = scale·Σ_i ds_ij·q_i.
// A key head of a sequence is one thread's, with all query heads that read it, in order: no bit depends on
// the thread count.
#include "ops/cpu/attention.hpp"

#include <algorithm>

#include "ops/cpu/checks.hpp"
#include "ops/cpu/cpu_ops.hpp"
#include "ops/cpu/lanes.hpp"
#include "ops/cpu/math.hpp"

namespace trireme::cpu {
namespace {

struct Gradients {
    Heads dy, dq, dk, dv;
};

/// Σ a·b, n so small that float lanes do.
double dot(const float* a, const float* b, std::int64_t n) {
    Float8 lanes = {};
    std::int64_t i = 0;
    for (; i + 8 <= n; i += 8) lanes += load8(a + i) * load8(b + i);
    double rest = 0;
    for (; i < n; ++i) rest += static_cast<double>(a[i] * b[i]);
    return total(lanes) + rest;
}

/// p = e^(s - log_sum) and ds = p·(dp - mean) in place, n a number of whole runs.
void probabilities_and_gradients(float* __restrict s, float* __restrict dp, float log_sum, float mean,
                                 std::int64_t n) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) {
        const float p = exp_nonpositive(s[i] - log_sum);
        s[i] = p;
        dp[i] = p * (dp[i] - mean);
    }
}

/// One row of a tile, zeros where the query does not see the key.
void gradient_row(float* s, float* dp, float log_sum, float mean, std::int64_t seen, std::int64_t columns) {
    const std::int64_t n = whole_runs(seen);
    std::fill(s + seen, s + n, minus_infinity);
    std::fill(dp + seen, dp + n, 0.0F);
    probabilities_and_gradients(s, dp, log_sum, mean, n);
    if (n >= columns) return;
    std::fill(s + n, s + columns, 0.0F);
    std::fill(dp + n, dp + columns, 0.0F);
}

/// One thread's key heads.
class BackwardHeads {
public:
    static std::int64_t floats(const Attention& args) {
        const std::int64_t whole = Pieces::size(args.t * args.d), tile = Pieces::size(query_tile * args.d);
        return 4 * whole + 3 * tile + Pieces::size(args.d) + 2 * Pieces::size(score_floats);
    }

    BackwardHeads(const Attention& args, const AttentionOperands& operands, const Gradients& gradients,
                  const float* log_sums, float* memory)
        : args_(args), operands_(operands), gradients_(gradients), log_sums_(log_sums) {
        Pieces pieces(memory);
        const std::int64_t whole = args.t * args.d, tile = query_tile * args.d;
        dk_ = {pieces.take(whole), args.d};
        dv_ = {pieces.take(whole), args.d};
        dq_ = {pieces.take(tile), args.d};
        q_ = {pieces.take(tile), args.d};
        y_row_ = pieces.take(args.d);
        dy_ = {pieces.take(tile), args.d};
        scores_ = {pieces.take(score_floats), score_stride};
        d_scores_ = {pieces.take(score_floats), score_stride};
        k_ = {pieces.take(whole), args.d};
        v_ = {pieces.take(whole), args.d};
    }

    void compute(std::int64_t sequence, std::int64_t key_head) {
        const std::int64_t group = args_.heads / args_.kv_heads;
        operands_.k.load(sequence, key_head, 0, args_.t, k_.data);
        operands_.v.load(sequence, key_head, 0, args_.t, v_.data);
        std::fill_n(dk_.data, args_.t * args_.d, 0.0F);
        std::fill_n(dv_.data, args_.t * args_.d, 0.0F);
        for (std::int64_t head = key_head * group; head < (key_head + 1) * group; ++head)
            for (std::int64_t begin = 0; begin < args_.t; begin += query_tile)
                add_queries(sequence, head, begin);
        gradients_.dk.store(sequence, key_head, 0, args_.t, dk_.data);
        gradients_.dv.store(sequence, key_head, 0, args_.t, dv_.data);
    }

    dnnl_status_t status() const { return products_.status(); }

private:
    /// A tile of queries with all keys that it sees: adds to dk and dv, sets dq. dy is read before dq is set,
    /// which may lie in its place.
    void add_queries(std::int64_t sequence, std::int64_t head, std::int64_t begin) {
        const std::int64_t d = args_.d, rows = std::min(query_tile, args_.t - begin);
        operands_.q.load(sequence, head, begin, rows, q_.data);
        gradients_.dy.load(sequence, head, begin, rows, dy_.data);
        const float* log_sums = log_sums_ + (sequence * args_.heads + head) * args_.t + begin;
        float means[query_tile];
        for (std::int64_t r = 0; r < rows; ++r)
            means[r] =
                static_cast<float>(dot(dy_.row(r), operands_.y.row(sequence, head, begin + r, y_row_), d));
        const std::int64_t end = keys_seen(args_, begin + rows);
        for (std::int64_t key = 0; key < end; key += key_tile) {
            const std::int64_t columns = std::min(key_tile, end - key);
            products_.rows_by_rows(rows, columns, d, args_.scale, q_, k_.from(key), 0, scores_);
            products_.rows_by_rows(rows, columns, d, 1, dy_, v_.from(key), 0, d_scores_);
            for (std::int64_t r = 0; r < rows; ++r)
                gradient_row(scores_.row(r), d_scores_.row(r), log_sums[r], means[r],
                             visible(args_, begin + r, key, columns), columns);
            products_.columns_by_columns(columns, d, rows, 1, scores_, dy_, 1, dv_.from(key));
            products_.columns_by_columns(columns, d, rows, args_.scale, d_scores_, q_, 1, dk_.from(key));
            products_.rows_by_columns(rows, d, columns, args_.scale, d_scores_, k_.from(key), key > 0 ? 1 : 0,
                                      dq_);
        }
        gradients_.dq.store(sequence, head, begin, rows, dq_.data);
    }

    const Attention& args_;
    const AttentionOperands& operands_;
    const Gradients& gradients_;
    const float* log_sums_;
    TileProducts products_;
    float* y_row_ = nullptr;
    Rows q_, dy_, k_, v_, dq_, dk_, dv_, scores_, d_scores_;
};

}  // namespace

void CpuOps::attention_backward(const Attention& args, View dy, View dq, View dk, View dv) {
    const AttentionOperands operands(args, "attention_backward");
    const Gradients gradients{{dy, args, args.heads, "attention_backward dy"},
                              {dq, args, args.heads, "attention_backward dq"},
                              {dk, args, args.kv_heads, "attention_backward dk"},
                              {dv, args, args.kv_heads, "attention_backward dv"}};
    const float* log_sums =
        floats(args.log_sums, args.n * args.heads * args.t, "attention_backward log_sums");
    const std::int64_t items = args.t == 0 ? 0 : args.n * args.kv_heads;
    for_shares(threads_, args.n * args.heads * args.t * args.t, items, BackwardHeads::floats(args), scratch_,
               [&](float* memory, std::int64_t begin, std::int64_t end) {
                   BackwardHeads work(args, operands, gradients, log_sums, memory);
                   for (std::int64_t item = begin; item < end; ++item)
                       work.compute(item / args.kv_heads, item % args.kv_heads);
                   return work.status();
               });
}

}  // namespace trireme::cpu
