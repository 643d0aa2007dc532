// Attention in tiles with a running softmax. For a query i and the keys j that it sees,
//   s_ij = scale·q_i·k_j,  m_i = max_j s_ij,  e_ij = exp(s_ij - m_i),  z_i = Σ_j e_ij,
//   y_i = Σ_j e_ij·v_j / z_i,  log_sums_i = m_i + log z_i.
// Keys come tile by tile; when m_i grows to m'_i, what has been summed shrinks by exp(m_i - m'_i) (Milakov
// and Gimelshein 2018; Dao et al. 2022).
#include "ops/cuda/attention.cuh"
#include "ops/cuda/cuda_ops.hpp"

namespace trireme::cuda {
namespace {

template <int parts>
__global__ void __launch_bounds__(threads)
    forward_kernel(AttentionShape s, const void* q, const void* k, const void* v, void* y, DType type,
                   float* log_sums) {
    const int d = s.d, pitch = d + 1;           // so that lanes at neighbouring rows use different banks
    float* queries = dynamic_shared<float>();   // [own_rows, d]
    float* keys = queries + own_rows * d;       // [other_rows, pitch]
    float* values = keys + other_rows * pitch;  // [other_rows, pitch]
    float* weights = values + other_rows * pitch + warp_of() * rows_of_a_warp * other_rows;
    const std::int64_t sequence = blockIdx.x / s.heads, head = blockIdx.x % s.heads;
    const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * own_rows;
    const std::int64_t mine = begin + warp_of() * rows_of_a_warp;
    const HeadRows q_rows(q, type, sequence, head, s.t, s.heads, d),
        y_rows(y, type, sequence, head, s.t, s.heads, d);
    const HeadRows k_rows(k, type, sequence, head / s.group(), s.t, s.kv_heads, d),
        v_rows(v, type, sequence, head / s.group(), s.t, s.kv_heads, d);
    load_tile(q_rows, begin, own_rows, s.t, d, queries, d);
    float top[rows_of_a_warp], sum[rows_of_a_warp], result[rows_of_a_warp][parts];
    set_zero(result);
#pragma unroll
    for (int r = 0; r < rows_of_a_warp; ++r) {
        top[r] = -INFINITY;
        sum[r] = 0;
    }
    const std::int64_t end = s.causal && begin + own_rows < s.t ? begin + own_rows : s.t;
    for (std::int64_t first = 0; first < end; first += other_rows) {
        __syncthreads();
        load_tile(k_rows, first, other_rows, s.t, d, keys, pitch);
        load_tile(v_rows, first, other_rows, s.t, d, values, pitch);
        __syncthreads();
        float score[rows_of_a_warp];
        products(queries + warp_of() * rows_of_a_warp * d, d, keys, pitch, score);
#pragma unroll
        for (int r = 0; r < rows_of_a_warp; ++r) {
            const bool seen = sees(s, mine + r, first + lane_of());
            const float scaled = seen ? score[r] * s.scale : -INFINITY;
            const float before = top[r];
            top[r] = fmaxf(before, warp_max(scaled));
            const float weight = seen ? expf(scaled - top[r]) : 0.0f;
            const float shrink = top[r] > before ? expf(before - top[r]) : 1.0f;
            sum[r] = sum[r] * shrink + warp_sum(weight);
            weights[r * other_rows + lane_of()] = weight;
#pragma unroll
            for (int j = 0; j < parts; ++j) result[r][j] *= shrink;
        }
        __syncwarp();
        add_weighted(weights, values, pitch, d, result);
        __syncwarp();
    }
    float factor[rows_of_a_warp];
#pragma unroll
    for (int r = 0; r < rows_of_a_warp; ++r) {
        factor[r] = 1.0f / sum[r];
        if (log_sums != nullptr && lane_of() == 0 && mine + r < s.t)
            log_sums[blockIdx.x * s.t + mine + r] =
                static_cast<float>(static_cast<double>(top[r]) + log(static_cast<double>(sum[r])));
    }
    store_rows(y, y_rows, mine, s.t, d, result, factor);
}

}  // namespace

AttentionOperands::AttentionOperands(const Attention& args, const char* verb)
    : q(real(args.q, args.n * args.t * args.heads * args.d, verb)),
      k(real(args.k, args.n * args.t * args.kv_heads * args.d, verb)),
      v(real(args.v, args.n * args.t * args.kv_heads * args.d, verb)),
      y(real(args.y, args.n * args.t * args.heads * args.d, verb)),
      shape{args.t, args.heads, args.kv_heads, static_cast<int>(args.d), args.causal, args.scale},
      sequences(args.n) {
    if (args.kv_heads < 1 || args.heads < 1 || args.heads % args.kv_heads != 0)
        throw refusal(verb, std::to_string(args.heads) + " query heads are no multiple of " +
                                std::to_string(args.kv_heads) + " key heads");
    for (const Real* other : {&k, &v, &y})
        if (other->type != q.type)
            throw refusal(verb, std::string(name_of(other->type)) + " beside queries of " +
                                    std::string(name_of(q.type)));
    if (args.d > most_depth)
        throw refusal(verb, "heads of " + std::to_string(args.d) + " elements, expected at most " +
                                std::to_string(most_depth));
}

void CudaOps::attention_forward(const Attention& args) {
    const AttentionOperands o(args, "attention_forward");
    float* log_sums =
        optional_floats(args.log_sums, args.n * args.heads * args.t, "attention_forward log_sums");
    if (args.q.count() == 0) return;
    const int d = o.shape.d;
    const std::size_t floats_needed =
        static_cast<std::size_t>(own_rows * d + 2 * other_rows * (d + 1) + own_rows * other_rows);
    by_depth(d, [&](auto parts) {
        launch(device_.stream(),
               {args.n * args.heads, divided_up(args.t, own_rows), floats_needed * sizeof(float)},
               forward_kernel<decltype(parts)::value>, o.shape, o.q.data, o.k.data, o.v.data, o.y.data,
               o.q.type, log_sums);
    });
}

}  // namespace trireme::cuda
