// Which configurations a sweep tries: the parameters that vary, and the values of each trial. A trial's
// values depend on the sweep's keys and its number alone, so every process of every job finds the same.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trireme/train/config.hpp"

namespace trireme {

/// One line of sweep.param.
struct SweepParameter {
    enum class Kind { choice, uniform, loguniform, integer };
    std::string key;
    Kind kind = Kind::choice;
    std::vector<std::string> choices{};
    double low = 0, high = 0;
};
/// @throws Error (bad_usage) quoting the line and what was expected.
SweepParameter parse_sweep_parameter(const std::string& line);

class SweepSpace {
public:
    /// @throws Error (bad_usage) naming the sweep key that is wrong: no parameter, one given twice, ranges in
    /// a grid, more trials than 100000.
    explicit SweepSpace(const Config& config);

    std::int64_t trials() const { return trials_; }
    /// The keys and values of a trial, in the order of the parameters.
    std::vector<std::pair<std::string, std::string>> values(std::int64_t trial) const;
    /// The sweep's configuration with the trial's values. @throws Error (bad_usage) where a key or a value is
    /// not accepted.
    Config trial(const Config& sweep, std::int64_t trial) const;
    const std::vector<SweepParameter>& parameters() const { return parameters_; }

private:
    std::vector<SweepParameter> parameters_;
    bool grid_;
    std::uint64_t seed_;
    std::int64_t trials_ = 0;
};

}  // namespace trireme
