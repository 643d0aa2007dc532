// Rows of logits, a warp a row: what the losses over classes share, whole or split over ranks.
#pragma once

#include <limits>

#include "ops/cuda/elements.cuh"
#include "ops/cuda/warp.cuh"

namespace trireme::cuda {
namespace {

constexpr int no_class = std::numeric_limits<int>::max();

/// A matrix of logits.
struct Logits {
    const void* data;
    DType type;
    std::int64_t rows, columns;
    bool wide;

    __device__ Pack pack(std::int64_t row, std::int64_t column, int count, float rest) const {
        return load_some(data, type, row * columns + column, count, wide, rest);
    }
    __device__ float at(std::int64_t row, std::int64_t column) const {
        return load(data, type, row * columns + column);
    }
};

/// body(column, count) for the lane's packs of a row.
template <class Body>
__device__ inline void for_packs(std::int64_t columns, const Body& body) {
    for (std::int64_t c = lane_of() * pack_size; c < columns; c += 32 * pack_size)
        body(c, some_of(c, columns));
}

/// body(row) for the warp's rows.
template <class Body>
__device__ inline void for_rows(std::int64_t rows, const Body& body) {
    for (std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * warps + warp_of(); r < rows;
         r += static_cast<std::int64_t>(gridDim.x) * warps)
        body(r);
}

/// The largest logit of a row; NaN is left out, and shows in the sum of exponentials.
__device__ inline float row_maximum(const Logits& x, std::int64_t row) {
    float best = -INFINITY;
    for_packs(x.columns, [&](std::int64_t c, int count) {
        const Pack p = x.pack(row, c, count, -INFINITY);
#pragma unroll
        for (int j = 0; j < pack_size; ++j) best = fmaxf(best, p.v[j]);
    });
    return warp_max(best);
}

struct RowSums {
    double exponentials = 0, logits = 0;
    int winner = no_class;  // the first that has the maximum
};

/// Σ exp(x - top), Σ x, and where top stands first, for all lanes.
__device__ inline RowSums row_sums(const Logits& x, std::int64_t row, float top) {
    RowSums sums;
    for_packs(x.columns, [&](std::int64_t c, int count) {
        const Pack p = x.pack(row, c, count, 0);
#pragma unroll
        for (int j = 0; j < pack_size; ++j) {
            if (j >= count) continue;
            sums.exponentials += static_cast<double>(expf(p.v[j] - top));
            sums.logits += static_cast<double>(p.v[j]);
            if (p.v[j] == top) sums.winner = min(sums.winner, static_cast<int>(c) + j);
        }
    });
    sums.exponentials = warp_sum(sums.exponentials);
    sums.logits = warp_sum(sums.logits);
    sums.winner = warp_min(sums.winner);
    return sums;
}

/// d = exp(x - top)·factor - offset, and less by `labelled` at the label; d may be x. A row that is ignored
/// has the gradient 0.
__device__ inline void row_gradient(const Logits& x, std::int64_t row, float top, bool ignored, float factor,
                                    float offset, std::int64_t label, float labelled, void* d, DType type) {
    for_packs(x.columns, [&](std::int64_t c, int count) {
        Pack p = x.pack(row, c, count, 0);
#pragma unroll
        for (int j = 0; j < pack_size; ++j) {
            const float value = expf(p.v[j] - top) * factor - offset - (c + j == label ? labelled : 0.0f);
            p.v[j] = ignored ? 0.0f : value;
        }
        store_some(d, type, row * x.columns + c, count, x.wide, p);
    });
}

/// What a sample adds to the loss whose label is none, where nobody waits for the device to tell.
__device__ inline double not_a_label() {
    return nan("");
}

/// Notes the first sample whose label is none of [0, classes) and not to be ignored.
__global__ void __launch_bounds__(threads)
    check_labels_kernel(const std::int32_t* labels, std::int64_t n, std::int64_t classes,
                        std::int32_t ignored, std::int64_t* first_bad) {
    for (std::int64_t i = global_thread(); i < n; i += all_threads())
        if ((labels[i] < 0 || labels[i] >= classes) && labels[i] != ignored)
            atomicMin(reinterpret_cast<long long*>(first_bad), static_cast<long long>(i));
}

}  // namespace
}  // namespace trireme::cuda
