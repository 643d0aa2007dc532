// Dynamic loss scaling (Micikevicius et al. 2018): the loss is multiplied so that small gradients survive
// float16; a step whose gradient overflowed is skipped and the scale backs off; a run of good steps lets it
// grow again.
#pragma once

#include <cstdint>
#include <string>

namespace trireme {

struct ScalerOptions {
    bool enabled = false;  ///< otherwise the scale is 1, always
    double init = 65536, growth = 2, backoff = 0.5;
    std::int64_t interval = 2000;  ///< good steps from one growth to the next
    double least = 1e-4;           ///< a scale below this ends the run
    std::int64_t most_skips = 50;  ///< so many skipped steps in a row end the run
};

/// Part of the training position.
struct ScalerState {
    double scale = 1;
    std::int64_t growth = 0;  ///< good steps since the scale last changed
    std::int64_t skips = 0;   ///< skipped steps since the last good one
    friend bool operator==(const ScalerState&, const ScalerState&) = default;
};

class Scaler {
public:
    /// @throws Error (bad_usage) naming key and value out of range.
    explicit Scaler(const ScalerOptions& options);

    bool enabled() const { return options_.enabled; }
    /// Of a fresh run.
    ScalerState start() const;
    /// A saved state under these options: a run that comes from another precision starts anew.
    ScalerState resume(const ScalerState& saved, bool saved_enabled) const;

    void applied(ScalerState& state) const;
    /// @throws Error (failed, all ranks) when there were too many skips in a row or the scale has fallen too
    /// low. `culprit`: the parameter that first went non-finite in this row of skips, `step`: when.
    void skipped(ScalerState& state, const std::string& culprit, std::int64_t step) const;

private:
    ScalerOptions options_;
};

}  // namespace trireme
