// Optimizer passes over an interval of the arena: every column is read and written once, four elements at a
// time, with unscaling, decay, the norm, the low-precision copy and the moving average on the way.
#include <cmath>

#include "ops/cuda/cuda_ops.hpp"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.hpp"
#include "ops/cuda/warp.cuh"

namespace trireme::cuda {
namespace {

/// Elements of a column that a thread takes at a time.
constexpr int quad = 4;

/// Blocks that leave parts of a norm: by the interval's length alone.
constexpr std::int64_t most_blocks = 1024;

struct Quad {
    float v[quad];
};

__device__ inline Quad load_quad(const float* x, std::int64_t i, int count, bool wide) {
    Quad q;
    if (wide && count == quad) {
        const float4 f = *reinterpret_cast<const float4*>(x + i);
        q.v[0] = f.x;
        q.v[1] = f.y;
        q.v[2] = f.z;
        q.v[3] = f.w;
        return q;
    }
#pragma unroll
    for (int j = 0; j < quad; ++j) q.v[j] = j < count ? x[i + j] : 0.0f;
    return q;
}

__device__ inline void store_quad(float* x, std::int64_t i, int count, bool wide, const Quad& q) {
    if (wide && count == quad) {
        *reinterpret_cast<float4*>(x + i) = make_float4(q.v[0], q.v[1], q.v[2], q.v[3]);
        return;
    }
#pragma unroll
    for (int j = 0; j < quad; ++j)
        if (j < count) x[i + j] = q.v[j];
}

float real_of(double value) {
    return static_cast<float>(value);
}

/// decay·w - rate·step. At rate 0 the weight stays as it is, bit for bit, whatever the step holds.
__device__ inline float moved(float weight, float decay, float rate, float step) {
    return rate == 0 ? weight : decay * weight - rate * step;
}

// A rule is what an optimizer does to one element:
//   static constexpr int columns;  // of its own: up to three
//   __device__ float operator()(float weight, float gradient, float* own, double* norms) const
// The gradient is unscaled already; the result is the new weight.

/// The equations of Kingma and Ba (2015) and, for the decoupled decay, Loshchilov and Hutter (2019), in the
/// order of operations that PyTorch uses. Columns: m, v and, for AMSGrad, the largest v.
struct Adam {
    static constexpr int columns = 3;
    float decay, l2, beta1, rest1, beta2, rest2, step, root2, eps;
    bool amsgrad;
    __device__ float operator()(float weight, float gradient, float* own, double*) const {
        const float g = gradient + l2 * weight;
        own[0] = beta1 * own[0] + rest1 * g;
        own[1] = beta2 * own[1] + rest2 * g * g;
        float bound = own[1];
        if (amsgrad) own[2] = bound = own[2] > bound ? own[2] : bound;
        return moved(weight, decay, step, own[0] / (sqrtf(bound) * root2 + eps));
    }
};

/// b = momentum·b + fresh·g; the step is b, or g + momentum·b (Nesterov in Sutskever et al.'s form, ICML
/// 2013).
struct Sgd {
    static constexpr int columns = 1;
    float decay, momentum, fresh, lr;
    bool plain, nesterov, first;
    __device__ float operator()(float weight, float gradient, float* own, double*) const {
        const float g = gradient + decay * weight;
        if (plain) return moved(weight, 1, lr * fresh, g);
        own[0] = first ? g : momentum * own[0] + fresh * g;
        return moved(weight, 1, lr, nesterov ? g + momentum * own[0] : own[0]);
    }
};

struct Lion {
    static constexpr int columns = 1;
    float decay, beta1, rest1, beta2, rest2, lr;
    __device__ float operator()(float weight, float gradient, float* own, double*) const {
        const float mixed = beta1 * own[0] + rest1 * gradient;
        // NaN stays NaN: a broken gradient must show in the weights.
        const float sign = mixed > 0 ? 1.0f : mixed < 0 ? -1.0f : mixed;
        own[0] = beta2 * own[0] + rest2 * gradient;
        return moved(weight, decay, lr, sign);
    }
};

struct LambFactors {
    float decay, beta1, rest1, beta2, rest2, root1, root2, eps;
    __device__ float direction(float weight, float m, float v) const {
        return m * root1 / (sqrtf(v) * root2 + eps) + decay * weight;
    }
};

/// Advances the moments; the weight stays.
struct LambMoments {
    static constexpr int columns = 2;
    LambFactors f;
    __device__ float operator()(float weight, float gradient, float* own, double* norms) const {
        own[0] = f.beta1 * own[0] + f.rest1 * gradient;
        own[1] = f.beta2 * own[1] + f.rest2 * gradient * gradient;
        const auto u = static_cast<double>(f.direction(weight, own[0], own[1])),
                   w = static_cast<double>(weight);
        norms[0] += w * w;
        norms[1] += u * u;
        return weight;
    }
};

struct LambStep {
    static constexpr int columns = 2;
    LambFactors f;
    float rate;
    __device__ float operator()(float weight, float, float* own, double*) const {
        return moved(weight, 1, rate, f.direction(weight, own[0], own[1]));
    }
};

/// What a rule leaves as it is, and what is not there.
struct Pass {
    float scale;
    float keep, follow;  // of the moving average
    int norms;           // 0: none; 1: of the gradient; 2: the rule's own
    bool wide;
    bool reads_own;  // false where the rule's columns are set without being read
    bool writes_own;
    bool writes_weight;
};

template <class Rule>
__global__ void __launch_bounds__(threads)
    update_kernel(Rule rule, Pass pass, std::int64_t n, float* weight, const float* gradient, float* own_a,
                  float* own_b, float* own_c, void* low, DType low_type, float* average, double* parts) {
    double norms[2] = {};
    for (std::int64_t i = global_thread() * quad; i < n; i += all_threads() * quad) {
        const int count = n - i < quad ? static_cast<int>(n - i) : quad;
        float* const columns[3] = {own_a, own_b, own_c};
        Quad w = load_quad(weight, i, count, pass.wide), own[3] = {};
        const Quad g = load_quad(gradient, i, count, pass.wide);
#pragma unroll
        for (int c = 0; c < Rule::columns; ++c)
            if (pass.reads_own && columns[c] != nullptr) own[c] = load_quad(columns[c], i, count, pass.wide);
#pragma unroll
        for (int j = 0; j < quad; ++j) {
            if (j >= count) continue;
            const float unscaled = g.v[j] * pass.scale;
            if (pass.norms == 1) norms[0] += static_cast<double>(unscaled) * static_cast<double>(unscaled);
            float values[3] = {own[0].v[j], own[1].v[j], own[2].v[j]};
            w.v[j] = rule(w.v[j], unscaled, values, norms);
#pragma unroll
            for (int c = 0; c < 3; ++c) own[c].v[j] = values[c];
        }
#pragma unroll
        for (int c = 0; c < Rule::columns; ++c)
            if (pass.writes_own && columns[c] != nullptr) store_quad(columns[c], i, count, pass.wide, own[c]);
        if (!pass.writes_weight) continue;
        store_quad(weight, i, count, pass.wide, w);
        if (average != nullptr) {
            Quad a = load_quad(average, i, count, pass.wide);
#pragma unroll
            for (int j = 0; j < quad; ++j) a.v[j] = pass.keep * a.v[j] + pass.follow * w.v[j];
            store_quad(average, i, count, pass.wide, a);
        }
        if (low == nullptr) continue;
#pragma unroll
        for (int j = 0; j < quad; ++j)
            if (j < count) store(low, low_type, i + j, w.v[j]);
    }
    if (pass.norms == 0) return;
    const double first = block_sum(norms[0]), second = pass.norms > 1 ? block_sum(norms[1]) : 0;
    if (threadIdx.x != 0) return;
    double* part = parts + blockIdx.x * static_cast<unsigned>(pass.norms);
    part[0] = first;
    if (pass.norms > 1) part[1] = second;
}

/// What every pass is about, checked.
struct Columns {
    Columns(const Update& update, const char* verb)
        : n(update.weight.count()),
          weight(floats(update.weight, n, verb)),
          gradient(floats(update.gradient, n, verb)),
          low(optional_real(update.low, n, verb)),
          average(optional_floats(update.average, n, verb)),
          pass{real_of(update.gradient_scale),
               real_of(update.average_decay),
               real_of(1 - update.average_decay),
               0,
               false,
               true,
               true,
               true} {}
    std::int64_t n;
    float* weight;
    const float* gradient;
    Real low;
    float* average;
    Pass pass;
};

/// *norms (absent: none) += what the pass sums.
template <class Rule>
void run(CudaDevice& device, Scalars& scalars, const Rule& rule, Columns c, std::array<float*, 3> own,
         int norms, Targets to) {
    if (c.n == 0) return;
    c.pass.norms = to[0] == nullptr ? 0 : norms;
    c.pass.wide = aligned(static_cast<const void*>(c.weight), c.gradient, c.average, own[0], own[1], own[2]);
    const Grid grid = covering(c.n, threads * quad, most_blocks);
    double* parts = c.pass.norms > 0 ? scalars.parts(grid.blocks, c.pass.norms) : nullptr;
    launch(device.stream(), grid, update_kernel<Rule>, rule, c.pass, c.n, c.weight, c.gradient, own[0],
           own[1], own[2], c.low.data, c.low.type, c.average, parts);
    if (parts != nullptr) scalars.add(parts, grid.blocks, c.pass.norms, to);
}

LambFactors lamb_factors(const LambUpdate& a) {
    const auto t = static_cast<double>(a.step);
    return {real_of(a.common.weight_decay),
            real_of(a.beta1),
            real_of(1 - a.beta1),
            real_of(a.beta2),
            real_of(1 - a.beta2),
            real_of(1 / (1 - std::pow(a.beta1, t))),
            real_of(1 / std::sqrt(1 - std::pow(a.beta2, t))),
            real_of(a.eps)};
}

}  // namespace

void CudaOps::adam_update(const AdamUpdate& a, double* norm_squared) {
    const Columns c(a.common, "adam_update");
    float* m = floats(a.m, c.n, "adam_update");
    float* v = floats(a.v, c.n, "adam_update");
    float* v_max = optional_floats(a.v_max, c.n, "adam_update");
    const auto t = static_cast<double>(a.step);
    const double correction1 = 1 - std::pow(a.beta1, t), correction2 = 1 - std::pow(a.beta2, t);
    const Adam rule{a.decoupled ? real_of(1 - a.common.lr * a.common.weight_decay) : 1.0F,
                    a.decoupled ? 0.0F : real_of(a.common.weight_decay),
                    real_of(a.beta1),
                    real_of(1 - a.beta1),
                    real_of(a.beta2),
                    real_of(1 - a.beta2),
                    real_of(a.common.lr / correction1),
                    real_of(1 / std::sqrt(correction2)),
                    real_of(a.eps),
                    v_max != nullptr};
    run(device_, scalars_, rule, c, {m, v, v_max}, 1, {norm_squared});
}

void CudaOps::sgd_update(const SgdUpdate& args, double* norm_squared) {
    Columns c(args.common, "sgd_update");
    const bool plain = args.momentum_factor == 0;
    float* momentum = plain ? nullptr : floats(args.momentum, c.n, "sgd_update");
    const Sgd rule{real_of(args.common.weight_decay),
                   real_of(args.momentum_factor),
                   real_of(args.fresh),
                   real_of(args.common.lr),
                   plain,
                   args.nesterov,
                   args.first};
    c.pass.reads_own = !args.first;  // whatever it holds
    run(device_, scalars_, rule, c, {momentum}, 1, {norm_squared});
}

void CudaOps::lion_update(const LionUpdate& args, double* norm_squared) {
    const Columns c(args.common, "lion_update");
    float* m = floats(args.m, c.n, "lion_update");
    const Lion rule{real_of(1 - args.common.lr * args.common.weight_decay),
                    real_of(args.beta1),
                    real_of(1 - args.beta1),
                    real_of(args.beta2),
                    real_of(1 - args.beta2),
                    real_of(args.common.lr)};
    run(device_, scalars_, rule, c, {m}, 1, {norm_squared});
}

void CudaOps::lamb_moments(const LambUpdate& args, double* norms) {
    Columns c(args.common, "lamb_moments");
    float* m = floats(args.m, c.n, "lamb_moments");
    float* v = floats(args.v, c.n, "lamb_moments");
    c.pass.writes_weight = false;
    run(device_, scalars_, LambMoments{lamb_factors(args)}, c, {m, v}, 2, {norms, norms + 1});
}

void CudaOps::lamb_update(const LambUpdate& args, double* norm_squared) {
    Columns c(args.common, "lamb_update");
    float* m = floats(args.m, c.n, "lamb_update");
    float* v = floats(args.v, c.n, "lamb_update");
    c.pass.writes_own = false;
    run(device_, scalars_, LambStep{lamb_factors(args), real_of(args.common.lr * args.trust)}, c, {m, v}, 1,
        {norm_squared});
}

}  // namespace trireme::cuda
