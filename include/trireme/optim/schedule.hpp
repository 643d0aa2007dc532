// Learning rates as a function of the number of applied updates, and of validations for `plateau`.
#pragma once

#include <cstdint>
#include <string>

namespace trireme {

struct ScheduleOptions {
    /// constant, cosine, cosine_restarts, linear, poly, step, exponential, one_cycle, plateau
    std::string name = "constant";
    double base_lr = 1e-3;        ///< peak, after scaling by the batch
    double min_lr = 0;            ///< cosine, linear, poly: reached at the horizon and kept past it; end of
                                  ///< each cycle of cosine_restarts; floor of step, exponential and plateau
    std::int64_t horizon = 1;     ///< updates until the end of the schedule
    std::int64_t warmup = 0;      ///< updates of linear warm-up; the warmup-th update has the peak;
                                  ///< one_cycle: of its rise, 0: 30 % of the horizon
    std::int64_t step_size = 1;   ///< step, exponential: updates over which the rate falls by gamma
    double gamma = 0.1;           ///< step, exponential, plateau: factor of each drop
    double power = 1;             ///< poly
    std::int64_t cycle = 1;       ///< cosine_restarts: updates of the first cycle
    double cycle_factor = 1;      ///< cosine_restarts: each cycle is so many times as long as the one before
    double start_factor = 25;     ///< one_cycle: it starts from peak / start_factor
    double final_factor = 10000;  ///< one_cycle: and ends at that / final_factor
    std::int64_t patience = 10;   ///< plateau: validations without a better one that are tolerated
    double threshold = 1e-4;      ///< plateau: better means by this part of the best so far
    std::int64_t cooldown = 0;    ///< plateau: validations after a drop that are not judged
};

/// What plateau remembers; part of the training position.
struct PlateauState {
    std::int64_t seen = 0;  ///< validations so far
    double best = 0;
    std::int64_t bad = 0, cooldown = 0, drops = 0;
    friend bool operator==(const PlateauState&, const PlateauState&) = default;
};

class Schedule {
public:
    /// @throws Error (bad_usage) naming key and value on unknown names or values out of range.
    explicit Schedule(const ScheduleOptions& options);

    /// The rate of the next update when `applied` updates have been applied: a function of the two arguments
    /// alone, so a resumed run goes on as it would have. With s the updates since the warm-up and
    /// p = s / (horizon - warmup), at most 1:
    ///   warm-up            base·(applied + 1) / warmup, in all but one_cycle
    ///   cosine             min + (base - min)·(1 + cos πp) / 2 (Loshchilov and Hutter 2017)
    ///   cosine_restarts    the same, p being the part of the present cycle; cycles go on past the horizon
    ///   linear, poly       base + (min - base)·p;  min + (base - min)·(1 - p)^power
    ///   step, exponential  base·gamma^⌊s / step_size⌋;  base·gamma^(s / step_size); not below min
    ///   one_cycle          Smith and Topin 2018 as torch's OneCycleLR: half a cosine up from
    ///                      base / start_factor to base at the warmup-th update, another down to that start
    ///                      / final_factor at the last update before the horizon, kept past it
    ///   plateau            base·gamma^drops, not below min; `drops`: PlateauState::drops
    double rate(std::int64_t applied, std::int64_t drops = 0) const;

    /// Takes a validation's metric, as torch's ReduceLROnPlateau does with a relative threshold (of the
    /// best's magnitude, so that negative metrics work too). A metric that is not finite is never better.
    /// Does nothing unless the schedule is plateau. Returns true when the rate drops.
    bool take_validation(PlateauState& state, double metric, bool larger_is_better) const;

private:
    ScheduleOptions options_;
};

/// Factor on the learning rate for a global batch against the batch it was tuned for: none 1; linear
/// batch/base (Goyal et al. 2017); sqrt √(batch/base). @throws Error (bad_usage) on another rule.
double lr_scale(const std::string& rule, std::int64_t batch, std::int64_t base_batch);

}  // namespace trireme
