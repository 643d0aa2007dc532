#include "trireme/optim/schedule.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"

namespace trireme {
namespace {

constexpr std::array names{"constant", "cosine",      "cosine_restarts", "linear", "poly",
                           "step",     "exponential", "one_cycle",       "plateau"};

void require(bool good, const std::string& key, double value, const std::string& expected) {
    if (!good) throw usage_error("schedule." + key + "=" + to_text(value) + ": expected " + expected);
}

void require_count(std::int64_t value, std::int64_t least, const std::string& key) {
    require(value >= least, key, static_cast<double>(value),
            "a whole number of at least " + std::to_string(least));
}

void require_from(double value, double least, const std::string& key) {
    require(value >= least && std::isfinite(value), key, value, "a number of at least " + to_text(least));
}

/// Half a cosine from `from` at p = 0 to `to` at p = 1.
double anneal(double from, double to, double p) {
    return to + (from - to) * 0.5 * (1 + std::cos(std::numbers::pi * p));
}

/// How far the cycle that holds `since` has come, in [0, 1).
double cycle_progress(const ScheduleOptions& o, double since) {
    auto length = static_cast<double>(o.cycle);
    if (o.cycle_factor == 1) return std::fmod(since, length) / length;
    while (since >= length) {
        since -= length;
        length *= o.cycle_factor;
    }
    return since / length;
}

/// Update `applied` (from 0) of torch's OneCycleLR: the peak is at update `warmup` - 1, the end at the last
/// update before the horizon.
double one_cycle(const ScheduleOptions& o, double applied) {
    const double low = o.base_lr / o.start_factor, end = low / o.final_factor;
    const auto horizon = static_cast<double>(o.horizon);
    const double rise = o.warmup > 0 ? static_cast<double>(o.warmup) : std::max(1.0, 0.3 * horizon);
    const double peak = rise - 1, last = horizon - 1;
    if (applied < peak) return anneal(low, o.base_lr, applied / peak);
    return last > peak ? anneal(o.base_lr, end, std::min(1.0, (applied - peak) / (last - peak))) : end;
}

}  // namespace

Schedule::Schedule(const ScheduleOptions& options) : options_(options) {
    const ScheduleOptions& o = options_;
    if (std::find(names.begin(), names.end(), o.name) == names.end())
        throw usage_error("schedule.name=" + o.name +
                          ": expected constant, cosine, cosine_restarts, linear, poly, step, exponential, "
                          "one_cycle or plateau");
    require_count(o.warmup, 0, "warmup_steps");
    require_count(o.horizon, 0, "steps");
    require(o.min_lr >= 0 && o.min_lr <= o.base_lr, "min_lr", o.min_lr,
            "0 <= min_lr <= the peak, " + to_text(o.base_lr));
    if (o.name == "step" || o.name == "exponential") {
        require_count(o.step_size, 1, "step_size");
        require(o.gamma > 0 && o.gamma <= 1, "gamma", o.gamma, "0 < gamma <= 1");
    } else if (o.name == "cosine_restarts") {
        require_count(o.cycle, 1, "cycle");
        require_from(o.cycle_factor, 1, "cycle_factor");
    } else if (o.name == "poly") {
        require(o.power > 0 && std::isfinite(o.power), "power", o.power, "a positive number");
    } else if (o.name == "one_cycle") {
        require_from(o.start_factor, 1, "start_factor");
        require_from(o.final_factor, 1, "final_factor");
    } else if (o.name == "plateau") {
        require(o.gamma > 0 && o.gamma < 1, "gamma", o.gamma, "0 < gamma < 1");
        require_count(o.patience, 0, "patience");
        require_count(o.cooldown, 0, "cooldown");
        require(o.threshold >= 0 && o.threshold < 1, "threshold", o.threshold, "0 <= threshold < 1");
    }
}

double Schedule::rate(std::int64_t applied, std::int64_t drops) const {
    const ScheduleOptions& o = options_;
    if (o.name == "one_cycle") return one_cycle(o, static_cast<double>(applied));
    if (applied < o.warmup)
        return o.base_lr * static_cast<double>(applied + 1) / static_cast<double>(o.warmup);
    const auto since = static_cast<double>(applied - o.warmup);
    const double progress =
        o.horizon > o.warmup ? std::min(1.0, since / static_cast<double>(o.horizon - o.warmup)) : 1.0;
    const auto fallen = [&o](double times) {
        return std::max(o.min_lr, o.base_lr * std::pow(o.gamma, times));
    };
    if (o.name == "cosine") return anneal(o.base_lr, o.min_lr, progress);
    if (o.name == "cosine_restarts") return anneal(o.base_lr, o.min_lr, cycle_progress(o, since));
    if (o.name == "linear") return o.base_lr + (o.min_lr - o.base_lr) * progress;
    if (o.name == "poly") return o.min_lr + (o.base_lr - o.min_lr) * std::pow(1 - progress, o.power);
    if (o.name == "step") return fallen(std::floor(since / static_cast<double>(o.step_size)));
    if (o.name == "exponential") return fallen(since / static_cast<double>(o.step_size));
    if (o.name == "plateau") return fallen(static_cast<double>(drops));
    return o.base_lr;
}

bool Schedule::take_validation(PlateauState& state, double metric, bool larger_is_better) const {
    const ScheduleOptions& o = options_;
    if (o.name != "plateau") return false;
    // A best that is no number is none yet: anything finite is better.
    const bool judged = state.seen > 0 && std::isfinite(state.best);
    const double margin = o.threshold * std::abs(state.best);
    const bool better =
        std::isfinite(metric) &&
        (!judged || (larger_is_better ? metric > state.best + margin : metric < state.best - margin));
    if (better || state.seen == 0) state.best = metric;
    ++state.seen;
    state.bad = better ? 0 : state.bad + 1;
    if (state.cooldown > 0) {
        --state.cooldown;
        state.bad = 0;
    }
    if (state.bad <= o.patience) return false;
    state.bad = 0;
    state.cooldown = o.cooldown;
    if (o.base_lr * std::pow(o.gamma, static_cast<double>(state.drops)) <= o.min_lr) return false;
    ++state.drops;
    return true;
}

double lr_scale(const std::string& rule, std::int64_t batch, std::int64_t base_batch) {
    if (rule == "none") return 1;
    if (base_batch < 1)
        throw usage_error("optim.base_batch=" + std::to_string(base_batch) +
                          ": expected a whole number of at least 1");
    const double ratio = static_cast<double>(batch) / static_cast<double>(base_batch);
    if (rule == "linear") return ratio;
    if (rule == "sqrt") return std::sqrt(ratio);
    throw usage_error("optim.scale_lr=" + rule + ": expected none, linear or sqrt");
}

}  // namespace trireme
