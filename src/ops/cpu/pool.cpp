// Max and average pooling over channels-last images: the channel loop is innermost.
#include <algorithm>
#include <limits>

#include "ops/cpu/checks.hpp"
#include "ops/cpu/cpu_ops.hpp"
#include "ops/cpu/parallel.hpp"
#include "ops/cpu/reals.hpp"

namespace trireme::cpu {
namespace {

/// The input rows and columns that one output position sees, as window offsets [u0, u1) x [v0, v1).
struct Sight {
    std::int64_t top, left, u0, u1, v0, v1;

    Sight(const Window& w, std::int64_t i, std::int64_t j)
        : top(i * w.stride_h - w.padding_h), left(j * w.stride_w - w.padding_w) {
        clip(top, w.dilation_h, w.kernel_h, w.h, u0, u1);
        clip(left, w.dilation_w, w.kernel_w, w.w, v0, v1);
    }
    static void clip(std::int64_t start, std::int64_t dilation, std::int64_t kernel, std::int64_t extent,
                     std::int64_t& first, std::int64_t& last) {
        first = start < 0 ? (-start + dilation - 1) / dilation : 0;
        last = start >= extent ? 0 : std::min(kernel, (extent - 1 - start) / dilation + 1);
        first = std::min(first, kernel);
        last = std::max(first, last);
    }
    /// position(input position within the plane) for every input position in sight, row by row.
    template <class Visit>
    void visit(const Window& w, const Visit& position) const {
        for (std::int64_t u = u0; u < u1; ++u)
            for (std::int64_t v = v0; v < v1; ++v)
                position((top + u * w.dilation_h) * w.w + left + v * w.dilation_w);
    }
};

// A NaN wins over everything, and the first of equals.
void take_max(const float* __restrict x, float* __restrict best, std::int64_t n) {
    for (std::int64_t c = 0; c < n; ++c) {
        const bool wins = (x[c] > best[c]) | (x[c] != x[c]);
        best[c] = wins ? x[c] : best[c];
    }
}

void take_max(const float* __restrict x, std::int32_t position, float* __restrict best,
              std::int32_t* __restrict index, std::int64_t n) {
    for (std::int64_t c = 0; c < n; ++c) {
        const bool wins = (x[c] > best[c]) | ((x[c] != x[c]) & (best[c] == best[c]));
        best[c] = wins ? x[c] : best[c];
        index[c] = wins ? position : index[c];
    }
}

void add_scaled_row(const float* __restrict x, float factor, float* __restrict y, std::int64_t n) {
    for (std::int64_t c = 0; c < n; ++c) y[c] += factor * x[c];
}

void add_where(const std::int32_t* __restrict index, std::int32_t position, const float* __restrict dy,
               float* __restrict dx, std::int64_t n) {
    for (std::int64_t c = 0; c < n; ++c) dx[c] += index[c] == position ? dy[c] : 0;
}

/// One sample.
void max_forward(const Window& w, const float* x, float* y, std::int32_t* index) {
    for (std::int64_t i = 0; i < w.out_h(); ++i)
        for (std::int64_t j = 0; j < w.out_w(); ++j, y += w.c) {
            std::fill_n(y, w.c, -std::numeric_limits<float>::infinity());
            const Sight sight(w, i, j);
            if (index == nullptr) {
                sight.visit(w, [&](std::int64_t p) { take_max(x + p * w.c, y, w.c); });
                continue;
            }
            std::int32_t first = -1;  // also where all that is in sight is -inf, a window has a winner
            sight.visit(w, [&](std::int64_t p) { first = first < 0 ? static_cast<std::int32_t>(p) : first; });
            std::fill_n(index, w.c, first);
            sight.visit(w, [&](std::int64_t p) {
                take_max(x + p * w.c, static_cast<std::int32_t>(p), y, index, w.c);
            });
            index += w.c;
        }
}

void average_forward(const Window& w, const float* x, float* y) {
    const float share = 1.0F / static_cast<float>(w.kernel_h * w.kernel_w);
    for (std::int64_t i = 0; i < w.out_h(); ++i)
        for (std::int64_t j = 0; j < w.out_w(); ++j, y += w.c) {
            std::fill_n(y, w.c, 0.0F);
            Sight(w, i, j).visit(w, [&](std::int64_t p) { add_scaled_row(x + p * w.c, share, y, w.c); });
        }
}

void max_backward(const Window& w, const float* dy, const std::int32_t* index, float* dx) {
    // A small window is cheaper to compare with each position than to scatter from.
    const bool compare = w.kernel_h * w.kernel_w <= 4;
    for (std::int64_t i = 0; i < w.out_h(); ++i)
        for (std::int64_t j = 0; j < w.out_w(); ++j, dy += w.c, index += w.c) {
            if (compare)
                Sight(w, i, j).visit(w, [&](std::int64_t p) {
                    add_where(index, static_cast<std::int32_t>(p), dy, dx + p * w.c, w.c);
                });
            else
                for (std::int64_t c = 0; c < w.c; ++c)
                    if (index[c] >= 0) dx[index[c] * w.c + c] += dy[c];
        }
}

void average_backward(const Window& w, const float* dy, float* dx) {
    const float share = 1.0F / static_cast<float>(w.kernel_h * w.kernel_w);
    for (std::int64_t i = 0; i < w.out_h(); ++i)
        for (std::int64_t j = 0; j < w.out_w(); ++j, dy += w.c)
            Sight(w, i, j).visit(w, [&](std::int64_t p) { add_scaled_row(dy, share, dx + p * w.c, w.c); });
}

}  // namespace

void CpuOps::pool_forward(Pool kind, const Window& window, View x, View y, View index) {
    const std::int64_t in = window.c * window.h * window.w, out = window.c * window.out_h() * window.out_w();
    const Reals from(x, window.n * in, "pooling"), to(y, window.n * out, "pooling");
    std::int32_t* winners =
        index && kind == Pool::max ? integers(index, window.n * out, "pooling index") : nullptr;
    const std::int64_t widened = from.buffer_size(in);
    const ThreadBuffers buffers(scratch_, threads_, widened + to.buffer_size(out));
    for_blocks(threads_, window.n * in, window.n, 1, [&](std::int64_t i, std::int64_t, std::int64_t) {
        float* buffer = buffers.mine();
        const float* inputs = from.load(i * in, in, buffer);
        float* results = to.place(i * out, buffer + widened);
        if (kind == Pool::max)
            max_forward(window, inputs, results, winners == nullptr ? nullptr : winners + i * out);
        else
            average_forward(window, inputs, results);
        to.store(i * out, out, results);
    });
}

void CpuOps::pool_backward(Pool kind, const Window& window, View dy, View index, View dx) {
    const std::int64_t in = window.c * window.h * window.w, out = window.c * window.out_h() * window.out_w();
    const Reals from(dy, window.n * out, "pooling backward"), to(dx, window.n * in, "pooling backward");
    const std::int32_t* winners =
        kind == Pool::max ? integers(index, window.n * out, "pooling index") : nullptr;
    const std::int64_t widened = from.buffer_size(out);
    const ThreadBuffers buffers(scratch_, threads_, widened + to.buffer_size(in));
    for_blocks(threads_, window.n * in, window.n, 1, [&](std::int64_t i, std::int64_t, std::int64_t) {
        float* buffer = buffers.mine();
        const float* gradients = from.load(i * out, out, buffer);
        float* results = to.place(i * in, buffer + widened);
        std::fill_n(results, in, 0.0F);
        if (kind == Pool::max)
            max_backward(window, gradients, winners + i * out, results);
        else
            average_backward(window, gradients, results);
        to.store(i * in, in, results);
    });
}

}  // namespace trireme::cpu
