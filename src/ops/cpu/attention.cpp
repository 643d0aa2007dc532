// Attention in tiles with a running softmax. For a query i and the keys j that it sees,
//   s_ij = scale·q_i·k_j,  m_i = max_j s_ij,  e_ij = exp(s_ij - m_i),  z_i = Σ_j e_ij,
//   y_i = Σ_j e_ij·v_j / z_i,  log_sums_i = m_i + log z_i.
// Keys come tile by tile; when m_i grows to m'_i, what has been summed shrinks by exp(m_i - m'_i) (Milakov
// and Gimelshein 2018; Dao et al. 2022). A tile of queries is one thread's, so that no bit depends on the
// thread count.
#include "ops/cpu/attention.hpp"

#include <cmath>
#include <string>

#include "ops/cpu/checks.hpp"
#include "ops/cpu/cpu_ops.hpp"
#include "ops/cpu/lanes.hpp"
#include "ops/cpu/logits.hpp"
#include "ops/cpu/math.hpp"

namespace trireme::cpu {

AttentionOperands::AttentionOperands(const Attention& args, std::string_view verb)
    : q(args.q, args, args.heads, verb),
      k(args.k, args, args.kv_heads, verb),
      v(args.v, args, args.kv_heads, verb),
      y(args.y, args, args.heads, verb) {
    const auto refuse = [verb](const std::string& why) {
        throw failure("cpu " + std::string(verb) + ": " + why);
    };
    if (args.kv_heads < 1 || args.heads < 1 || args.heads % args.kv_heads != 0)
        refuse(std::to_string(args.heads) + " query heads are no multiple of " +
               std::to_string(args.kv_heads) + " key heads");
    for (const Heads* other : {&k, &v, &y})
        if (other->type() != q.type())
            refuse(std::string(name_of(other->type())) + " beside queries of " +
                   std::string(name_of(q.type())));
}

namespace {

// In the next two, n is a number of whole runs.

/// The largest of `least` and x[0, n).
float maximum(const float* x, std::int64_t n, float least) {
    Float8 lanes[2] = {Float8{} + least, Float8{} + least};
    for (std::int64_t i = 0; i < n; i += vector_run)
        for (int part = 0; part < 2; ++part) {
            const Float8 v = load8(x + i + 8 * part);
            lanes[part] = v > lanes[part] ? v : lanes[part];
        }
    const Float8 all = lanes[1] > lanes[0] ? lanes[1] : lanes[0];
    for (int l = 0; l < 8; ++l) least = all[l] > least ? all[l] : least;
    return least;
}

/// Σ x[0, n), with n so small that float lanes do.
double short_sum(const float* x, std::int64_t n) {
    Float8 lanes[2] = {};
    for (std::int64_t i = 0; i < n; i += vector_run)
        for (int part = 0; part < 2; ++part) lanes[part] += load8(x + i + 8 * part);
    return total(lanes[0] + lanes[1]);
}

void scale_row(float* x, float factor, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) x[i] *= factor;
}

/// A query's softmax so far.
struct Running {
    float top = minus_infinity;
    double sum = 0;

    /// Takes in s[0, seen): they become e^(s - top), the rest of the columns zero. Returns the factor by
    /// which what was summed before has shrunk.
    float add(float* s, std::int64_t seen, std::int64_t columns) {
        const float before = top;
        const std::int64_t n = whole_runs(seen);
        std::fill(s + seen, s + n, minus_infinity);
        top = maximum(s, n, top);
        shifted_exp(s, top, s, n);
        if (n < columns) std::fill(s + n, s + columns, 0.0F);
        const float shrink = top > before ? exp_nonpositive(before - top) : 1.0F;
        sum = sum * static_cast<double>(shrink) + short_sum(s, n);
        return shrink;
    }
};

/// One thread's tiles.
class ForwardTiles {
public:
    static std::int64_t floats(const Attention& args) {
        const std::int64_t whole = Pieces::size(args.t * args.d), tile = Pieces::size(query_tile * args.d);
        return 2 * whole + 2 * tile + Pieces::size(score_floats);
    }

