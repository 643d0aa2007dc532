#pragma once
// What the operations of transformers mean, in naive loops over doubles. The oracle of the tests; no part of
// the program.

#include <cstdint>
#include <vector>

#include "reference/reference.hpp"

namespace trireme::reference {

/// Zhang and Sennrich 2019, equation 4, with eps under the root as the LLaMA models have it (Touvron et al.
/// 2023).
struct RmsNormalized {
    Values y, inv_rms;
};
RmsNormalized rmsnorm(const Values& x, const Values& gamma, double eps);
struct RmsGradients {
    Values dx, d_gamma;
};
RmsGradients rmsnorm_backward(const Values& x, const Values& gamma, const Values& dy, double eps);

/// Rows of the table by number, zeros for ids outside [first, first + rows).
Values embedding(const std::vector<std::int32_t>& ids, const Values& table, std::int64_t columns,
                 std::int64_t first);
/// The gradient of the table's `rows` rows.
Values embedding_backward(const std::vector<std::int32_t>& ids, const Values& dy, std::int64_t columns,
                          std::int64_t first, std::int64_t rows);
Values add_row(const Values& x, const Values& row);

/// SwiGLU's gate (Shazeer 2020, equation 6): silu(a)·b.
Values gate(const Values& a, const Values& b);
struct GateGradients {
    Values da, db;
};
GateGradients gate_backward(const Values& a, const Values& b, const Values& dy);

}  // namespace trireme::reference
