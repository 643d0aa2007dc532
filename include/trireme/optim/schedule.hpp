// Learning rates as a function of the number of applied updates.
#pragma once

#include <cstdint>
#include <string>

namespace trireme {

struct ScheduleOptions {
    std::string name = "constant";  ///< constant, cosine, linear, step
    double base_lr = 1e-3;          ///< peak, after scaling by the batch
    double min_lr = 0;              ///< floor, reached at the horizon and kept past it
    std::int64_t horizon = 1;       ///< updates until the end of the schedule
    std::int64_t warmup = 0;        ///< updates of linear warm-up; the warmup-th update has the peak
    std::int64_t step_size = 1;     ///< step: updates between two drops
    double gamma = 0.1;             ///< step: factor of each drop
};

class Schedule {
public:
    /// @throws Error (bad_usage) naming key and value on unknown names or values out of range.
    explicit Schedule(const ScheduleOptions& options);

    /// The rate of the next update when `applied` updates have been applied.
    /// Warm-up: base·(applied+1)/warmup. Then, with p = (applied-warmup)/(horizon-warmup) clipped to 1,
    /// cosine: min + (base-min)·(1+cos πp)/2 (Loshchilov and Hutter 2017); linear: base + (min-base)·p;
    /// step: base·gamma^⌊(applied-warmup)/step_size⌋, not below min.
    double rate(std::int64_t applied) const;

private:
    ScheduleOptions options_;
};

/// Factor on the learning rate for a global batch against the batch it was tuned for: none 1; linear
/// batch/base (Goyal et al. 2017); sqrt √(batch/base). @throws Error (bad_usage) on another rule.
double lr_scale(const std::string& rule, std::int64_t batch, std::int64_t base_batch);

}  // namespace trireme
