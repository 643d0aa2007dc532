#include "train/halving.hpp"

#include <algorithm>

namespace trireme {

Halving::Halving(std::int64_t factor, std::int64_t min_epochs, std::int64_t epochs, bool higher_is_better)
    : factor_(factor), higher_is_better_(higher_is_better) {
    for (std::int64_t rung = min_epochs; factor > 1 && rung < epochs; rung *= factor) epochs_.push_back(rung);
    epochs_.push_back(0);
}

/// Trials that have finished this rung as some of the best 1/factor, best first, without those that are
/// further already.
std::vector<std::int64_t> Halving::promotable(const std::vector<TrialRecord>& trials, int rung) const {
    const auto at = static_cast<std::size_t>(rung);
    std::vector<std::int64_t> finished;
    for (std::size_t t = 0; t < trials.size(); ++t)
        if (trials[t].metrics.size() > at) finished.push_back(static_cast<std::int64_t>(t));
    std::stable_sort(finished.begin(), finished.end(), [&](std::int64_t a, std::int64_t b) {
        const double x = trials[static_cast<std::size_t>(a)].metrics[at],
                     y = trials[static_cast<std::size_t>(b)].metrics[at];
        return higher_is_better_ ? x > y : x < y;
    });
    finished.resize(finished.size() / static_cast<std::size_t>(std::max<std::int64_t>(1, factor_)));
    std::erase_if(finished, [&](std::int64_t t) {
        const TrialRecord& trial = trials[static_cast<std::size_t>(t)];
        return trial.metrics.size() > at + 1 || trial.taken || trial.failed;
    });
    return finished;
}

std::optional<TrialJob> Halving::next(const std::vector<TrialRecord>& trials) const {
    for (int rung = rungs() - 2; rung >= 0; --rung)
        if (const std::vector<std::int64_t> ready = promotable(trials, rung); !ready.empty())
            return TrialJob{ready.front(), rung + 1};
    for (std::size_t t = 0; t < trials.size(); ++t)
        if (trials[t].metrics.empty() && !trials[t].taken && !trials[t].failed)
            return TrialJob{static_cast<std::int64_t>(t), 0};
    return std::nullopt;
}

bool Halving::may_go_on(const std::vector<TrialRecord>& trials) const {
    return rungs() > 1 &&
           std::any_of(trials.begin(), trials.end(), [](const TrialRecord& trial) { return trial.taken; });
}

}  // namespace trireme
