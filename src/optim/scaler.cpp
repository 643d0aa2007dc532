#include "trireme/optim/scaler.hpp"

#include <cmath>

#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"

namespace trireme {
namespace {

constexpr double largest = 0x1p127;  ///< of a scale: it is applied in float32

void require(bool good, const std::string& key, double value, const std::string& expected) {
    if (!good) throw usage_error("scaler." + key + "=" + to_text(value) + ": expected " + expected);
}

Error end_of(const std::string& what, const std::string& culprit, std::int64_t step) {
    const std::string first =
        culprit.empty() ? ""
                        : culprit + " was the first to go non-finite, at step " + std::to_string(step) + "; ";
    return Error(Status::failed,
                 what + "; " + first +
                     "try a lower optim.lr, train.clip_norm or train.precision=bf16, and look for inf or NaN "
                     "in the data",
                 Scope::all_ranks);
}

}  // namespace

Scaler::Scaler(const ScalerOptions& options) : options_(options) {
    const ScalerOptions& o = options_;
    require(o.least > 0 && o.least <= largest, "min", o.least, "a positive number");
    require(o.init >= o.least && o.init <= largest, "init", o.init,
            "a number from scaler.min, " + to_text(o.least) + ", to 2^127");
    require(o.growth >= 1 && std::isfinite(o.growth), "growth", o.growth, "a number of at least 1");
    require(o.backoff > 0 && o.backoff < 1, "backoff", o.backoff, "0 < backoff < 1");
    require(o.interval >= 1, "interval", static_cast<double>(o.interval), "a whole number of at least 1");
    require(o.most_skips >= 1, "max_skips", static_cast<double>(o.most_skips),
            "a whole number of at least 1");
}

ScalerState Scaler::start() const {
    return {.scale = options_.enabled ? options_.init : 1};
}

ScalerState Scaler::resume(const ScalerState& saved, bool saved_enabled) const {
    return options_.enabled && saved_enabled ? saved : start();
}

void Scaler::applied(ScalerState& state) const {
    state.skips = 0;
    if (!options_.enabled || ++state.growth < options_.interval) return;
    state.growth = 0;
    if (state.scale * options_.growth <= largest) state.scale *= options_.growth;
}

void Scaler::skipped(ScalerState& state, const std::string& culprit, std::int64_t step) const {
    state.growth = 0;
    ++state.skips;
    if (options_.enabled) state.scale *= options_.backoff;
    if (state.skips >= options_.most_skips)
        throw end_of(std::to_string(state.skips) +
                         (state.skips == 1 ? " update was skipped" : " updates in a row were skipped") +
                         " because gradients were not finite (scaler.max_skips)",
                     culprit, step);
    if (options_.enabled && state.scale < options_.least)
        throw end_of("the loss scale fell to " + to_text(state.scale) + ", below scaler.min=" +
                         to_text(options_.least) + ", because gradients were not finite",
                     culprit, step);
}

}  // namespace trireme
