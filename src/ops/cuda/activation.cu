// Activations and what follows a product: its bias and activation, rounded once.
#include "ops/cuda/cuda_ops.hpp"
#include "ops/cuda/map.cuh"

namespace trireme::cuda {
namespace {

/// 1 / (1 + e^-x), without overflow and without losing small values.
__device__ inline float logistic(float x) {
    const float e = expf(-fabsf(x));
    return (x < 0 ? e : 1.0f) / (1.0f + e);
}

constexpr float root_half = 0.70710678f;     // √½
constexpr float inverse_root = 0.39894228f;  // 1/√(2π)
constexpr float tanh_factor = 0.79788456f;   // √(2/π)
constexpr float tanh_cubic = 0.044715f;

__device__ inline float activate(Activation kind, float x) {
    switch (kind) {
        case Activation::relu:
            return x < 0 ? 0.0f : x;  // keeps NaN
        case Activation::gelu:
            return 0.5f * x * erfcf(-x * root_half);
        case Activation::gelu_tanh:  // ½·(1 + tanh u) = σ(2u), which does not cancel
            return x * logistic(2 * tanh_factor * (x + tanh_cubic * x * x * x));
        case Activation::silu:
            return x * logistic(x);
        case Activation::tanh:
            return tanhf(x);
        case Activation::sigmoid:
            return logistic(x);
        default:
            return x;
    }
}

/// act'(x) where it takes the input.
__device__ inline float slope_at(Activation kind, float x) {
    switch (kind) {
        case Activation::gelu:
            return 0.5f * erfcf(-x * root_half) + x * inverse_root * expf(-0.5f * x * x);
        case Activation::gelu_tanh: {
            const float s = logistic(2 * tanh_factor * (x + tanh_cubic * x * x * x));
            return s + x * s * (1 - s) * 2 * tanh_factor * (1 + 3 * tanh_cubic * x * x);
        }
        case Activation::silu:
            return logistic(x) * (1 + x * logistic(-x));
        default:
            return 1;
    }
}

struct Forward {
    static constexpr int inputs = 1;
    Activation kind;
    __device__ float operator()(std::int64_t, std::int64_t, float x, float, float) const {
        return activate(kind, x);
    }
};

struct BackwardFromInput {
    static constexpr int inputs = 2;
    Activation kind;
    __device__ float operator()(std::int64_t, std::int64_t, float x, float dy, float) const {
        return dy * slope_at(kind, x);
    }
};

struct BackwardFromOutput {
    static constexpr int inputs = 2;
    Activation kind;
    __device__ float operator()(std::int64_t, std::int64_t, float y, float dy, float) const {
        if (kind == Activation::relu) return y > 0 ? dy : 0.0f;
        return kind == Activation::tanh ? dy * ((1 - y) * (1 + y)) : dy * (y * (1 - y));
    }
};

struct Epilogue {
    static constexpr int inputs = 1;
    Activation kind;
    const float* bias;
    __device__ float operator()(std::int64_t, std::int64_t column, float x, float, float) const {
        return activate(kind, bias == nullptr ? x : x + bias[column]);
    }
};

}  // namespace

void CudaOps::activation_forward(Activation kind, View x, View y) {
    const std::int64_t n = y.count();
    const Real from = real(x, n, "activation"), to = real(y, n, "activation");
    if (kind == Activation::none) return copy(x, y);
    run_map(device_, Forward{kind}, n, to, {from});
}

void CudaOps::activation_backward(Activation kind, View x, View y, View dy, View dx) {
    const std::int64_t n = dx.count();
    const Real from = real(dy, n, "activation backward"), to = real(dx, n, "activation backward");
    if (n == 0) return;
    if (kind == Activation::none) return copy(dy, dx);
    if (derivative_from_output(kind))
        run_map(device_, BackwardFromOutput{kind}, n, to, {real(y, n, "activation backward"), from});
    else
        run_map(device_, BackwardFromInput{kind}, n, to, {real(x, n, "activation backward"), from});
}

void CudaOps::finish_product(Real sums, const float* bias, Activation activation, std::int64_t count,
                             std::int64_t columns, Real y) {
    run_map(device_, Epilogue{activation, bias}, count, y, {sums}, columns);
}

}  // namespace trireme::cuda
