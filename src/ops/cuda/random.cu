// Dropout and random fills. An element's value is a function of its global index, and has the bits that the
// CPU gives it: the arithmetic is the CPU's own, and this file is compiled without fused multiply-adds.
#include <cmath>

#include "ops/cpu/math.hpp"
#include "ops/cuda/cuda_ops.hpp"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.hpp"

namespace trireme::cuda {
namespace {

/// Words of eight elements from `element` on, of which the first may stand anywhere in its block of four.
struct Words {
    std::uint32_t word[pack_size];

    __device__ Words(const RandomStream& stream, std::int64_t element) {
        const auto skip = static_cast<int>(element % 4);
        const auto block = static_cast<std::uint64_t>(element / 4);
        std::uint32_t all[12];
#pragma unroll
        for (int b = 0; b < 3; ++b) {
            const PhiloxBlock four = stream.block(block + static_cast<std::uint64_t>(b));
#pragma unroll
            for (int l = 0; l < 4; ++l) all[4 * b + l] = four[static_cast<std::size_t>(l)];
        }
        // Written so that all stays in registers.
#pragma unroll
        for (int j = 0; j < pack_size; ++j)
            word[j] = skip == 0 ? all[j] : skip == 1 ? all[j + 1] : skip == 2 ? all[j + 2] : all[j + 3];
    }
};

/// Element i of n stands in row i / columns; `stride` elements of the stream lie between rows.
__global__ void __launch_bounds__(threads)
    dropout_kernel(RandomStream stream, std::int64_t first, std::int64_t columns, std::int64_t stride,
                   std::uint32_t threshold, float scale, std::int64_t n, bool wide, const void* x,
                   DType x_type, void* y, DType y_type) {
    for (std::int64_t i = global_thread() * pack_size; i < n; i += all_threads() * pack_size) {
        const int count = some_of(i, n);
        Pack p = load_some(x, x_type, i, count, wide);
        std::int64_t row = i / columns, column = i % columns;
        if (column + count <= columns) {
            const Words words(stream, first + row * stride + column);
            for (int j = 0; j < pack_size; ++j)
                p.v[j] = (words.word[j] >> 8) >= threshold ? p.v[j] * scale : 0.0f;
        } else {
#pragma unroll
            for (int j = 0; j < pack_size; ++j) {
                const std::int64_t element = first + row * stride + column;
                p.v[j] = (Words(stream, element).word[0] >> 8) >= threshold ? p.v[j] * scale : 0.0f;
                if (++column == columns) {
                    column = 0;
                    ++row;
                }
            }
        }
        store_some(y, y_type, i, count, wide, p);
    }
}

__global__ void __launch_bounds__(threads) uniform_kernel(RandomStream stream, std::int64_t first, float low,
                                                          float high, std::int64_t n, bool wide, float* y) {
    const float width = high - low;
    for (std::int64_t i = global_thread() * pack_size; i < n; i += all_threads() * pack_size) {
        const Words words(stream, first + i);
        Pack p;
        for (int j = 0; j < pack_size; ++j) {
            const float value = low + unit_interval(words.word[j]) * width;
            p.v[j] = value < high ? value : low;  // rounding may reach the excluded end
        }
        store_some(y, DType::f32, i, some_of(i, n), wide, p);
    }
}

/// Box and Muller (1958): √(-2 ln u)·cos(2πt), u in (0, 1], t in [0, 1), from two words of the element's own
/// block.
__global__ void __launch_bounds__(threads)
    normal_kernel(RandomStream stream, std::int64_t first, float mean, float std, std::int64_t n, float* y) {
    for (std::int64_t i = global_thread(); i < n; i += all_threads()) {
        const PhiloxBlock block = stream.block(static_cast<std::uint64_t>(first + i));
        const float u = (static_cast<float>(static_cast<std::int32_t>(block[0] >> 8)) + 0.5F) * 0x1p-24F;
        const float t = static_cast<float>(static_cast<std::int32_t>(block[1] >> 8)) * 0x1p-24F;
        y[i] = mean + std * (sqrtf(-2.0F * cpu::log_unit(u)) * cpu::cos_turn(t));
    }
}

}  // namespace

void CudaOps::dropout(const RandomStream& stream, std::int64_t first, std::int64_t stride, float p, View x,
                      View y) {
    const std::int64_t n = y.count();
    const Real from = real(x, n, "dropout"), to = real(y, n, "dropout");
    if (!(p >= 0 && p <= 1)) throw refusal("dropout", "p = " + std::to_string(p) + " is not in [0, 1]");
    if (p == 0) return copy(x, y);
    if (p == 1) return fill(y, 0);
    if (n == 0) return;
    // unit_interval(word) >= p, both sides times 2^24 (exact), is a comparison of integers.
    const auto threshold = static_cast<std::uint32_t>(std::ceil(static_cast<double>(p) * 0x1p24));
    const auto scale = static_cast<float>(1 / (1 - static_cast<double>(p)));
    const std::int64_t last = x.shape.rank() > 0 ? x.shape[x.shape.rank() - 1] : 1;
    const std::int64_t columns = stride <= 0 || stride == last ? n : last;
    launch(device_.stream(), covering(n, threads * pack_size, 16 * device_.multiprocessors()), dropout_kernel,
           stream, first, columns, stride, threshold, scale, n, aligned(from.data, to.data), from.data,
           from.type, to.data, to.type);
}

void CudaOps::fill_uniform(const RandomStream& stream, std::int64_t first, float low, float high, View y) {
    const std::int64_t n = y.count();
    float* to = floats(y, n, "fill_uniform");
    if (n > 0)
        launch(device_.stream(), covering(n, threads * pack_size, 16 * device_.multiprocessors()),
               uniform_kernel, stream, first, low, high, n, aligned(static_cast<const void*>(to)), to);
}

void CudaOps::fill_normal(const RandomStream& stream, std::int64_t first, float mean, float std, View y) {
    const std::int64_t n = y.count();
    float* to = floats(y, n, "fill_normal");
    if (n > 0)
        launch(device_.stream(), covering(n, threads, 64 * device_.multiprocessors()), normal_kernel, stream,
               first, mean, std, n, to);
}

}  // namespace trireme::cuda
