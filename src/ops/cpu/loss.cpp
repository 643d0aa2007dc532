// Losses with their gradients in one pass over the outputs.
#include <cmath>
#include <string>

#include "ops/cpu/checks.hpp"
#include "ops/cpu/cpu_ops.hpp"
#include "ops/cpu/lanes.hpp"
#include "ops/cpu/math.hpp"
#include "ops/cpu/parallel.hpp"
#include "ops/cpu/reals.hpp"

namespace trireme::cpu {
namespace {

/// Terms of a sum that are kept in float before they are added in double.
constexpr std::int64_t terms_length = 512;

/// What a block of samples adds to LossSums.
struct Sums {
    double loss = 0, count = 0, correct = 0;
};

void add_in_order(const Sums* part, std::int64_t blocks, const LossSums& to) {
    Sums all;
    for (std::int64_t b = 0; b < blocks; ++b) {
        all.loss += part[b].loss;
        all.count += part[b].count;
        all.correct += part[b].correct;
    }
    *to.loss += all.loss;
    *to.count += all.count;
    *to.correct += all.correct;
}

float row_maximum(const float* x, std::int64_t n) {
    float best = x[0];
    std::int64_t i = 0;
    if (n >= 8) {
        Float8 lanes = load8(x);
        for (i = 8; i + 8 <= n; i += 8) {
            const Float8 v = load8(x + i);
            lanes = v > lanes ? v : lanes;
        }
        for (int l = 0; l < 8; ++l) best = lanes[l] > best ? lanes[l] : best;
    }
    for (; i < n; ++i) best = x[i] > best ? x[i] : best;
    return best;
}

/// e[i] = exp(x[i] - top); e may be x.
void shifted_exp(const float* x, float top, float* e, std::int64_t n) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) e[i] = exp_nonpositive(x[i] - top);
}

/// Σ exp(x[i] - top), the terms kept in e where it is not null.
double exp_sum(const float* x, float top, float* e, std::int64_t n) {
    float kept[terms_length];
    double sum = 0;
    for (std::int64_t i = 0; i < n; i += terms_length) {
        const std::int64_t count = std::min(terms_length, n - i);
        float* terms = e == nullptr ? kept : e + i;
        shifted_exp(x + i, top, terms, count);
        sum += double_sum(terms, count);
    }
    return sum;
}

void scale_row(float* d, float factor, float offset, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) d[i] = d[i] * factor - offset;
}

/// True where x[label] is the maximum and none before it is as large.
bool first_maximum(const float* x, std::int32_t label, float top) {
    if (!(x[label] == top)) return false;
    for (std::int32_t i = 0; i < label; ++i)
        if (x[i] == top) return false;
    return true;
}

/// One sample: L = -Σ_j t_j·log softmax(x)_j with t = (1-ε)·onehot + ε/C; dL/dx = softmax(x) - t.
void cross_entropy_row(const CrossEntropy& args, const float* x, std::int32_t label, float* d,
                       std::int64_t classes, Sums& sums) {
    const float top = row_maximum(x, classes);
    const double smoothing = static_cast<double>(args.label_smoothing),
                 labelled = static_cast<double>(x[label]);
    const double mean = smoothing > 0 ? double_sum(x, classes) / static_cast<double>(classes) : 0;
    const bool hit = first_maximum(x, label, top);
    const double sum = exp_sum(x, top, d, classes);  // x is lost here where d is x
    const double log_sum = static_cast<double>(top) + std::log(sum);
    sums.loss += (1 - smoothing) * (log_sum - labelled);
    if (smoothing > 0) sums.loss += smoothing * (log_sum - mean);
    sums.count += 1;
    sums.correct += hit && !std::isnan(sum) ? 1 : 0;
    if (d == nullptr) return;
    const auto scale = static_cast<double>(args.gradient_scale);
    scale_row(d, static_cast<float>(scale / sum),
              static_cast<float>(scale * smoothing / static_cast<double>(classes)), classes);
    d[label] -= static_cast<float>(scale * (1 - smoothing));
}

void check_labels(const std::int32_t* labels, std::int64_t n, std::int64_t classes, std::int32_t ignored) {
    for (std::int64_t i = 0; i < n; ++i)
        if ((labels[i] < 0 || labels[i] >= classes) && labels[i] != ignored)
            throw data_error("label " + std::to_string(labels[i]) + " of sample " + std::to_string(i) +
                             " is not in [0, " + std::to_string(classes) + ")");
}

/// Pieces of a regression loss.
struct Terms {
    float loss[terms_length], correct[terms_length];
};

