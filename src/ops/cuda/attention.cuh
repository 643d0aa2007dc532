// What the kernels of attention share: how its tensors lie, and tiles of their rows in shared memory.
//
// A block has a tile of `own` rows of one head, queries or keys, a few for each warp, and goes through the
// other side in tiles of 32, one for each lane of a warp. Products along d are taken with the lanes over the
// other side's rows, sums over these rows with the lanes over d.
#pragma once

#include "ops/cuda/checks.hpp"
#include "ops/cuda/dynamic_shared.hpp"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/warp.cuh"
#include "trireme/ops/ops.hpp"

namespace trireme::cuda {

constexpr int rows_of_a_warp = 4;
constexpr int own_rows = warps * rows_of_a_warp;
constexpr int other_rows = 32;
/// A head's elements that a kernel holds in registers, 32 at a time.
constexpr int most_depth = 256;

/// Extents as kernels take them.
struct AttentionShape {
    std::int64_t t, heads, kv_heads;
    int d;
    bool causal;
    float scale;

    __host__ __device__ std::int64_t group() const { return heads / kv_heads; }
};

/// Rows of one head of a tensor [n, t, heads, d].
struct HeadRows {
    const void* data;
    DType type;
    std::int64_t base, pitch;  // of row 0; from one row to the next

    __device__ HeadRows(const void* data_, DType type_, std::int64_t sequence, std::int64_t head,
                        std::int64_t t, std::int64_t heads, int d)
        : data(data_), type(type_), base((sequence * t * heads + head) * d), pitch(heads * d) {}
    __device__ std::int64_t at(std::int64_t row, int c) const { return base + row * pitch + c; }
};

namespace {

/// to[r·pitch + c] = row first + r of `from`, zeros from row t on.
__device__ inline void load_tile(const HeadRows& from, std::int64_t first, int rows, std::int64_t t, int d,
                                 float* to, int pitch) {
    for (int i = static_cast<int>(threadIdx.x); i < rows * d; i += threads) {
        const int r = i / d, c = i % d;
        to[r * pitch + c] = first + r < t ? load(from.data, from.type, from.at(first + r, c)) : 0.0f;
    }
}

/// product[r] = Σ_c own[r, c]·other[lane, c] for a warp's rows.
__device__ inline void products(const float* own, int d, const float* other, int pitch,
                                float (&product)[rows_of_a_warp]) {
#pragma unroll
    for (int r = 0; r < rows_of_a_warp; ++r) product[r] = 0;
#pragma unroll 4
    for (int c = 0; c < d; ++c) {
        const float value = other[lane_of() * pitch + c];
#pragma unroll
        for (int r = 0; r < rows_of_a_warp; ++r) product[r] += own[r * d + c] * value;
    }
}

/// sum[r][j] += Σ_o weight[r, o]·other[o, lane + 32j] for a warp's rows.
template <int parts>
__device__ inline void add_weighted(const float* weight, const float* other, int pitch, int d,
                                    float (&sum)[rows_of_a_warp][parts]) {
#pragma unroll 4  // all at once would need more registers than there are
    for (int o = 0; o < other_rows; ++o) {
        float w[rows_of_a_warp];
#pragma unroll
        for (int r = 0; r < rows_of_a_warp; ++r) w[r] = weight[r * other_rows + o];
#pragma unroll
        for (int j = 0; j < parts; ++j) {
            const int c = lane_of() + 32 * j;
            const float value = c < d ? other[o * pitch + c] : 0.0f;
#pragma unroll
            for (int r = 0; r < rows_of_a_warp; ++r) sum[r][j] += w[r] * value;
        }
    }
}

template <int parts>
__device__ inline void set_zero(float (&sum)[rows_of_a_warp][parts]) {
#pragma unroll
    for (int r = 0; r < rows_of_a_warp; ++r)
#pragma unroll
        for (int j = 0; j < parts; ++j) sum[r][j] = 0;
}

/// Row first + r of `to` = factor[r]·sum[r], for those below t.
template <int parts>
__device__ inline void store_rows(void* data, const HeadRows& to, std::int64_t first, std::int64_t t, int d,
                                  const float (&sum)[rows_of_a_warp][parts],
                                  const float (&factor)[rows_of_a_warp]) {
#pragma unroll
    for (int r = 0; r < rows_of_a_warp; ++r)
#pragma unroll
        for (int j = 0; j < parts; ++j) {
            const int c = lane_of() + 32 * j;
            if (c < d && first + r < t) store(data, to.type, to.at(first + r, c), sum[r][j] * factor[r]);
        }
}

/// True where key j is one that query i sees.
__device__ inline bool sees(const AttentionShape& s, std::int64_t query, std::int64_t key) {
    return query < s.t && key < s.t && (!s.causal || key <= query);
}

}  // namespace

/// run(std::integral_constant) with the number of 32s that d takes, rounded up to a power of two.
template <class Run>
void by_depth(int d, const Run& run) {
    if (d <= 32)
        run(std::integral_constant<int, 1>());
    else if (d <= 64)
        run(std::integral_constant<int, 2>());
    else if (d <= 128)
        run(std::integral_constant<int, 4>());
    else
        run(std::integral_constant<int, 8>());
}

/// The operands of an attention, checked.
struct AttentionOperands {
    AttentionOperands(const Attention& args, const char* verb);

    Real q, k, v, y;
    AttentionShape shape;
    std::int64_t sequences;
};

}  // namespace trireme::cuda
