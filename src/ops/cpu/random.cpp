// Dropout and random fills. An element's value is a function of its global index, whatever is computed beside
// it.
#include <algorithm>
#include <cmath>

#include "ops/cpu/checks.hpp"
#include "ops/cpu/cpu_ops.hpp"
#include "ops/cpu/math.hpp"
#include "ops/cpu/parallel.hpp"
#include "ops/cpu/philox_lanes.hpp"
#include "ops/cpu/reals.hpp"

namespace trireme::cpu {
namespace {

/// Elements whose words are made at a time.
constexpr std::int64_t batch = 256;

/// The words of elements [4·block, 4·block + batch) in order.
void batch_words(const RandomStream& stream, std::uint64_t block, std::uint32_t* words) {
    for (std::int64_t at = 0; at < batch; at += 4 * philox_lanes, block += philox_lanes)
        philox_words(stream, block, words + at);
}

/// use(words, begin, count) with the words of elements first + begin ..., for stretches that cover [begin,
/// end).
template <class Use>
void over_words(const RandomStream& stream, std::int64_t first, std::int64_t begin, std::int64_t end,
                const Use& use) {
    std::uint32_t words[batch];
    for (std::int64_t at = begin; at < end;) {
        const std::int64_t element = first + at, skip = element % 4;
        batch_words(stream, static_cast<std::uint64_t>(element / 4), words);
        const std::int64_t count = std::min(batch - skip, end - at);
        use(words + skip, at, count);
        at += count;
    }
}

void keep(const std::uint32_t* words, std::uint32_t threshold, float scale, const float* x, float* y,
          std::int64_t n) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) y[i] = (words[i] >> 8) >= threshold ? x[i] * scale : 0.0F;
}

void uniform(const std::uint32_t* words, float low, float high, float* y, std::int64_t n) {
    const float width = high - low;
    for (std::int64_t i = 0; i < n; ++i) {
        const float value = low + unit_interval(words[i]) * width;
        y[i] = value < high ? value : low;  // rounding may reach the excluded end
    }
}

constexpr std::int64_t normal_batch = 32;

/// Box and Muller (1958): √(-2 ln u)·cos(2πt), u in (0, 1], t in [0, 1), from two words of the element's own
/// block.
void normals(const RandomStream& stream, std::uint64_t first, float mean, float std, float* y,
             std::int64_t n) {
    std::int32_t radius[normal_batch], angle[normal_batch];
    for (int j = 0; j < normal_batch; j += philox_lanes) {
        const auto [c0, c1, c2, c3] = philox_blocks(stream, first + static_cast<std::uint64_t>(j));
        for (int l = 0; l < philox_lanes; ++l) {
            radius[j + l] = static_cast<std::int32_t>(static_cast<std::uint32_t>(c0[l]) >> 8);
            angle[j + l] = static_cast<std::int32_t>(static_cast<std::uint32_t>(c1[l]) >> 8);
        }
    }
    float value[normal_batch];
#pragma omp simd
    for (int j = 0; j < normal_batch; ++j) {
        const float u = (static_cast<float>(radius[j]) + 0.5F) * 0x1p-24F;
        const float t = static_cast<float>(angle[j]) * 0x1p-24F;
        value[j] = mean + std * (std::sqrt(-2.0F * log_unit(u)) * cos_turn(t));
    }
    std::copy_n(value, n, y);
}

}  // namespace

void CpuOps::dropout(const RandomStream& stream, std::int64_t first, float p, View x, View y) {
    const std::int64_t n = y.count();
    const Reals from(x, n, "dropout"), to(y, n, "dropout");
    if (!(p >= 0 && p <= 1)) throw failure("cpu dropout: p = " + std::to_string(p) + " is not in [0, 1]");
    if (p == 0) return copy(x, y);
    if (p == 1) return fill(y, 0);
    // unit_interval(word) >= p, both sides times 2^24 (exact), is a comparison of integers.
    const auto threshold = static_cast<std::uint32_t>(std::ceil(static_cast<double>(p) * 0x1p24));
    const auto scale = static_cast<float>(1 / (1 - static_cast<double>(p)));
    for_blocks(threads_, n, n, element_block, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
        over_words(stream, first, begin, end,
                   [&](const std::uint32_t* words, std::int64_t at, std::int64_t count) {
                       float buffer[batch];
                       float* kept = to.place(at, buffer);
                       keep(words, threshold, scale, from.load(at, count, buffer), kept, count);
                       to.store(at, count, kept);
                   });
    });
}

void CpuOps::fill_uniform(const RandomStream& stream, std::int64_t first, float low, float high, View y) {
    const std::int64_t n = y.count();
    float* to = floats(y, n, "fill_uniform");
    for_blocks(threads_, n, n, element_block, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
        over_words(stream, first, begin, end,
                   [&](const std::uint32_t* words, std::int64_t at, std::int64_t count) {
                       uniform(words, low, high, to + at, count);
                   });
    });
}

void CpuOps::fill_normal(const RandomStream& stream, std::int64_t first, float mean, float std, View y) {
    const std::int64_t n = y.count();
    float* to = floats(y, n, "fill_normal");
    for_blocks(threads_, n, n, element_block, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
        for (std::int64_t at = begin; at < end; at += normal_batch)
            normals(stream, static_cast<std::uint64_t>(first + at), mean, std, to + at,
                    std::min(normal_batch, end - at));
    });
}

}  // namespace trireme::cpu
