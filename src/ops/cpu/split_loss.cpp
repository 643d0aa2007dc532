// Cross-entropy over classes that are split over ranks (the vocabulary-parallel loss of Shoeybi et al. 2019).
// With m the maximum of a whole row, S = Σ exp(x - m) over all ranks and t = (1-ε)·onehot + ε/C:
//   L = -Σ_j t_j·(x_j - m - log S),  dL/dx_j = exp(x_j - m)/S - t_j
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cpu/checks.hpp"
#include "ops/cpu/cpu_ops.hpp"
#include "ops/cpu/lanes.hpp"
#include "ops/cpu/logits.hpp"
#include "ops/cpu/parallel.hpp"
#include "ops/cpu/reals.hpp"

namespace trireme::cpu {
namespace {

/// What the three steps read, checked. This rank may have no class at all.
struct Part {
    Part(const SplitCrossEntropy& args, const char* verb)
        : rows(args.labels.count()),
          columns(rows == 0 ? 0 : args.logits.count() / rows),
          logits(args.logits, rows * columns, verb),
          labels(integers(args.labels, rows, verb)),
          maximum(floats(args.maximum, rows, verb)) {
        check_labels(labels, rows, args.classes, args.ignore_index);
    }
    std::int64_t rows, columns;
    Reals logits;
    const std::int32_t* labels;
    float* maximum;
};

/// body(row) for each row, shared by threads.
template <class Body>
void for_rows(int threads, const Part& part, const Body& body) {
    for_blocks(threads, part.rows * part.columns, part.rows, row_block(part.columns),
               [&body](std::int64_t, std::int64_t begin, std::int64_t end) {
                   for (std::int64_t r = begin; r < end; ++r) body(r);
               });
}

/// Never NaN: ranks could not agree on its maximum. A NaN among the logits shows in the sum of exponentials.
float maximum_of(const Part& part, std::int64_t row) {
    Stretch buffer;
    float best = -std::numeric_limits<float>::infinity();
    for (std::int64_t c = 0; c < part.columns; c += stretch) {
        const std::int64_t n = std::min(stretch, part.columns - c);
        best = std::max(best, row_maximum(part.logits.load(row * part.columns + c, n, buffer), n));
    }
    return best;
}

struct RowSums {
    double exponentials = 0, logits = 0;
    std::int64_t winner = -1;  ///< of this rank's classes; -1: none
};

RowSums sums_of(const Part& part, std::int64_t row) {
    Stretch buffer, terms;
    RowSums sums;
    const float top = part.maximum[row];
    for (std::int64_t c = 0; c < part.columns; c += stretch) {
        const std::int64_t n = std::min(stretch, part.columns - c);
        const float* x = part.logits.load(row * part.columns + c, n, buffer);
        shifted_exp(x, top, terms, n);
        sums.exponentials += double_sum(terms, n);
        sums.logits += double_sum(x, n);
        if (sums.winner < 0 && row_maximum(x, n) == top) sums.winner = c + (std::find(x, x + n, top) - x);
    }
    return sums;
}

/// The rows one after the other: every rank gets the same bits, whatever its share of the classes.
void add_losses(const SplitCrossEntropy& args, const Part& part, const float* row_sums,
                const std::int32_t* winner) {
    const auto smoothing = static_cast<double>(args.label_smoothing);
    double loss = 0, count = 0, correct = 0;
    for (std::int64_t r = 0; r < part.rows; ++r) {
        if (part.labels[r] == args.ignore_index) continue;
        const auto sum = static_cast<double>(row_sums[3 * r]),
                   labelled = static_cast<double>(row_sums[3 * r + 1]);
        const double log_sum = static_cast<double>(part.maximum[r]) + std::log(sum);
        loss += (1 - smoothing) * (log_sum - labelled);
        if (smoothing > 0) {
            const double mean = static_cast<double>(row_sums[3 * r + 2]) / static_cast<double>(args.classes);
            loss += smoothing * (log_sum - mean);
        }
        count += 1;
        correct += winner[r] == part.labels[r] && !std::isnan(sum) ? 1 : 0;
    }
    *args.sums.loss += loss;
    *args.sums.count += count;
    *args.sums.correct += correct;
}

void set_gradient(const SplitCrossEntropy& args, const Part& part, float sum, const Reals& to,
                  std::int64_t row) {
    Stretch buffer;
    const auto scale = static_cast<double>(args.gradient_scale),
               smoothing = static_cast<double>(args.label_smoothing);
    const std::int64_t own = part.labels[row] - args.first;  // the label among this rank's classes
    const bool ignored = part.labels[row] == args.ignore_index;
    const auto factor = static_cast<float>(scale / static_cast<double>(sum)),
               offset = static_cast<float>(scale * smoothing / static_cast<double>(args.classes));
    for (std::int64_t c = 0; c < part.columns; c += stretch) {
        const std::int64_t at = row * part.columns + c, n = std::min(stretch, part.columns - c);
        float* d = to.place(at, buffer);
        if (ignored) {
            std::fill_n(d, n, 0.0F);
        } else {
            shifted_exp(part.logits.load(at, n, buffer), part.maximum[row], d, n);
            scale_row(d, factor, offset, n);
            if (own >= c && own < c + n) d[own - c] -= static_cast<float>(scale * (1 - smoothing));
        }
        to.store(at, n, d);
    }
}

}  // namespace

void CpuOps::split_cross_entropy_maximum(const SplitCrossEntropy& args) {
    const Part part(args, "split_cross_entropy_maximum");
    for_rows(threads_, part, [&part](std::int64_t r) { part.maximum[r] = maximum_of(part, r); });
}

void CpuOps::split_cross_entropy_sums(const SplitCrossEntropy& args) {
    const Part part(args, "split_cross_entropy_sums");
    float* row_sums = floats(args.row_sums, 3 * part.rows, "split_cross_entropy row_sums");
    std::int32_t* winner = integers(args.winner, part.rows, "split_cross_entropy winner");
    for_rows(threads_, part, [&](std::int64_t r) {
        const RowSums sums = sums_of(part, r);
        const std::int64_t own = part.labels[r] - args.first;
        float labelled = 0;
        if (own >= 0 && own < part.columns)
            labelled = *part.logits.load(r * part.columns + own, 1, &labelled);
        row_sums[3 * r] = static_cast<float>(sums.exponentials);
        row_sums[3 * r + 1] = labelled;
        row_sums[3 * r + 2] = static_cast<float>(sums.logits);
        winner[r] = sums.winner < 0 ? std::numeric_limits<std::int32_t>::max()
                                    : static_cast<std::int32_t>(args.first + sums.winner);
    });
}

void CpuOps::split_cross_entropy_finish(const SplitCrossEntropy& args) {
    const Part part(args, "split_cross_entropy_finish");
    const float* row_sums = floats(args.row_sums, 3 * part.rows, "split_cross_entropy row_sums");
    const std::int32_t* winner = integers(args.winner, part.rows, "split_cross_entropy winner");
    const Reals gradient =
        optional_reals(args.d_logits, part.rows * part.columns, "split_cross_entropy d_logits");
    add_losses(args, part, row_sums, winner);
    if (gradient)
        for_rows(threads_, part,
                 [&](std::int64_t r) { set_gradient(args, part, row_sums[3 * r], gradient, r); });
}

}  // namespace trireme::cpu
