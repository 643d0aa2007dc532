// Gradients of attention, from what forward has left (Dao et al. 2022). With p_ij = exp(s_ij - log_sums_i):
//   dv_j = Σ_i p_ij·dy_i,  ds_ij = p_ij·(dy_i·v_j - D_i) with D_i = dy_i·y_i,
//   dq_i = scale·Σ_j ds_ij·k_j,  dk_j = scale·Σ_i ds_ij·q_i.
// One kernel has the keys, one the queries: each sum is one block's, in one order, and nothing is added
// atomically.
#include "ops/cuda/attention.cuh"
#include "ops/cuda/cuda_ops.hpp"

namespace trireme::cuda {
namespace {

/// D. [n, heads, t] A warp takes a row.
__global__ void __launch_bounds__(threads)
    dots_kernel(AttentionShape s, std::int64_t rows, const void* y, const void* dy, DType type, float* dots) {
    for (std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * warps + warp_of(); r < rows;
         r += static_cast<std::int64_t>(gridDim.x) * warps) {
        const std::int64_t head = r / s.t % s.heads, sequence = r / s.t / s.heads, row = r % s.t;
        const std::int64_t at = ((sequence * s.t + row) * s.heads + head) * s.d;
        float sum = 0;
        for (int c = lane_of(); c < s.d; c += 32) sum += load(y, type, at + c) * load(dy, type, at + c);
        sum = warp_sum(sum);
        if (lane_of() == 0) dots[r] = sum;
    }
}

/// dk and dv of a tile of keys, summed over the queries of all heads that read it.
template <int parts>
__global__ void __launch_bounds__(threads)
    keys_kernel(AttentionShape s, const void* q, const void* k, const void* v, const void* dy, DType type,
                const float* log_sums, const float* dots, void* dk, void* dv) {
    const int d = s.d, pitch = d + 1;
    float* keys = dynamic_shared<float>();            // [own_rows, d]
    float* values = keys + own_rows * d;              // [own_rows, d]
    float* queries = values + own_rows * d;           // [other_rows, pitch]
    float* gradients = queries + other_rows * pitch;  // [other_rows, pitch]
    float* weights = gradients + other_rows * pitch + 2 * warp_of() * rows_of_a_warp * other_rows;
    float* slopes = weights + rows_of_a_warp * other_rows;
    const std::int64_t sequence = blockIdx.x / s.kv_heads, kv_head = blockIdx.x % s.kv_heads;
    const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * own_rows;
    const std::int64_t mine = begin + warp_of() * rows_of_a_warp;
    const HeadRows k_rows(k, type, sequence, kv_head, s.t, s.kv_heads, d),
        v_rows(v, type, sequence, kv_head, s.t, s.kv_heads, d);
    load_tile(k_rows, begin, own_rows, s.t, d, keys, d);
    load_tile(v_rows, begin, own_rows, s.t, d, values, d);
    float dk_sum[rows_of_a_warp][parts], dv_sum[rows_of_a_warp][parts];
    set_zero(dk_sum);
    set_zero(dv_sum);
    for (std::int64_t head = kv_head * s.group(); head < (kv_head + 1) * s.group(); ++head) {
        const HeadRows q_rows(q, type, sequence, head, s.t, s.heads, d),
            dy_rows(dy, type, sequence, head, s.t, s.heads, d);
        const std::int64_t line = (sequence * s.heads + head) * s.t;
        for (std::int64_t first = s.causal ? begin / other_rows * other_rows : 0; first < s.t;
             first += other_rows) {
            __syncthreads();
            load_tile(q_rows, first, other_rows, s.t, d, queries, pitch);
            load_tile(dy_rows, first, other_rows, s.t, d, gradients, pitch);
            __syncthreads();
            float score[rows_of_a_warp], slope[rows_of_a_warp];
            products(keys + warp_of() * rows_of_a_warp * d, d, queries, pitch, score);
            products(values + warp_of() * rows_of_a_warp * d, d, gradients, pitch, slope);
            const std::int64_t query = first + lane_of();
            const float log_sum = query < s.t ? log_sums[line + query] : 0.0f;
            const float dot = query < s.t ? dots[line + query] : 0.0f;
#pragma unroll
            for (int r = 0; r < rows_of_a_warp; ++r) {
                const float p = sees(s, query, mine + r) ? expf(score[r] * s.scale - log_sum) : 0.0f;
                weights[r * other_rows + lane_of()] = p;
                slopes[r * other_rows + lane_of()] = p * (slope[r] - dot);
            }
            __syncwarp();
            add_weighted(weights, gradients, pitch, d, dv_sum);
            add_weighted(slopes, queries, pitch, d, dk_sum);
            __syncwarp();
        }
    }
    float scale[rows_of_a_warp], one[rows_of_a_warp];
#pragma unroll
    for (int r = 0; r < rows_of_a_warp; ++r) {
        scale[r] = s.scale;
        one[r] = 1;
    }
    store_rows(dk, k_rows, mine, s.t, d, dk_sum, scale);
    store_rows(dv, v_rows, mine, s.t, d, dv_sum, one);
}

/// dq of a tile of queries; it may take the place of dy, whose tile is in shared memory by then.
template <int parts>
__global__ void __launch_bounds__(threads)
    queries_kernel(AttentionShape s, const void* q, const void* k, const void* v, const void* dy, DType type,
                   const float* log_sums, const float* dots, void* dq) {
    const int d = s.d, pitch = d + 1;
    float* queries = dynamic_shared<float>();   // [own_rows, d]
    float* gradients = queries + own_rows * d;  // [own_rows, d]
    float* keys = gradients + own_rows * d;     // [other_rows, pitch]
    float* values = keys + other_rows * pitch;  // [other_rows, pitch]
    float* slopes = values + other_rows * pitch + warp_of() * rows_of_a_warp * other_rows;
    const std::int64_t sequence = blockIdx.x / s.heads, head = blockIdx.x % s.heads;
    const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * own_rows;
    const std::int64_t mine = begin + warp_of() * rows_of_a_warp, line = blockIdx.x * s.t;
    const HeadRows q_rows(q, type, sequence, head, s.t, s.heads, d),
        dy_rows(dy, type, sequence, head, s.t, s.heads, d);
    const HeadRows k_rows(k, type, sequence, head / s.group(), s.t, s.kv_heads, d),
        v_rows(v, type, sequence, head / s.group(), s.t, s.kv_heads, d);
    load_tile(q_rows, begin, own_rows, s.t, d, queries, d);
    load_tile(dy_rows, begin, own_rows, s.t, d, gradients, d);
    float sum[rows_of_a_warp][parts];
    set_zero(sum);
    const std::int64_t end = s.causal && begin + own_rows < s.t ? begin + own_rows : s.t;
    for (std::int64_t first = 0; first < end; first += other_rows) {
        __syncthreads();
        load_tile(k_rows, first, other_rows, s.t, d, keys, pitch);
        load_tile(v_rows, first, other_rows, s.t, d, values, pitch);
        __syncthreads();
        float score[rows_of_a_warp], slope[rows_of_a_warp];
        products(queries + warp_of() * rows_of_a_warp * d, d, keys, pitch, score);
        products(gradients + warp_of() * rows_of_a_warp * d, d, values, pitch, slope);
#pragma unroll
        for (int r = 0; r < rows_of_a_warp; ++r) {
            float ds = 0;
            if (sees(s, mine + r, first + lane_of()))
                ds =
                    expf(score[r] * s.scale - log_sums[line + mine + r]) * (slope[r] - dots[line + mine + r]);
            slopes[r * other_rows + lane_of()] = ds;
        }
        __syncwarp();
        add_weighted(slopes, keys, pitch, d, sum);
        __syncwarp();
    }
    float scale[rows_of_a_warp];
#pragma unroll
    for (int r = 0; r < rows_of_a_warp; ++r) scale[r] = s.scale;
    store_rows(dq, q_rows, mine, s.t, d, sum, scale);
}

}  // namespace

void CudaOps::attention_backward(const Attention& args, View dy, View dq, View dk, View dv) {
    const char* verb = "attention_backward";
    const AttentionOperands o(args, verb);
    const std::int64_t queries = args.q.count(), keys = args.k.count(), rows = args.n * args.heads * args.t;
    const Real from = real(dy, queries, verb), to_q = real(dq, queries, verb), to_k = real(dk, keys, verb),
               to_v = real(dv, keys, verb);
    for (const Real* other : {&from, &to_q, &to_k, &to_v})
        if (other->type != o.q.type)
            throw refusal(verb, std::string(name_of(other->type)) + " beside queries of " +
                                    std::string(name_of(o.q.type)));
    const float* log_sums = floats(args.log_sums, rows, "attention_backward log_sums");
    if (queries == 0) return;
    float* dots = scratch_.reserve_of<float>(rows);
    const cudaStream_t stream = device_.stream();
    launch(stream, covering(rows, warps, 16 * device_.multiprocessors()), dots_kernel, o.shape, rows,
           o.y.data, from.data, o.q.type, dots);
    const int d = o.shape.d;
    const std::size_t tiles = static_cast<std::size_t>(2 * own_rows * d + 2 * other_rows * (d + 1)),
                      weights = static_cast<std::size_t>(own_rows * other_rows);
    by_depth(d, [&](auto depth) {
        constexpr int parts = decltype(depth)::value;
        launch(stream,
               {args.n * args.kv_heads, divided_up(args.t, own_rows), (tiles + 2 * weights) * sizeof(float)},
               keys_kernel<parts>, o.shape, o.q.data, o.k.data, o.v.data, from.data, o.q.type, log_sums, dots,
               to_k.data, to_v.data);
        launch(stream, {args.n * args.heads, divided_up(args.t, own_rows), (tiles + weights) * sizeof(float)},
               queries_kernel<parts>, o.shape, o.q.data, o.k.data, o.v.data, from.data, o.q.type, log_sums,
               dots, to_q.data);
    });
}

}  // namespace trireme::cuda
