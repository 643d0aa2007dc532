// Optimizer passes over an interval of the arena: every column is read and written once, the norm on the way.
#include <cmath>

#include "ops/cpu/checks.hpp"
#include "ops/cpu/cpu_ops.hpp"
#include "ops/cpu/lanes.hpp"
#include "ops/cpu/parallel.hpp"

namespace trireme::cpu {
namespace {

struct AdamFactors {
    float scale, decay, l2, beta1, rest1, beta2, rest2, step, root2, eps;
};

// The equations of Kingma and Ba (2015) and, for the decoupled decay, Loshchilov and Hutter (2019), in the
// order of operations that PyTorch uses.
AdamFactors adam_factors(const AdamUpdate& a) {
    const auto t = static_cast<double>(a.step);
    const double correction1 = 1 - std::pow(a.beta1, t), correction2 = 1 - std::pow(a.beta2, t);
    const auto real = [](double value) { return static_cast<float>(value); };
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

void adam_block(const AdamFactors& f, float* __restrict weight, const float* __restrict gradient,
                float* __restrict m, float* __restrict v, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
        const float g = gradient[i] * f.scale + f.l2 * weight[i];
        const float m_new = f.beta1 * m[i] + f.rest1 * g;
        const float v_new = f.beta2 * v[i] + f.rest2 * g * g;
        m[i] = m_new;
        v[i] = v_new;
        weight[i] = f.decay * weight[i] - f.step * (m_new / (std::sqrt(v_new) * f.root2 + f.eps));
    }
}

struct SgdFactors {
    float scale, decay, momentum, fresh, lr;
};

void sgd_plain(const SgdFactors& f, float* __restrict weight, const float* __restrict gradient,
               std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) weight[i] -= f.lr * (gradient[i] * f.scale + f.decay * weight[i]);
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
            weight[i] -= f.lr * (gradient[i] * f.scale + f.decay * weight[i] + f.momentum * momentum[i]);
    else
        for (std::int64_t i = 0; i < n; ++i) weight[i] -= f.lr * momentum[i];
}

/// Runs update(begin, end) over fixed blocks and adds the norm, block by block in order.
template <class Update>
void over_blocks(int threads, Scratch& scratch, std::int64_t n, const float* gradient, float scale,
                 double* norm_squared, const Update& update) {
    const std::int64_t blocks = blocks_of(n, element_block);
    double* part =
        norm_squared == nullptr ? nullptr : scratch.reserve_of<double>(static_cast<std::size_t>(blocks));
    for_blocks(threads, n, n, element_block, [&](std::int64_t block, std::int64_t begin, std::int64_t end) {
        // First, so that the gradient is in cache for the update.
        if (part != nullptr) part[block] = square_sum(gradient + begin, scale, end - begin);
        update(begin, end);
    });
    if (norm_squared != nullptr)
        for (std::int64_t block = 0; block < blocks; ++block) *norm_squared += part[block];
}

void blend(float* __restrict average, const float* __restrict value, float momentum, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) average[i] = (1 - momentum) * average[i] + momentum * value[i];
}

}  // namespace

void CpuOps::adam_update(const AdamUpdate& args, double* norm_squared) {
    const std::int64_t n = args.common.weight.count();
    float* weight = floats(args.common.weight, n, "adam_update");
    const float* gradient = floats(args.common.gradient, n, "adam_update");
    float* m = floats(args.m, n, "adam_update");
    float* v = floats(args.v, n, "adam_update");
    const AdamFactors factors = adam_factors(args);
    over_blocks(threads_, scratch_, n, gradient, factors.scale, norm_squared,
                [&](std::int64_t begin, std::int64_t end) {
                    adam_block(factors, weight + begin, gradient + begin, m + begin, v + begin, end - begin);
                });
}

void CpuOps::sgd_update(const SgdUpdate& args, double* norm_squared) {
    const std::int64_t n = args.common.weight.count();
    float* weight = floats(args.common.weight, n, "sgd_update");
    const float* gradient = floats(args.common.gradient, n, "sgd_update");
    const bool plain = args.momentum_factor == 0;
    float* momentum = plain ? nullptr : floats(args.momentum, n, "sgd_update");
    const SgdFactors factors{static_cast<float>(args.common.gradient_scale),
                             static_cast<float>(args.common.weight_decay),
                             static_cast<float>(args.momentum_factor), static_cast<float>(args.fresh),
                             static_cast<float>(args.common.lr)};
    over_blocks(threads_, scratch_, n, gradient, factors.scale, norm_squared,
                [&](std::int64_t begin, std::int64_t end) {
                    if (plain)
                        sgd_plain(factors, weight + begin, gradient + begin, end - begin);
                    else
                        sgd_momentum(factors, args.first, args.nesterov, weight + begin, gradient + begin,
                                     momentum + begin, end - begin);
                });
}

void CpuOps::lion_update(const LionUpdate&, double*) {
    throw failure("lion: not built yet");
}
void CpuOps::lamb_moments(const LambUpdate&, double*) {
    throw failure("lamb: not built yet");
}
void CpuOps::lamb_update(const LambUpdate&, double*) {
    throw failure("lamb: not built yet");
}

void CpuOps::running_average(View average, View value, float momentum) {
    const std::int64_t n = average.count();
    blend(floats(average, n, "running_average"), floats(value, n, "running_average"), momentum, n);
}

}  // namespace trireme::cpu
