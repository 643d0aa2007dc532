// Asynchronous successive halving (Li et al. 2018): trials train in rungs, each `factor` times as long as the
// one before; of the trials that have finished a rung the best 1/factor go on to the next one. Nobody waits
// for a rung to be complete.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace trireme {

/// What is known of one trial.
struct TrialRecord {
    std::vector<double> metrics;  ///< of each rung that it has finished, in order
    bool failed = false;          ///< it will not go on
    bool taken = false;           ///< somebody is training it now
};

struct TrialJob {
    std::int64_t trial = 0;
    int rung = 0;
    friend bool operator==(const TrialJob&, const TrialJob&) = default;
};

class Halving {
public:
    /// `factor`: 0 for one rung to the end. Epochs of the last rung are all of `epochs` (0: not in epochs).
    Halving(std::int64_t factor, std::int64_t min_epochs, std::int64_t epochs, bool higher_is_better);

    int rungs() const { return static_cast<int>(epochs_.size()); }
    /// Epochs after which a rung ends; 0: where the run itself ends.
    std::int64_t epochs(int rung) const { return epochs_[static_cast<std::size_t>(rung)]; }

    /// What to train next: a trial that has earned its next rung, the highest rung first, else a new one.
    /// Nothing where all is taken or done.
    std::optional<TrialJob> next(const std::vector<TrialRecord>& trials) const;
    /// Nothing more will come of this trial.
    bool settled(const TrialRecord& trial) const {
        return trial.failed || trial.metrics.size() == epochs_.size();
    }
    /// Whether something may still come, once those that are taken have finished.
    bool may_go_on(const std::vector<TrialRecord>& trials) const;

private:
    std::vector<std::int64_t> promotable(const std::vector<TrialRecord>& trials, int rung) const;

    std::int64_t factor_;
    bool higher_is_better_;
    std::vector<std::int64_t> epochs_;
};

}  // namespace trireme
