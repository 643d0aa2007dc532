#pragma once
// What attention and rotary positions mean, with the whole matrix of scores, in naive loops over doubles.

#include "reference/reference.hpp"

namespace trireme::reference {

struct Attended {
    Values y;         ///< [n, t, heads, d]
    Values log_sums;  ///< [n, heads, t]
};
/// Of `shape`, only the extents, causal and scale are used.
Attended attention(const Attention& shape, const Values& q, const Values& k, const Values& v);

struct AttentionGradients {
    Values dq, dk, dv;
};
AttentionGradients attention_backward(const Attention& shape, const Values& q, const Values& k,
                                      const Values& v, const Values& dy);

/// x [n, t, heads, d].
Values rotate(const Values& x, std::int64_t t, std::int64_t heads, std::int64_t d, std::int64_t first,
              double base, bool back);

}  // namespace trireme::reference
