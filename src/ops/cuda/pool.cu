// Max and average pooling over channels-last images. Forward: a thread for each output. Backward: a thread
// for each input, which adds what the windows that see it have for it, so that nothing is added atomically.
#include "ops/cuda/cuda_ops.hpp"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.hpp"

namespace trireme::cuda {
namespace {

/// The channel, column, row and sample of an element of a channels-last image.
struct Place {
    std::int64_t c, w, h, n;

    __device__ Place(std::int64_t i, std::int64_t channels, std::int64_t height, std::int64_t width) {
        c = i % channels;
        i /= channels;
        w = i % width;
        i /= width;
        h = i % height;
        n = i / height;
    }
};

// A NaN wins over everything, and the first of equals.
__global__ void __launch_bounds__(threads)
    forward_kernel(bool max, Window w, std::int64_t out_h, std::int64_t out_w, const void* x, DType x_type,
                   void* y, DType y_type, std::int32_t* index) {
    const std::int64_t count = w.n * out_h * out_w * w.c;
    for (std::int64_t i = global_thread(); i < count; i += all_threads()) {
        const Place at(i, w.c, out_h, out_w);
        float best = -INFINITY, sum = 0;
        std::int32_t winner = -1;
        for (std::int64_t u = 0; u < w.kernel_h; ++u) {
            const std::int64_t row = at.h * w.stride_h - w.padding_h + u * w.dilation_h;
            if (row < 0 || row >= w.h) continue;
            for (std::int64_t v = 0; v < w.kernel_w; ++v) {
                const std::int64_t column = at.w * w.stride_w - w.padding_w + v * w.dilation_w;
                if (column < 0 || column >= w.w) continue;
                const float value = load(x, x_type, ((at.n * w.h + row) * w.w + column) * w.c + at.c);
                sum += value;
                // Also where all that is in sight is -inf, a window has a winner.
                if (winner < 0 || value > best || (isnan(value) && !isnan(best))) {
                    best = value;
                    winner = static_cast<std::int32_t>(row * w.w + column);
                }
            }
        }
        store(y, y_type, i, max ? best : sum / static_cast<float>(w.kernel_h * w.kernel_w));
        if (index != nullptr) index[i] = winner;
    }
}

__global__ void __launch_bounds__(threads)
    backward_kernel(bool max, Window w, std::int64_t out_h, std::int64_t out_w, const void* dy, DType dy_type,
                    const std::int32_t* index, void* dx, DType dx_type) {
    const std::int64_t count = w.n * w.h * w.w * w.c;
    for (std::int64_t i = global_thread(); i < count; i += all_threads()) {
        const Place at(i, w.c, w.h, w.w);
        const auto self = static_cast<std::int32_t>(at.h * w.w + at.w);
        float sum = 0;
        for (std::int64_t u = 0; u < w.kernel_h; ++u) {
            const std::int64_t top = at.h + w.padding_h - u * w.dilation_h;
            if (top < 0 || top % w.stride_h != 0 || top / w.stride_h >= out_h) continue;
            for (std::int64_t v = 0; v < w.kernel_w; ++v) {
                const std::int64_t left = at.w + w.padding_w - v * w.dilation_w;
                if (left < 0 || left % w.stride_w != 0 || left / w.stride_w >= out_w) continue;
                const std::int64_t from =
                    ((at.n * out_h + top / w.stride_h) * out_w + left / w.stride_w) * w.c + at.c;
                if (!max || index[from] == self) sum += load(dy, dy_type, from);
            }
        }
        store(dx, dx_type, i, max ? sum : sum / static_cast<float>(w.kernel_h * w.kernel_w));
    }
}

}  // namespace

void CudaOps::pool_forward(Pool kind, const Window& window, View x, View y, View index) {
    const std::int64_t in = window.n * window.c * window.h * window.w,
                       out = window.n * window.c * window.out_h() * window.out_w();
    const Real from = real(x, in, "pooling"), to = real(y, out, "pooling");
    std::int32_t* winners = index && kind == Pool::max ? integers(index, out, "pooling index") : nullptr;
    if (out == 0) return;
    launch(device_.stream(), covering(out, threads, 64 * device_.multiprocessors()), forward_kernel,
           kind == Pool::max, window, window.out_h(), window.out_w(), from.data, from.type, to.data, to.type,
           winners);
}

void CudaOps::pool_backward(Pool kind, const Window& window, View dy, View index, View dx) {
    const std::int64_t in = window.n * window.c * window.h * window.w,
                       out = window.n * window.c * window.out_h() * window.out_w();
    const Real from = real(dy, out, "pooling backward"), to = real(dx, in, "pooling backward");
    const std::int32_t* winners = kind == Pool::max ? integers(index, out, "pooling index") : nullptr;
    if (in == 0) return;
    launch(device_.stream(), covering(in, threads, 64 * device_.multiprocessors()), backward_kernel,
           kind == Pool::max, window, window.out_h(), window.out_w(), from.data, from.type, winners, to.data,
           to.type);
}

}  // namespace trireme::cuda
