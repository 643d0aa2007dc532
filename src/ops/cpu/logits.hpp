// Rows of logits: what the losses over classes share, whole or split over ranks.
#pragma once

#include <cstdint>
#include <string>

#include "ops/cpu/lanes.hpp"
#include "ops/cpu/math.hpp"
#include "trireme/base/error.hpp"

namespace trireme::cpu {

/// @throws Error (bad data) that names the first label outside [0, classes) that is not `ignored`.
inline void check_labels(const std::int32_t* labels, std::int64_t n, std::int64_t classes,
                         std::int32_t ignored) {
    for (std::int64_t i = 0; i < n; ++i)
        if ((labels[i] < 0 || labels[i] >= classes) && labels[i] != ignored)
            throw data_error("label " + std::to_string(labels[i]) + " of sample " + std::to_string(i) +
                             " is not in [0, " + std::to_string(classes) + ")");
}

/// The largest of n > 0 elements.
inline float row_maximum(const float* x, std::int64_t n) {
    float best = x[0];
    std::int64_t i = 0;
    if (n >= 8) {
        Float8 lanes = load8(x);
        for (i = 8; i + 8 <= n; i += 8) {
            const Float8 v = load8(x + i);
            lanes = v > lanes ? v : lanes;
        }
        for (int l = 0; l < 8; ++l) best = lanes[l] > best ? lanes[l] : best;
    }
    for (; i < n; ++i) best = x[i] > best ? x[i] : best;
    return best;
}

/// e[i] = exp(x[i] - top); e may be x.
inline void shifted_exp(const float* x, float top, float* e, std::int64_t n) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) e[i] = exp_nonpositive(x[i] - top);
}

inline void scale_row(float* d, float factor, float offset, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) d[i] = d[i] * factor - offset;
}

}  // namespace trireme::cpu