    ForwardTiles(const Attention& args, const AttentionOperands& operands, float* log_sums, float* memory)
        : args_(args), operands_(operands), log_sums_(log_sums) {
        Pieces pieces(memory);
        q_ = {pieces.take(query_tile * args.d), args.d};
        y_ = {pieces.take(query_tile * args.d), args.d};
        scores_ = {pieces.take(score_floats), score_stride};
        k_ = {pieces.take(args.t * args.d), args.d};
        v_ = {pieces.take(args.t * args.d), args.d};
    }

    void compute(std::int64_t sequence, std::int64_t head, std::int64_t begin) {
        load_keys(sequence, head / (args_.heads / args_.kv_heads));
        const std::int64_t d = args_.d, rows = std::min(query_tile, args_.t - begin);
        operands_.q.load(sequence, head, begin, rows, q_.data);
        Running running[query_tile];
        const std::int64_t end = keys_seen(args_, begin + rows);
        for (std::int64_t key = 0; key < end; key += key_tile) {
            const std::int64_t columns = std::min(key_tile, end - key);
            products_.rows_by_rows(rows, columns, d, args_.scale, q_, k_.from(key), 0, scores_);
            for (std::int64_t r = 0; r < rows; ++r) {
                const std::int64_t seen = visible(args_, begin + r, key, columns);
                const float shrink = running[r].add(scores_.row(r), seen, columns);
                if (key > 0 && shrink < 1) scale_row(y_.row(r), shrink, d);
            }
            products_.rows_by_columns(rows, d, columns, 1, scores_, v_.from(key), key > 0 ? 1 : 0, y_);
        }
        for (std::int64_t r = 0; r < rows; ++r)
            scale_row(y_.row(r), static_cast<float>(1 / running[r].sum), d);
        operands_.y.store(sequence, head, begin, rows, y_.data);
        if (log_sums_ == nullptr) return;
        float* log_sums = log_sums_ + (sequence * args_.heads + head) * args_.t + begin;
        for (std::int64_t r = 0; r < rows; ++r)
            log_sums[r] = static_cast<float>(static_cast<double>(running[r].top) + std::log(running[r].sum));
    }

    dnnl_status_t status() const { return products_.status(); }

private:
    /// Neighbouring tiles mostly share their keys, which then are copied once.
    void load_keys(std::int64_t sequence, std::int64_t head) {
        const std::int64_t wanted = sequence * args_.kv_heads + head;
        if (wanted == loaded_) return;
        operands_.k.load(sequence, head, 0, args_.t, k_.data);
        operands_.v.load(sequence, head, 0, args_.t, v_.data);
        loaded_ = wanted;
    }

    const Attention& args_;
    const AttentionOperands& operands_;
    float* log_sums_;
    TileProducts products_;
    Rows q_, k_, v_, y_, scores_;
    std::int64_t loaded_ = -1;
};

/// Tiles 0, last, 1, last but one, ...: under the causal mask, any run of them costs about as much as another
/// of its length.
std::int64_t balanced(std::int64_t number, std::int64_t tiles) {
    return number % 2 == 0 ? number / 2 : tiles - 1 - number / 2;
}

}  // namespace

void CpuOps::attention_forward(const Attention& args) {
    const AttentionOperands operands(args, "attention_forward");
    float* log_sums =
        optional_floats(args.log_sums, args.n * args.heads * args.t, "attention_forward log_sums");
    const std::int64_t tiles = blocks_of(args.t, query_tile);
    for_shares(
        threads_, args.n * args.heads * args.t * args.t, args.n * args.heads * tiles,
        ForwardTiles::floats(args), scratch_, [&](float* memory, std::int64_t begin, std::int64_t end) {
            ForwardTiles work(args, operands, log_sums, memory);
            for (std::int64_t item = begin; item < end; ++item) {
                const std::int64_t row = item / tiles;
                work.compute(row / args.heads, row % args.heads, balanced(item % tiles, tiles) * query_tile);
            }
            return work.status();
        });
}

}  // namespace trireme::cpu
