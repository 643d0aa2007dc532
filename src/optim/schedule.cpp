#include "trireme/optim/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"

namespace trireme {

Schedule::Schedule(const ScheduleOptions& options) : options_(options) {
    const std::string& name = options.name;
    if (name != "constant" && name != "cosine" && name != "linear" && name != "step")
        throw usage_error("schedule.name=" + name + ": expected constant, cosine, linear or step");
    if (options.warmup < 0 || options.horizon < 0)
        throw usage_error("schedule.warmup_steps and schedule.steps: expected numbers that are not negative");
    if (options.min_lr < 0 || options.min_lr > options.base_lr)
        throw usage_error("schedule.min_lr=" + to_text(options.min_lr) +
                          ": expected 0 <= min_lr <= the peak, " + to_text(options.base_lr));
    if (name == "step" && (options.step_size < 1 || options.gamma <= 0 || options.gamma > 1))
        throw usage_error(
            "schedule.step_size and schedule.gamma: expected step_size >= 1 and 0 < gamma <= 1");
}

bool Schedule::take_validation(PlateauState&, double, bool) const {
    return false;
}

double Schedule::rate(std::int64_t applied, std::int64_t) const {
    const ScheduleOptions& o = options_;
    if (applied < o.warmup)
        return o.base_lr * static_cast<double>(applied + 1) / static_cast<double>(o.warmup);
    const auto since = static_cast<double>(applied - o.warmup);
    const double progress =
        o.horizon > o.warmup ? std::min(1.0, since / static_cast<double>(o.horizon - o.warmup)) : 1.0;
    if (o.name == "cosine")
        return o.min_lr + (o.base_lr - o.min_lr) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
    if (o.name == "linear") return o.base_lr + (o.min_lr - o.base_lr) * progress;
    if (o.name == "step")
        return std::max(o.min_lr,
                        o.base_lr * std::pow(o.gamma, std::floor(since / static_cast<double>(o.step_size))));
    return o.base_lr;
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
