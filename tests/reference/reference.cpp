#include "reference/reference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace trireme::reference {
namespace {

using std::size_t;

size_t at(std::int64_t i) {
    return static_cast<size_t>(i);
}

Values zeros(std::int64_t n) {
    return Values(at(n), 0.0);
}

double sigmoid(double x) {
    return 1 / (1 + std::exp(-x));
}

/// Calls visit(x index, kernel index, y index) for every product of a convolution.
template <class Visit>
void conv_products(const Window& w, const Visit& visit) {
    const std::int64_t per_group = w.c / w.groups, out_per_group = w.out / w.groups;
    for (std::int64_t n = 0; n < w.n; ++n)
        for (std::int64_t i = 0; i < w.out_h(); ++i)
            for (std::int64_t j = 0; j < w.out_w(); ++j)
                for (std::int64_t o = 0; o < w.out; ++o)
                    for (std::int64_t c = 0; c < per_group; ++c)
                        for (std::int64_t u = 0; u < w.kernel_h; ++u)
                            for (std::int64_t v = 0; v < w.kernel_w; ++v) {
                                const std::int64_t h = i * w.stride_h - w.padding_h + u * w.dilation_h;
                                const std::int64_t l = j * w.stride_w - w.padding_w + v * w.dilation_w;
                                if (h < 0 || h >= w.h || l < 0 || l >= w.w) continue;
                                const std::int64_t channel = o / out_per_group * per_group + c;
                                visit(at(((n * w.h + h) * w.w + l) * w.c + channel),
                                      at(((o * per_group + c) * w.kernel_h + u) * w.kernel_w + v),
                                      at(((n * w.out_h() + i) * w.out_w() + j) * w.out + o));
                            }
}

std::int64_t conv_outputs(const Window& w) {
    return w.n * w.out_h() * w.out_w() * w.out;
}

/// Normalizes groups of `length` elements; index(g, i) is where element i of group g lies.
template <class Index>
Normalized normalize(const Values& x, std::int64_t groups, std::int64_t length, double eps,
                     const Index& index, const Values& gamma, const Values& beta, bool per_group) {
    Normalized result{Values(x.size()), zeros(groups), zeros(groups)};
    for (std::int64_t g = 0; g < groups; ++g) {
        double mean = 0, variance = 0;
        for (std::int64_t i = 0; i < length; ++i) mean += x[index(g, i)];
        mean /= static_cast<double>(length);
        for (std::int64_t i = 0; i < length; ++i)
            variance += (x[index(g, i)] - mean) * (x[index(g, i)] - mean);
        variance /= static_cast<double>(length);
        for (std::int64_t i = 0; i < length; ++i) {
            const size_t parameter = at(per_group ? g : i);
            result.y[index(g, i)] =
                gamma[parameter] * (x[index(g, i)] - mean) / std::sqrt(variance + eps) + beta[parameter];
        }
        result.mean[at(g)] = mean;
        result.variance[at(g)] = variance;
    }
    return result;
}

}  // namespace

double activate(Activation kind, double x) {
    switch (kind) {
        case Activation::none:
            return x;
        case Activation::relu:
            return x > 0 ? x : 0;
        case Activation::gelu:
            return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
        case Activation::gelu_tanh:
            return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
        case Activation::silu:
            return x * sigmoid(x);
        case Activation::tanh:
            return std::tanh(x);
        case Activation::sigmoid:
            return sigmoid(x);
    }
    return 0;
}

double derivative(Activation kind, double x) {
    if (kind == Activation::relu) return x > 0 ? 1 : 0;
    constexpr double h = 1e-5;
    return (activate(kind, x + h) - activate(kind, x - h)) / (2 * h);
}

Values activate(Activation kind, const Values& x) {
    Values y(x.size());
    for (size_t i = 0; i < x.size(); ++i) y[i] = activate(kind, x[i]);
    return y;
}

