#include "reference/attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace trireme::reference {
namespace {

using std::size_t;

/// Where vectors of a sequence's head begin, and the sums that attention is made of.
struct Layout {
    const Attention& shape;

    size_t query(std::int64_t n, std::int64_t h, std::int64_t i) const {
        return static_cast<size_t>(((n * shape.t + i) * shape.heads + h) * shape.d);
    }
    size_t key(std::int64_t n, std::int64_t h, std::int64_t j) const {
        const std::int64_t group = shape.heads / shape.kv_heads;
        return static_cast<size_t>(((n * shape.t + j) * shape.kv_heads + h / group) * shape.d);
    }
    double dot(const Values& a, size_t i, const Values& b, size_t j) const {
        double sum = 0;
        for (size_t c = 0; c < static_cast<size_t>(shape.d); ++c) sum += a[i + c] * b[j + c];
        return sum;
    }
    void add(Values& to, size_t i, double factor, const Values& from, size_t j) const {
        for (size_t c = 0; c < static_cast<size_t>(shape.d); ++c) to[i + c] += factor * from[j + c];
    }
    /// The probabilities of query i, one for each key that it sees; returns log Σ exp of the scores.
    double softmax(const Values& q, const Values& k, std::int64_t n, std::int64_t h, std::int64_t i,
                   Values& p) const {
        p.clear();
        double top = -std::numeric_limits<double>::infinity(), sum = 0;
        for (std::int64_t j = 0; j < (shape.causal ? i + 1 : shape.t); ++j) {
            p.push_back(static_cast<double>(shape.scale) * dot(q, query(n, h, i), k, key(n, h, j)));
            top = std::max(top, p.back());
        }
        for (const double score : p) sum += std::exp(score - top);
        const double log_sum = top + std::log(sum);
        for (double& value : p) value = std::exp(value - log_sum);
        return log_sum;
    }
};

template <class Visit>
void for_queries(const Attention& shape, const Visit& visit) {
    for (std::int64_t n = 0; n < shape.n; ++n)
        for (std::int64_t h = 0; h < shape.heads; ++h)
            for (std::int64_t i = 0; i < shape.t; ++i) visit(n, h, i);
}

}  // namespace

Attended attention(const Attention& shape, const Values& q, const Values& k, const Values& v) {
    const Layout at{shape};
    Attended result{Values(q.size(), 0.0), {}};
    Values p;
    for_queries(shape, [&](std::int64_t n, std::int64_t h, std::int64_t i) {
        result.log_sums.push_back(at.softmax(q, k, n, h, i, p));
        for (size_t j = 0; j < p.size(); ++j)
            at.add(result.y, at.query(n, h, i), p[j], v, at.key(n, h, static_cast<std::int64_t>(j)));
    });
    return result;
}

AttentionGradients attention_backward(const Attention& shape, const Values& q, const Values& k,
                                      const Values& v, const Values& dy) {
    const Layout at{shape};
    AttentionGradients result{Values(q.size(), 0.0), Values(k.size(), 0.0), Values(v.size(), 0.0)};
    Values p, dp;
    for_queries(shape, [&](std::int64_t n, std::int64_t h, std::int64_t i) {
        at.softmax(q, k, n, h, i, p);
        const size_t query = at.query(n, h, i);
        double mean = 0;
        dp.clear();
        for (size_t j = 0; j < p.size(); ++j) {
            dp.push_back(at.dot(dy, query, v, at.key(n, h, static_cast<std::int64_t>(j))));
            mean += p[j] * dp[j];
        }
        for (size_t j = 0; j < p.size(); ++j) {
            const size_t key = at.key(n, h, static_cast<std::int64_t>(j));
            const double ds = static_cast<double>(shape.scale) * p[j] * (dp[j] - mean);
            at.add(result.dv, key, p[j], dy, query);
            at.add(result.dk, key, ds, q, query);
            at.add(result.dq, query, ds, k, key);
        }
    });
    return result;
}

Values rotate(const Values& x, std::int64_t t, std::int64_t heads, std::int64_t d, std::int64_t first,
              double base, bool back) {
    Values y = x;
    for (std::int64_t row = 0; row < static_cast<std::int64_t>(x.size()) / (heads * d); ++row)
        for (std::int64_t h = 0; h < heads; ++h)
            for (std::int64_t i = 0; i < d / 2; ++i) {
                const double position = static_cast<double>(first + row % t);
                const double angle = (back ? -1 : 1) * position *
                                     std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(d));
                const auto a = static_cast<size_t>((row * heads + h) * d + i);
                const size_t b = a + static_cast<size_t>(d / 2);
                y[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
                y[b] = x[a] * std::sin(angle) + x[b] * std::cos(angle);
            }
    return y;
}

}  // namespace trireme::reference
