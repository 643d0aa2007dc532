// Kernels that compute each element from the elements at the same place. A map is a small structure:
//   static constexpr int inputs;                                    // 0 to 3
//   __device__ float operator()(int64 i, int64 column, float a, float b, float c) const
// Where it asks for columns, element i stands in column i mod columns.
#pragma once

#include "ops/cuda/checks.hpp"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.hpp"
#include "tensor/cuda/device.hpp"

namespace trireme::cuda {

struct Inputs {
    Real a{}, b{}, c{};
};

namespace {

template <class Map>
__global__ void __launch_bounds__(threads)
    map_kernel(Map map, std::int64_t n, std::int64_t columns, bool wide, void* y, DType y_type, const void* a,
               DType a_type, const void* b, DType b_type, const void* c, DType c_type) {
    for (std::int64_t i = global_thread() * pack_size; i < n; i += all_threads() * pack_size) {
        const int count = some_of(i, n);
        Pack x[3] = {};
        if constexpr (Map::inputs > 0) x[0] = load_some(a, a_type, i, count, wide);
        if constexpr (Map::inputs > 1) x[1] = load_some(b, b_type, i, count, wide);
        if constexpr (Map::inputs > 2) x[2] = load_some(c, c_type, i, count, wide);
        std::int64_t column = columns > 0 ? i % columns : 0;
        Pack result;
#pragma unroll
        for (int j = 0; j < pack_size; ++j) {
            result.v[j] = j < count ? map(i + j, column, x[0].v[j], x[1].v[j], x[2].v[j]) : 0.0f;
            if (++column == columns) column = 0;
        }
        store_some(y, y_type, i, count, wide, result);
    }
}

}  // namespace

/// y[i] = map(...) for n elements.
template <class Map>
void run_map(const CudaDevice& device, const Map& map, std::int64_t n, Real y, Inputs in = {},
             std::int64_t columns = 0) {
    if (n == 0) return;
    const cudaStream_t stream = device.stream();
    launch(stream, covering(n, threads * pack_size, 16 * device.multiprocessors()), map_kernel<Map>, map, n,
           columns, aligned(y.data, in.a.data, in.b.data, in.c.data), y.data, y.type, in.a.data, in.a.type,
           in.b.data, in.b.type, in.c.data, in.c.type);
}

}  // namespace trireme::cuda
