// Elements of any real type in kernels, which compute in float32: one by one, or eight at a time through
// 16-byte accesses. The type is the same for all threads, so that choosing by it costs next to nothing beside
// the access, and one kernel serves all mixtures of types.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "trireme/tensor/dtype.hpp"

namespace trireme::cuda {
namespace {

constexpr int pack_size = 8;

struct Pack {
    float v[pack_size];
};

__device__ inline float widen(DType type, unsigned short bits) {
    return type == DType::bf16 ? __uint_as_float(static_cast<unsigned>(bits) << 16)
                               : __half2float(__ushort_as_half(bits));
}

/// To nearest, ties to even; float16 overflows to inf; NaN stays NaN.
__device__ inline unsigned short narrow(DType type, float value) {
    return type == DType::bf16 ? __bfloat16_as_ushort(__float2bfloat16_rn(value))
                               : __half_as_ushort(__float2half_rn(value));
}

__device__ inline float load(const void* data, DType type, std::int64_t i) {
    return type == DType::f32 ? static_cast<const float*>(data)[i]
                              : widen(type, static_cast<const unsigned short*>(data)[i]);
}

__device__ inline void store(void* data, DType type, std::int64_t i, float value) {
    if (type == DType::f32)
        static_cast<float*>(data)[i] = value;
    else
        static_cast<unsigned short*>(data)[i] = narrow(type, value);
}

/// Elements [i, i + 8), whose address is a multiple of 16.
__device__ inline Pack load_pack(const void* data, DType type, std::int64_t i) {
    Pack p;
    if (type == DType::f32) {
        const auto* from = reinterpret_cast<const float4*>(static_cast<const float*>(data) + i);
        const float4 a = from[0], b = from[1];
        p.v[0] = a.x;
        p.v[1] = a.y;
        p.v[2] = a.z;
        p.v[3] = a.w;
        p.v[4] = b.x;
        p.v[5] = b.y;
        p.v[6] = b.z;
        p.v[7] = b.w;
        return p;
    }
    const uint4 bits = *reinterpret_cast<const uint4*>(static_cast<const unsigned short*>(data) + i);
    const unsigned word[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        p.v[2 * j] = widen(type, static_cast<unsigned short>(word[j] & 0xFFFFu));
        p.v[2 * j + 1] = widen(type, static_cast<unsigned short>(word[j] >> 16));
    }
    return p;
}

__device__ inline void store_pack(void* data, DType type, std::int64_t i, const Pack& p) {
    if (type == DType::f32) {
        auto* to = reinterpret_cast<float4*>(static_cast<float*>(data) + i);
        to[0] = make_float4(p.v[0], p.v[1], p.v[2], p.v[3]);
        to[1] = make_float4(p.v[4], p.v[5], p.v[6], p.v[7]);
        return;
    }
    unsigned word[4];
#pragma unroll
    for (int j = 0; j < 4; ++j)
        word[j] = static_cast<unsigned>(narrow(type, p.v[2 * j])) |
                  static_cast<unsigned>(narrow(type, p.v[2 * j + 1])) << 16;
    *reinterpret_cast<uint4*>(static_cast<unsigned short*>(data) + i) =
        make_uint4(word[0], word[1], word[2], word[3]);
}

/// Elements [i, i + count), count <= 8; the others are `rest`.
__device__ inline Pack load_some(const void* data, DType type, std::int64_t i, int count, bool wide,
                                 float rest = 0) {
    if (wide && count == pack_size) return load_pack(data, type, i);
    Pack p;
#pragma unroll
    for (int j = 0; j < pack_size; ++j) p.v[j] = j < count ? load(data, type, i + j) : rest;
    return p;
}

__device__ inline void store_some(void* data, DType type, std::int64_t i, int count, bool wide,
                                  const Pack& p) {
    if (wide && count == pack_size) return store_pack(data, type, i, p);
#pragma unroll
    for (int j = 0; j < pack_size; ++j)
        if (j < count) store(data, type, i + j, p.v[j]);
}

__device__ inline std::int64_t global_thread() {
    return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t all_threads() {
    return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

/// How many of a pack that begins at i of n there are.
__device__ inline int some_of(std::int64_t i, std::int64_t n) {
    return n - i < pack_size ? static_cast<int>(n - i) : pack_size;
}

}  // namespace

/// True where an address is good for 16-byte accesses.
inline bool aligned(const void* data) {
    return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}
template <class... More>
bool aligned(const void* first, const More*... more) {
    return aligned(first) && (aligned(static_cast<const void*>(more)) && ...);
}

}  // namespace trireme::cuda