Values matmul(const Values& a, const Values& b, const Values& bias, std::int64_t m, std::int64_t n,
              std::int64_t k, bool transpose_a, bool transpose_b) {
    Values c = zeros(m * n);
    for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
            double sum = bias.empty() ? 0 : bias[at(j)];
            for (std::int64_t l = 0; l < k; ++l)
                sum +=
                    a[at(transpose_a ? l * m + i : i * k + l)] * b[at(transpose_b ? j * k + l : l * n + j)];
            c[at(i * n + j)] = sum;
        }
    return c;
}

Values sum_rows(const Values& x, std::int64_t columns) {
    Values sum = zeros(columns);
    for (size_t i = 0; i < x.size(); ++i) sum[i % at(columns)] += x[i];
    return sum;
}

Values conv(const Window& w, const Values& x, const Values& kernel, const Values& bias) {
    Values y = zeros(conv_outputs(w));
    if (!bias.empty())
        for (size_t i = 0; i < y.size(); ++i) y[i] = bias[i % bias.size()];
    conv_products(w, [&](size_t i, size_t k, size_t o) { y[o] += x[i] * kernel[k]; });
    return y;
}

Values conv_backward_data(const Window& w, const Values& dy, const Values& kernel) {
    Values dx = zeros(w.n * w.h * w.w * w.c);
    conv_products(w, [&](size_t i, size_t k, size_t o) { dx[i] += dy[o] * kernel[k]; });
    return dx;
}

Values conv_backward_weights(const Window& w, const Values& x, const Values& dy) {
    Values dk = zeros(w.out * (w.c / w.groups) * w.kernel_h * w.kernel_w);
    conv_products(w, [&](size_t i, size_t k, size_t o) { dk[k] += dy[o] * x[i]; });
    return dk;
}

Pooled pool(Pool kind, const Window& w, const Values& x) {
    Pooled result;
    for (std::int64_t n = 0; n < w.n; ++n)
        for (std::int64_t i = 0; i < w.out_h(); ++i)
            for (std::int64_t j = 0; j < w.out_w(); ++j)
                for (std::int64_t c = 0; c < w.c; ++c) {
                    double best = -std::numeric_limits<double>::infinity(), sum = 0;
                    std::int64_t winner = -1;
                    for (std::int64_t u = 0; u < w.kernel_h; ++u)
                        for (std::int64_t v = 0; v < w.kernel_w; ++v) {
                            const std::int64_t h = i * w.stride_h - w.padding_h + u * w.dilation_h;
                            const std::int64_t l = j * w.stride_w - w.padding_w + v * w.dilation_w;
                            if (h < 0 || h >= w.h || l < 0 || l >= w.w) continue;
                            const double value = x[at(((n * w.h + h) * w.w + l) * w.c + c)];
                            sum += value;
                            if (value > best) {
                                best = value;
                                winner = h * w.w + l;
                            }
                        }
                    result.y.push_back(
                        kind == Pool::max ? best : sum / static_cast<double>(w.kernel_h * w.kernel_w));
                    result.index.push_back(static_cast<std::int32_t>(winner));
                }
    return result;
}

Values pool_backward(Pool kind, const Window& w, const Values& dy, const std::vector<std::int32_t>& index) {
    Values dx = zeros(w.n * w.h * w.w * w.c);
    size_t o = 0;
    for (std::int64_t n = 0; n < w.n; ++n)
        for (std::int64_t i = 0; i < w.out_h(); ++i)
            for (std::int64_t j = 0; j < w.out_w(); ++j)
                for (std::int64_t c = 0; c < w.c; ++c, ++o) {
                    if (kind == Pool::max) {
                        dx[at((n * w.h * w.w + index[o]) * w.c + c)] += dy[o];
                        continue;
                    }
                    for (std::int64_t u = 0; u < w.kernel_h; ++u)
                        for (std::int64_t v = 0; v < w.kernel_w; ++v) {
                            const std::int64_t h = i * w.stride_h - w.padding_h + u * w.dilation_h;
                            const std::int64_t l = j * w.stride_w - w.padding_w + v * w.dilation_w;
                            if (h < 0 || h >= w.h || l < 0 || l >= w.w) continue;
                            dx[at(((n * w.h + h) * w.w + l) * w.c + c)] +=
                                dy[o] / static_cast<double>(w.kernel_h * w.kernel_w);
                        }
                }
    return dx;
}

