// Verbs that move or combine elements one by one.
#include "ops/cuda/cuda_ops.hpp"
#include "ops/cuda/map.cuh"

namespace trireme::cuda {
namespace {

struct Copy {
    static constexpr int inputs = 1;
    __device__ float operator()(std::int64_t, std::int64_t, float x, float, float) const { return x; }
};

struct Fill {
    static constexpr int inputs = 0;
    float value;
    __device__ float operator()(std::int64_t, std::int64_t, float, float, float) const { return value; }
};

struct AddScaled {
    static constexpr int inputs = 2;
    float factor;
    __device__ float operator()(std::int64_t, std::int64_t, float x, float y, float) const {
        return y + factor * x;
    }
};

struct Add {
    static constexpr int inputs = 2;
    bool relu;
    __device__ float operator()(std::int64_t, std::int64_t, float a, float b, float) const {
        const float z = a + b;
        return relu && z < 0 ? 0.0f : z;  // keeps NaN
    }
};

struct Blend {
    static constexpr int inputs = 2;
    float keep, follow;
    __device__ float operator()(std::int64_t, std::int64_t, float average, float value, float) const {
        return keep * average + follow * value;
    }
};

/// Side of the square that a block turns over.
constexpr int tile = 32;

/// [rows, columns] to [columns, rows], for as many matrices as the grid has rows.
__global__ void __launch_bounds__(threads)
    transpose_kernel(const void* x, DType x_type, void* y, DType y_type, std::int64_t rows,
                     std::int64_t columns) {
    __shared__ float cell[tile][tile + 1];
    const std::int64_t tiles = (columns + tile - 1) / tile, base = blockIdx.y * rows * columns;
    const std::int64_t r0 = blockIdx.x / tiles * tile, c0 = blockIdx.x % tiles * tile;
    const int lane = threadIdx.x % tile, group = threadIdx.x / tile;
    for (int r = group; r < tile; r += threads / tile)
        if (r0 + r < rows && c0 + lane < columns)
            cell[r][lane] = load(x, x_type, base + (r0 + r) * columns + c0 + lane);
    __syncthreads();
    for (int c = group; c < tile; c += threads / tile)
        if (c0 + c < columns && r0 + lane < rows)
            store(y, y_type, base + (c0 + c) * rows + r0 + lane, cell[lane][c]);
}

void transpose(cudaStream_t stream, Real x, Real y, std::int64_t n, std::int64_t rows, std::int64_t columns) {
    constexpr std::int64_t most_rows = 65535;  // of a grid
    for (std::int64_t first = 0; first < n; first += most_rows) {
        const std::int64_t at = first * rows * columns;
        launch(stream, {divided_up(rows, tile) * divided_up(columns, tile), std::min(most_rows, n - first)},
               transpose_kernel, x.at(at), x.type, y.at(at), y.type, rows, columns);
    }
}

void require_images(const View& view) {
    if (view.shape.rank() != 4) throw refusal("layout change", view.shape.text() + " is not [N, C, H, W]");
}

}  // namespace

void CudaOps::add_scaled(View x, float a, View y) {
    const std::int64_t n = y.count();
    const Real to = real(y, n, "add_scaled");
    run_map(device_, AddScaled{a}, n, to, {real(x, n, "add_scaled"), to});
}

void CudaOps::add(View a, View b, Activation activation, View y) {
    const std::int64_t n = y.count();
    const Real left = real(a, n, "add"), right = real(b, n, "add"), to = real(y, n, "add");
    if (activation != Activation::none && activation != Activation::relu)
        throw refusal("add", std::string(name_of(activation)) + " where none or relu is expected");
    run_map(device_, Add{activation == Activation::relu}, n, to, {left, right});
}

void CudaOps::fill(View y, float value) {
    run_map(device_, Fill{value}, y.count(), real(y, y.count(), "fill"));
}

void CudaOps::copy(View x, View y) {
    const std::int64_t n = y.count();
    if (x.dtype != y.dtype) return run_map(device_, Copy{}, n, real(y, n, "copy"), {real(x, n, "copy")});
    if (x.count() != n) throw refusal("copy", x.shape.text() + " to " + y.shape.text());
    if (x.data == y.data || n == 0) return;
    check(cudaMemcpyAsync(y.data, x.data, y.bytes(), cudaMemcpyDeviceToDevice, device_.stream()),
          "cudaMemcpyAsync");
}

void CudaOps::to_channels_first(View x, View y) {
    require_images(x);
    const std::int64_t n = x.shape[0], c = x.shape[1], pixels = x.shape[2] * x.shape[3];
    if (c == 1 || pixels == 1) return copy(x, y);
    const Real from = real(x, n * c * pixels, "to_channels_first"),
               to = real(y, n * c * pixels, "to_channels_first");
    if (x.count() > 0) transpose(device_.stream(), from, to, n, pixels, c);
}

void CudaOps::to_channels_last(View x, View y) {
    require_images(x);
    const std::int64_t n = x.shape[0], c = x.shape[1], pixels = x.shape[2] * x.shape[3];
    if (c == 1 || pixels == 1) return copy(x, y);
    const Real from = real(x, n * c * pixels, "to_channels_last"),
               to = real(y, n * c * pixels, "to_channels_last");
    if (x.count() > 0) transpose(device_.stream(), from, to, n, c, pixels);
}

void CudaOps::running_average(View average, View value, float momentum) {
    const std::int64_t n = average.count();
    const Real to{floats(average, n, "running_average")};
    run_map(device_, Blend{1 - momentum, momentum}, n, to, {to, {floats(value, n, "running_average")}});
}

}  // namespace trireme::cuda
