#pragma once
// Shapes of attention and the tensors of one call, for the comparison with the oracle and for finite
// differences.

#include <cmath>
#include <vector>

#include "reference/attention.hpp"
#include "support/tensors.hpp"

namespace trireme::testing {

inline Attention attention_shape(std::int64_t n, std::int64_t t, std::int64_t heads, std::int64_t kv_heads,
                                 std::int64_t d, bool causal) {
    Attention shape;
    shape.n = n;
    shape.t = t;
    shape.heads = heads;
    shape.kv_heads = kv_heads;
    shape.d = d;
    shape.causal = causal;
    shape.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(d)));
    return shape;
}

/// Each t, on both sides of the tiles' edges, with each of d and each grouping of heads; not every triple,
/// since the oracle is slow.
inline std::vector<Attention> attention_cases() {
    struct Grouping {
        std::int64_t heads, kv_heads;
    };
    const std::vector<Grouping> groupings{{1, 1}, {2, 2}, {4, 2}, {6, 3}, {4, 1}};
    const std::vector<std::int64_t> depths{1, 3, 8, 64, 80};
    std::vector<Attention> cases;
    for (const std::int64_t t : {1, 2, 3, 17, 64, 65, 130, 257})
        for (std::size_t g = 0; g < groupings.size(); ++g)
            for (std::size_t shift = 0; shift < (t < 64 ? depths.size() : 1); ++shift)
                for (const bool causal : {true, false}) {
                    const std::int64_t d =
                        depths[(g + shift + static_cast<std::size_t>(t) % 3) % depths.size()];
                    cases.push_back(attention_shape(t < 64 ? 2 : 1, t, groupings[g].heads,
                                                    groupings[g].kv_heads, d, causal));
                }
    return cases;
}

/// Values of one call, each exactly of `type`.
struct AttentionValues {
    AttentionValues(const Attention& shape, DType type, double bound = 1) {
        const std::int64_t queries = shape.n * shape.t * shape.heads * shape.d;
        const std::int64_t keys = shape.n * shape.t * shape.kv_heads * shape.d;
        q = rounded(type, random_values(queries, 1, -bound, bound));
        k = rounded(type, random_values(keys, 2, -bound, bound));
        v = rounded(type, random_values(keys, 3));
        dy = rounded(type, random_values(queries, 4));
    }
    Values q, k, v, dy;
};

/// Their tensors, with those for the results.
struct AttentionTensors {
    AttentionTensors(const Machine& machine, const Attention& shape, DType type, const AttentionValues& from)
        : shape_(shape),
          queries{shape.n, shape.t, shape.heads, shape.d},
          keys{shape.n, shape.t, shape.kv_heads, shape.d},
          q(machine.real(type, queries, from.q)),
          k(machine.real(type, keys, from.k)),
          v(machine.real(type, keys, from.v)),
          dy(machine.real(type, queries, from.dy)),
          y(machine.real_output(type, queries)),
          dq(machine.real_output(type, queries)),
          dk(machine.real_output(type, keys)),
          dv(machine.real_output(type, keys)),
          log_sums(machine.output({shape.n, shape.heads, shape.t})) {}

    Attention args() const {
        Attention args = shape_;
        args.q = q;
        args.k = k;
        args.v = v;
        args.y = y;
        args.log_sums = log_sums;
        return args;
    }

    Attention shape_;
    Shape queries, keys;
    Real q, k, v, dy, y, dq, dk, dv;
    Tensor log_sums;
};

}  // namespace trireme::testing