Normalized batchnorm(const Values& x, const Values& gamma, const Values& beta, double eps) {
    const auto channels = static_cast<std::int64_t>(gamma.size());
    const std::int64_t rows = static_cast<std::int64_t>(x.size()) / channels;
    return normalize(
        x, channels, rows, eps, [channels](std::int64_t g, std::int64_t i) { return at(i * channels + g); },
        gamma, beta, true);
}

Normalized layernorm(const Values& x, const Values& gamma, const Values& beta, double eps) {
    const auto columns = static_cast<std::int64_t>(gamma.size());
    const std::int64_t rows = static_cast<std::int64_t>(x.size()) / columns;
    return normalize(
        x, rows, columns, eps, [columns](std::int64_t g, std::int64_t i) { return at(g * columns + i); },
        gamma, beta, false);
}

Loss cross_entropy(const Values& logits, const std::vector<std::int32_t>& labels, double smoothing,
                   std::int32_t ignored, double scale) {
    Loss result;
    result.gradient = Values(logits.size(), 0.0);
    const size_t classes = labels.empty() ? 0 : logits.size() / labels.size();
    for (size_t r = 0; r < labels.size(); ++r) {
        if (labels[r] == ignored) continue;
        const double* x = logits.data() + r * classes;
        const double* top = std::max_element(x, x + classes);
        double sum = 0;
        for (size_t c = 0; c < classes; ++c) sum += std::exp(x[c] - *top);
        for (size_t c = 0; c < classes; ++c) {
            const double log_p = x[c] - *top - std::log(sum);
            const double target =
                (c == at(labels[r]) ? 1 - smoothing : 0) + smoothing / static_cast<double>(classes);
            result.loss -= target * log_p;
            result.gradient[r * classes + c] = scale * (std::exp(log_p) - target);
        }
        result.count += 1;
        result.correct += top - x == labels[r] ? 1 : 0;
    }
    return result;
}

Loss squared_error(const Values& x, const Values& target, std::int64_t outputs, double scale) {
    Loss result;
    const auto k = static_cast<double>(outputs);
    result.gradient = Values(x.size());
    result.count = static_cast<double>(x.size()) / k;
    for (size_t i = 0; i < x.size(); ++i) {
        const double error = x[i] - target[i];
        result.loss += error * error / k;
        result.correct += std::fabs(error) / k;
        result.gradient[i] = 2 * error * scale / k;
    }
    return result;
}

Loss binary_cross_entropy(const Values& x, const Values& target, std::int64_t outputs, double scale) {
    Loss result;
    const auto k = static_cast<double>(outputs);
    result.gradient = Values(x.size());
    result.count = static_cast<double>(x.size()) / k;
    for (size_t i = 0; i < x.size(); ++i) {
        result.loss += (std::max(x[i], 0.0) - x[i] * target[i] + std::log1p(std::exp(-std::fabs(x[i])))) / k;
        result.correct += (x[i] > 0) == (target[i] > 0.5) ? 1 / k : 0;
        result.gradient[i] = (sigmoid(x[i]) - target[i]) * scale / k;
    }
    return result;
}

Values dropout(const RandomStream& stream, std::int64_t first, float p, const Values& x) {
    Values y(x.size(), 0.0);
    for (size_t i = 0; i < x.size(); ++i) {
        const float chance = unit_interval(stream.word(static_cast<std::uint64_t>(first) + i));
        if (chance >= p) y[i] = x[i] / (1 - static_cast<double>(p));
    }
    return y;
}

}  // namespace trireme::reference
