// Optimizer passes over an interval of the arena: every column is read and written once, with the norm, the
// low-precision copy and the moving average on the way, block by block while a block is in cache.
#include <cmath>

#include "ops/cpu/checks.hpp"
#include "ops/cpu/cpu_ops.hpp"
#include "ops/cpu/lanes.hpp"
#include "ops/cpu/parallel.hpp"
#include "ops/cpu/reals.hpp"

namespace trireme::cpu {
namespace {

float real(double value) {
    return static_cast<float>(value);
}

void blend(float* __restrict average, const float* __restrict value, float keep, float follow,
           std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) average[i] = keep * average[i] + follow * value[i];
}

/// What every pass is about, checked.
struct Columns {
    Columns(const Update& update, const char* verb)
        : n(update.weight.count()),
          weight(floats(update.weight, n, verb)),
          gradient(floats(update.gradient, n, verb)),
          low(optional_reals(update.low, n, verb)),
          average(update.average ? floats(update.average, n, verb) : nullptr),
          keep(real(update.average_decay)),
          follow(real(1 - update.average_decay)),
          scale(real(update.gradient_scale)) {}

    /// Lets the copies of the weights follow, once a block is up to date.
    void carry(std::int64_t begin, std::int64_t end) const {
        if (average != nullptr) blend(average + begin, weight + begin, keep, follow, end - begin);
        if (low) narrow(low.type(), weight + begin, low.at(begin), end - begin);
    }

    std::int64_t n;
    float* weight;
    const float* gradient;
    Reals low;
    float* average;
    float keep, follow, scale;
};

/// Runs update(begin, end) over fixed blocks and adds the norm, block by block in order.
template <class Body>
void over_blocks(int threads, Scratch& scratch, const Columns& columns, double* norm_squared,
                 const Body& update) {
    const std::int64_t n = columns.n, blocks = blocks_of(n, element_block);
    double* part =
        norm_squared == nullptr ? nullptr : scratch.reserve_of<double>(static_cast<std::size_t>(blocks));
    for_blocks(threads, n, n, element_block, [&](std::int64_t block, std::int64_t begin, std::int64_t end) {
        // First, so that the gradient is in cache for the update.
        if (part != nullptr) part[block] = square_sum(columns.gradient + begin, columns.scale, end - begin);
        update(begin, end);
        columns.carry(begin, end);
    });
    if (norm_squared != nullptr)
        for (std::int64_t block = 0; block < blocks; ++block) *norm_squared += part[block];
}

/// decay·w - rate·step. At rate 0 the weight stays as it is, bit for bit, whatever the step holds.
inline float moved(float weight, float decay, float rate, float step) {
    return rate == 0 ? weight : decay * weight - rate * step;
}

struct AdamFactors {
    float scale, decay, l2, beta1, rest1, beta2, rest2, step, root2, eps;
};

// The equations of Kingma and Ba (2015) and, for the decoupled decay, Loshchilov and Hutter (2019), in the
// order of operations that PyTorch uses.
AdamFactors adam_factors(const AdamUpdate& a) {
    const auto t = static_cast<double>(a.step);
    const double correction1 = 1 - std::pow(a.beta1, t), correction2 = 1 - std::pow(a.beta2, t);
    return {real(a.common.gradient_scale),
            a.decoupled ? real(1 - a.common.lr * a.common.weight_decay) : 1.0F,
            a.decoupled ? 0.0F : real(a.common.weight_decay),
            real(a.beta1),
            real(1 - a.beta1),
            real(a.beta2),
            real(1 - a.beta2),
            real(a.common.lr / correction1),
            real(1 / std::sqrt(correction2)),
            real(a.eps)};
}

template <bool amsgrad>
void adam_block(const AdamFactors& f, float* __restrict weight, const float* __restrict gradient,
                float* __restrict m, float* __restrict v, float* __restrict v_max, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
        const float g = gradient[i] * f.scale + f.l2 * weight[i];
        const float m_new = f.beta1 * m[i] + f.rest1 * g;
        const float v_new = f.beta2 * v[i] + f.rest2 * g * g;
        m[i] = m_new;
        v[i] = v_new;
        float bound = v_new;
        if constexpr (amsgrad) {
            bound = v_max[i] > v_new ? v_max[i] : v_new;
            v_max[i] = bound;
        }
        weight[i] = moved(weight[i], f.decay, f.step, m_new / (std::sqrt(bound) * f.root2 + f.eps));
    }
}

