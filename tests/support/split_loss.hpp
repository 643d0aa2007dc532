#pragma once
// The three steps of the split cross-entropy on every part of the classes, with the reductions between them
// done by hand, as ranks would.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "support/tensors.hpp"

namespace trireme::testing {

struct SplitSettings {
    std::vector<std::int64_t> parts;  ///< classes of each rank
    DType type = DType::f32, gradient_type = DType::f32;
    float smoothing = 0;
    std::int32_t ignored = -100;
    float scale = 1;
    bool in_place = false;  ///< the gradient goes where the logits are; gradient_type is then type
};

struct SplitResult {
    double loss = 0, count = 0, correct = 0;
    Values gradient;  ///< [N, classes]
};

class SplitRank {
public:
    /// This rank's columns of logits [N, classes].
    SplitRank(const Machine& machine, const SplitSettings& settings, const Values& logits,
              const std::vector<std::int32_t>& labels, std::int64_t first, std::int64_t columns)
        : n_(static_cast<std::int64_t>(labels.size())),
          columns_(columns),
          logits_(machine.real(settings.type, {n_, columns}, cut(logits, first))),
          labels_(machine.indices({n_}, labels)),
          maximum_(machine.output({n_})),
          row_sums_(machine.output({n_, 3})),
          winner_(machine.indices({n_}, std::vector<std::int32_t>(labels.size(), 12345))),
          gradient_(machine.real_output(settings.gradient_type, {n_, columns})),
          loss_(*machine.device),
          count_(*machine.device),
          correct_(*machine.device) {
        args_ = {.logits = logits_,
                 .labels = labels_,
                 .first = first,
                 .classes = static_cast<std::int64_t>(logits.size()) / std::max<std::int64_t>(1, n_),
                 .label_smoothing = settings.smoothing,
                 .ignore_index = settings.ignored,
                 .gradient_scale = settings.scale,
                 .d_logits = settings.in_place ? logits_.view() : gradient_.view(),
                 .sums = {loss_.get(), count_.get(), correct_.get()},
                 .maximum = maximum_,
                 .row_sums = row_sums_,
                 .winner = winner_};
    }

    const SplitCrossEntropy& args() const { return args_; }
    std::vector<float> maximum() const { return maximum_.values(); }
    std::vector<float> row_sums() const { return row_sums_.values(); }
    std::vector<std::int32_t> winner() const { return winner_.values(); }
    /// The arguments after a reduction: with what all ranks have.
    SplitCrossEntropy reduced(const View& maximum, const View& row_sums = {}, const View& winner = {}) const {
        SplitCrossEntropy args = args_;
        args.maximum = maximum;
        if (row_sums) args.row_sums = row_sums;
        if (winner) args.winner = winner;
        return args;
    }
    Values gradient() const {
        return args_.d_logits.data == logits_.view().data ? logits_.values() : gradient_.values();
    }
    SplitResult result() const { return {loss_.value(), count_.value(), correct_.value(), {}}; }

private:
    Values cut(const Values& logits, std::int64_t first) const {
        Values part;
        for (std::int64_t r = 0; r < n_; ++r) {
            const auto row = logits.begin() + r * static_cast<std::int64_t>(logits.size()) / n_;
            part.insert(part.end(), row + first, row + first + columns_);
        }
        return part;
    }

    std::int64_t n_, columns_;
    Real logits_;
    Indices labels_;
    Tensor maximum_, row_sums_;
    Indices winner_;
    Real gradient_;
    Cell loss_, count_, correct_;
    SplitCrossEntropy args_;
};

inline SplitResult split_cross_entropy(const Machine& machine, const SplitSettings& settings,
                                       const Values& logits, const std::vector<std::int32_t>& labels) {
    const auto n = static_cast<std::int64_t>(labels.size());
    std::vector<SplitRank> ranks;
    std::int64_t first = 0;
    for (const std::int64_t columns : settings.parts) {
        ranks.emplace_back(machine, settings, logits, labels, first, columns);
        first += columns;
    }

    Values maximum(labels.size(), -std::numeric_limits<double>::infinity());
    for (const SplitRank& rank : ranks) {
        machine.ops->split_cross_entropy_maximum(rank.args());
        const std::vector<float> own = rank.maximum();
        for (std::size_t i = 0; i < own.size(); ++i)
            maximum[i] = std::max(maximum[i], static_cast<double>(own[i]));
    }
    const Tensor all_maximum = machine.tensor({n}, maximum);

    std::vector<float> sums(3 * labels.size(), 0.0F);
    std::vector<std::int32_t> winner(labels.size(), std::numeric_limits<std::int32_t>::max());
    for (const SplitRank& rank : ranks) {
        machine.ops->split_cross_entropy_sums(rank.reduced(all_maximum));
        const std::vector<float> own = rank.row_sums();
        for (std::size_t i = 0; i < own.size(); ++i) sums[i] += own[i];
        const std::vector<std::int32_t> own_winner = rank.winner();
        for (std::size_t i = 0; i < winner.size(); ++i) winner[i] = std::min(winner[i], own_winner[i]);
    }
    const Tensor all_sums(*machine.device, {n, 3}, sums);
    const Indices all_winner = machine.indices({n}, winner);

    for (const SplitRank& rank : ranks)
        machine.ops->split_cross_entropy_finish(rank.reduced(all_maximum, all_sums, all_winner));
    SplitResult result = ranks.front().result();
    std::vector<Values> gradients;
    for (const SplitRank& rank : ranks) {
        const SplitResult own = rank.result();
        CHECK((own.loss == result.loss || std::isnan(own.loss)));
        CHECK(own.count == result.count);
        CHECK(own.correct == result.correct);
        gradients.push_back(rank.gradient());
    }
    for (std::size_t r = 0; r < labels.size(); ++r)
        for (const Values& part : gradients) {
            const std::size_t columns = part.size() / labels.size();
            for (std::size_t c = 0; c < columns; ++c) result.gradient.push_back(part[r * columns + c]);
        }
    return result;
}

}  // namespace trireme::testing