void squared_error(const float* x, const float* t, float scale, float* d, Terms& terms, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
        const float error = x[i] - t[i];
        terms.loss[i] = error * error;
        terms.correct[i] = std::fabs(error);
    }
    if (d == nullptr) return;
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) d[i] = 2 * scale * (x[i] - t[i]);
}

/// max(x, 0) - x·t + ln(1 + e^-|x|), which neither overflows nor cancels; its derivative is σ(x) - t.
void logit_cross_entropy(const float* x, const float* t, float scale, float* d, Terms& terms,
                         std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
        const float e = exp_nonpositive(-std::fabs(x[i]));
        terms.loss[i] = (x[i] < 0 ? 0 : x[i]) - x[i] * t[i] + log1p_unit(e);
        const bool one = x[i] > 0, zero = x[i] <= 0, want_one = t[i] > 0.5F;
        terms.correct[i] = (want_one & one) | (!want_one & zero) ? 1.0F : 0.0F;
    }
    if (d == nullptr) return;
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) {
        const float e = exp_nonpositive(-std::fabs(x[i]));
        d[i] = scale * ((x[i] < 0 ? e : 1.0F) / (1.0F + e) - t[i]);
    }
}

template <class Element>
void regression(int threads, Scratch& scratch, const Regression& args, const char* verb,
                const Element& element) {
    const std::int64_t elements = args.prediction.count();
    const std::int64_t samples = args.prediction.shape.rank() > 0 ? args.prediction.shape[0] : 1;
    const Reals x(args.prediction, elements, verb), d = optional_reals(args.d_prediction, elements, verb);
    const float* t = floats(args.target, elements, verb);
    if (elements == 0) return;
    const auto outputs = static_cast<double>(elements / samples);
    const auto scale = static_cast<float>(static_cast<double>(args.gradient_scale) / outputs);
    const std::int64_t blocks = blocks_of(elements, element_block);
    Sums* part = scratch.reserve_of<Sums>(static_cast<std::size_t>(blocks));
    for_blocks(threads, elements, elements, element_block,
               [=](std::int64_t block, std::int64_t begin, std::int64_t end) {
                   Terms terms;
                   float outputs_buffer[terms_length], gradient_buffer[terms_length];
                   Sums sums;
                   for (std::int64_t at = begin; at < end; at += terms_length) {
                       const std::int64_t n = std::min(terms_length, end - at);
                       float* gradient = d ? d.place(at, gradient_buffer) : nullptr;
                       element(x.load(at, n, outputs_buffer), t + at, scale, gradient, terms, n);
                       if (d) d.store(at, n, gradient);
                       sums.loss += double_sum(terms.loss, n) / outputs;
                       sums.correct += double_sum(terms.correct, n) / outputs;
                   }
                   part[block] = sums;
               });
    part[0].count = static_cast<double>(samples);
    add_in_order(part, blocks, args.sums);
}

}  // namespace

void CpuOps::cross_entropy(const CrossEntropy& args) {
    const std::int64_t rows = args.labels.count();
    if (rows == 0) return;
    const std::int64_t classes = args.logits.count() / rows;
    const Reals logits(args.logits, rows * classes, "cross_entropy"),
        gradient = optional_reals(args.d_logits, rows * classes, "cross_entropy");
    const std::int32_t* labels = integers(args.labels, rows, "cross_entropy labels");
    check_labels(labels, rows, classes, args.ignore_index);
    const std::int64_t block = row_block(classes), blocks = blocks_of(rows, block);
    Sums* part = scratch_.reserve_of<Sums>(static_cast<std::size_t>(blocks));
    const ThreadBuffers buffers(lane_scratch_, threads_,
                                std::max(logits.buffer_size(classes), gradient.buffer_size(classes)));
    for_blocks(threads_, rows * classes, rows, block,
               [&](std::int64_t number, std::int64_t begin, std::int64_t end) {
                   float* buffer = buffers.mine();
                   Sums sums;
                   for (std::int64_t r = begin; r < end; ++r) {
                       const std::int64_t at = r * classes;
                       if (labels[r] == args.ignore_index) {
                           if (gradient) gradient.set_zero(at, classes);
                           continue;
                       }
                       float* d = gradient ? gradient.place(at, buffer) : nullptr;
                       cross_entropy_row(args, logits.load(at, classes, buffer), labels[r], d, classes, sums);
                       if (gradient) gradient.store(at, classes, d);
                   }
                   part[number] = sums;
               });
    add_in_order(part, blocks, args.sums);
}

void CpuOps::mean_squared_error(const Regression& args) {
    regression(threads_, scratch_, args, "mean_squared_error", squared_error);
}

void CpuOps::binary_cross_entropy(const Regression& args) {
    regression(threads_, scratch_, args, "binary_cross_entropy", logit_cross_entropy);
}

}  // namespace trireme::cpu
