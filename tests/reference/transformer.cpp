#include "reference/transformer.hpp"

#include <cmath>

namespace trireme::reference {

using std::size_t;

RmsNormalized rmsnorm(const Values& x, const Values& gamma, double eps) {
    const size_t columns = gamma.size();
    RmsNormalized result;
    for (size_t at = 0; at < x.size(); at += columns) {
        double squares = 0;
        for (size_t c = 0; c < columns; ++c) squares += x[at + c] * x[at + c];
        const double inv_rms = 1 / std::sqrt(squares / static_cast<double>(columns) + eps);
        result.inv_rms.push_back(inv_rms);
        for (size_t c = 0; c < columns; ++c) result.y.push_back(gamma[c] * x[at + c] * inv_rms);
    }
    return result;
}

RmsGradients rmsnorm_backward(const Values& x, const Values& gamma, const Values& dy, double eps) {
    const size_t columns = gamma.size();
    const Values inv_rms = rmsnorm(x, gamma, eps).inv_rms;
    RmsGradients result{Values(x.size()), Values(columns, 0.0)};
    for (size_t r = 0; r < inv_rms.size(); ++r) {
        double mean = 0;
        for (size_t c = 0; c < columns; ++c) {
            const double x_hat = x[r * columns + c] * inv_rms[r], slope = dy[r * columns + c];
            result.d_gamma[c] += slope * x_hat;
            mean += gamma[c] * slope * x_hat / static_cast<double>(columns);
        }
        for (size_t c = 0; c < columns; ++c) {
            const size_t i = r * columns + c;
            result.dx[i] = inv_rms[r] * (gamma[c] * dy[i] - x[i] * inv_rms[r] * mean);
        }
    }
    return result;
}

Values embedding(const std::vector<std::int32_t>& ids, const Values& table, std::int64_t columns,
                 std::int64_t first) {
    const auto rows = static_cast<std::int64_t>(table.size()) / columns;
    Values y;
    for (const std::int32_t id : ids)
        for (std::int64_t c = 0; c < columns; ++c) {
            const bool here = id >= first && id < first + rows;
            y.push_back(here ? table[static_cast<size_t>((id - first) * columns + c)] : 0);
        }
    return y;
}

Values embedding_backward(const std::vector<std::int32_t>& ids, const Values& dy, std::int64_t columns,
                          std::int64_t first, std::int64_t rows) {
    Values d_table(static_cast<size_t>(rows * columns), 0.0);
    for (size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] < first || ids[i] >= first + rows) continue;
        for (std::int64_t c = 0; c < columns; ++c)
            d_table[static_cast<size_t>((ids[i] - first) * columns + c)] +=
                dy[i * static_cast<size_t>(columns) + static_cast<size_t>(c)];
    }
    return d_table;
}

Values add_row(const Values& x, const Values& row) {
    Values y(x);
    for (size_t i = 0; i < y.size(); ++i) y[i] += row[i % row.size()];
    return y;
}

Values gate(const Values& a, const Values& b) {
    Values y(a.size());
    for (size_t i = 0; i < y.size(); ++i) y[i] = activate(Activation::silu, a[i]) * b[i];
    return y;
}

GateGradients gate_backward(const Values& a, const Values& b, const Values& dy) {
    GateGradients result{Values(a.size()), Values(a.size())};
    for (size_t i = 0; i < a.size(); ++i) {
        result.da[i] = dy[i] * b[i] * derivative(Activation::silu, a[i]);
        result.db[i] = dy[i] * activate(Activation::silu, a[i]);
    }
    return result;
}

}  // namespace trireme::reference