struct SgdFactors {
    float scale, decay, momentum, fresh, lr;
};

void sgd_plain(const SgdFactors& f, float* __restrict weight, const float* __restrict gradient,
               std::int64_t n) {
    const float rate = f.lr * f.fresh;
    for (std::int64_t i = 0; i < n; ++i)
        weight[i] = moved(weight[i], 1, rate, gradient[i] * f.scale + f.decay * weight[i]);
}

/// b = momentum·b + fresh·g; the step is b, or g + momentum·b (Nesterov in Sutskever et al.'s form, ICML
/// 2013).
void sgd_momentum(const SgdFactors& f, bool first, bool nesterov, float* __restrict weight,
                  const float* __restrict gradient, float* __restrict momentum, std::int64_t n) {
    // On the first update the old momentum is not read, whatever it holds.
    if (first)
        for (std::int64_t i = 0; i < n; ++i) momentum[i] = gradient[i] * f.scale + f.decay * weight[i];
    else
        for (std::int64_t i = 0; i < n; ++i)
            momentum[i] = f.momentum * momentum[i] + f.fresh * (gradient[i] * f.scale + f.decay * weight[i]);
    if (nesterov)
        for (std::int64_t i = 0; i < n; ++i)
            weight[i] = moved(weight[i], 1, f.lr,
                              gradient[i] * f.scale + f.decay * weight[i] + f.momentum * momentum[i]);
    else
        for (std::int64_t i = 0; i < n; ++i) weight[i] = moved(weight[i], 1, f.lr, momentum[i]);
}

struct LionFactors {
    float scale, decay, beta1, rest1, beta2, rest2, lr;
};

void lion_block(const LionFactors& f, float* __restrict weight, const float* __restrict gradient,
                float* __restrict m, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
        const float g = gradient[i] * f.scale;
        const float mixed = f.beta1 * m[i] + f.rest1 * g;
        // NaN stays NaN: a broken gradient must show in the weights.
        const float sign = mixed > 0 ? 1.0F : mixed < 0 ? -1.0F : mixed;
        m[i] = f.beta2 * m[i] + f.rest2 * g;
        weight[i] = moved(weight[i], f.decay, f.lr, sign);
    }
}

struct LambFactors {
    float scale, decay, beta1, rest1, beta2, rest2, root1, root2, eps;
};

LambFactors lamb_factors(const LambUpdate& a) {
    const auto t = static_cast<double>(a.step);
    return {real(a.common.gradient_scale),
            real(a.common.weight_decay),
            real(a.beta1),
            real(1 - a.beta1),
            real(a.beta2),
            real(1 - a.beta2),
            real(1 / (1 - std::pow(a.beta1, t))),
            real(1 / std::sqrt(1 - std::pow(a.beta2, t))),
            real(a.eps)};
}

inline float lamb_direction(const LambFactors& f, float weight, float m, float v) {
    return m * f.root1 / (std::sqrt(v) * f.root2 + f.eps) + f.decay * weight;
}

/// Advances the moments; `direction` receives u.
void lamb_moments_block(const LambFactors& f, const float* __restrict weight,
                        const float* __restrict gradient, float* __restrict m, float* __restrict v,
                        float* __restrict direction, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
        const float g = gradient[i] * f.scale;
        const float m_new = f.beta1 * m[i] + f.rest1 * g;
        const float v_new = f.beta2 * v[i] + f.rest2 * g * g;
        m[i] = m_new;
        v[i] = v_new;
        direction[i] = lamb_direction(f, weight[i], m_new, v_new);
    }
}

void lamb_update_block(const LambFactors& f, float rate, float* __restrict weight, const float* __restrict m,
                       const float* __restrict v, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i)
        weight[i] = moved(weight[i], 1, rate, lamb_direction(f, weight[i], m[i], v[i]));
}

}  // namespace

