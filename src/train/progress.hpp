// What a person sees of a run: a line that moves on a terminal, and one line per validated epoch everywhere.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/clock.hpp"
#include "trireme/train/evaluate.hpp"

namespace trireme {

class Progress {
public:
    /// mode: auto (live line on a terminal), on, off. Only rank 0 shows anything.
    Progress(int rank, const std::string& mode, bool quiet, std::int64_t epochs, std::int64_t total_steps);

    /// Sums over one step. `step`: done so far in the whole run.
    void step(std::int64_t epoch, std::int64_t step, double loss_sum, double count, double correct,
              bool accuracy, std::int64_t samples);
    /// Closes an epoch (or part of one) with its validation, if there was one.
    void epoch_end(std::int64_t epoch, const EvalResult* valid, bool best);

    double samples_per_second() const;

private:
    std::string training_text(std::int64_t epoch) const;
    void clear_line();

    bool shown_, live_;
    std::int64_t epochs_, total_steps_, first_step_ = -1, last_step_ = 0;
    double loss_ = 0, count_ = 0, correct_ = 0;
    bool accuracy_ = false;
    std::int64_t samples_ = 0;
    double drawn_at_ = 0;
    bool drawn_ = false;
    Stopwatch watch_;
};

}  // namespace trireme