void CpuOps::adam_update(const AdamUpdate& args, double* norm_squared) {
    const Columns c(args.common, "adam_update");
    float* m = floats(args.m, c.n, "adam_update");
    float* v = floats(args.v, c.n, "adam_update");
    float* v_max = args.v_max ? floats(args.v_max, c.n, "adam_update") : nullptr;
    const AdamFactors factors = adam_factors(args);
    over_blocks(threads_, scratch_, c, norm_squared, [&](std::int64_t begin, std::int64_t end) {
        if (v_max == nullptr)
            adam_block<false>(factors, c.weight + begin, c.gradient + begin, m + begin, v + begin, nullptr,
                              end - begin);
        else
            adam_block<true>(factors, c.weight + begin, c.gradient + begin, m + begin, v + begin,
                             v_max + begin, end - begin);
    });
}

void CpuOps::sgd_update(const SgdUpdate& args, double* norm_squared) {
    const Columns c(args.common, "sgd_update");
    const bool plain = args.momentum_factor == 0;
    float* momentum = plain ? nullptr : floats(args.momentum, c.n, "sgd_update");
    const SgdFactors factors{c.scale, real(args.common.weight_decay), real(args.momentum_factor),
                             real(args.fresh), real(args.common.lr)};
    over_blocks(threads_, scratch_, c, norm_squared, [&](std::int64_t begin, std::int64_t end) {
        if (plain)
            sgd_plain(factors, c.weight + begin, c.gradient + begin, end - begin);
        else
            sgd_momentum(factors, args.first, args.nesterov, c.weight + begin, c.gradient + begin,
                         momentum + begin, end - begin);
    });
}

void CpuOps::lion_update(const LionUpdate& args, double* norm_squared) {
    const Columns c(args.common, "lion_update");
    float* m = floats(args.m, c.n, "lion_update");
    const LionFactors factors{c.scale,
                              real(1 - args.common.lr * args.common.weight_decay),
                              real(args.beta1),
                              real(1 - args.beta1),
                              real(args.beta2),
                              real(1 - args.beta2),
                              real(args.common.lr)};
    over_blocks(threads_, scratch_, c, norm_squared, [&](std::int64_t begin, std::int64_t end) {
        lion_block(factors, c.weight + begin, c.gradient + begin, m + begin, end - begin);
    });
}

void CpuOps::lamb_moments(const LambUpdate& args, double* norms) {
    const Columns c(args.common, "lamb_moments");
    float* m = floats(args.m, c.n, "lamb_moments");
    float* v = floats(args.v, c.n, "lamb_moments");
    const LambFactors factors = lamb_factors(args);
    const std::int64_t blocks = blocks_of(c.n, element_block);
    double* part = scratch_.reserve_of<double>(static_cast<std::size_t>(2 * blocks));
    for_blocks(threads_, c.n, c.n, element_block,
               [&](std::int64_t block, std::int64_t begin, std::int64_t end) {
                   float direction[element_block];
                   lamb_moments_block(factors, c.weight + begin, c.gradient + begin, m + begin, v + begin,
                                      direction, end - begin);
                   part[2 * block] = square_sum(c.weight + begin, 1, end - begin);
                   part[2 * block + 1] = square_sum(direction, 1, end - begin);
               });
    for (std::int64_t block = 0; block < blocks; ++block) {
        norms[0] += part[2 * block];
        norms[1] += part[2 * block + 1];
    }
}

void CpuOps::lamb_update(const LambUpdate& args, double* norm_squared) {
    const Columns c(args.common, "lamb_update");
    const float* m = floats(args.m, c.n, "lamb_update");
    const float* v = floats(args.v, c.n, "lamb_update");
    const LambFactors factors = lamb_factors(args);
    const float rate = real(args.common.lr * args.trust);
    over_blocks(threads_, scratch_, c, norm_squared, [&](std::int64_t begin, std::int64_t end) {
        lamb_update_block(factors, rate, c.weight + begin, m + begin, v + begin, end - begin);
    });
}

void CpuOps::running_average(View average, View value, float momentum) {
    const std::int64_t n = average.count();
    blend(floats(average, n, "running_average"), floats(value, n, "running_average"), 1 - momentum, momentum,
          n);
}

}  // namespace trireme::cpu
