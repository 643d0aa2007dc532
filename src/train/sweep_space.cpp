#include "train/sweep_space.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/base/philox.hpp"

namespace trireme {
namespace {

constexpr std::int64_t most_trials = 100000;

[[noreturn]] void refuse(const std::string& line, const std::string& why) {
    throw usage_error("sweep.param=" + line + ": " + why);
}

/// Between semicolons where there are any: values may have commas themselves.
std::vector<std::string> choices_of(const std::string& line, const std::string& text) {
    std::vector<std::string> values;
    for (const std::string& part : split(text, text.find(';') != std::string::npos ? ';' : ','))
        values.emplace_back(trim(part));
    if (values.empty()) refuse(line, "expected values after `choice`");
    for (const std::string& value : values)
        if (std::count(values.begin(), values.end(), value) > 1) refuse(line, value + " is given twice");
    return values;
}

void read_bounds(const std::string& line, const std::string& text, SweepParameter& parameter) {
    std::vector<double> bounds;
    for (const std::string& word : split(text, ' ')) {
        if (word.empty()) continue;
        const auto number = parse_real(word);
        if (!number || !std::isfinite(*number)) refuse(line, word + " is no number");
        bounds.push_back(*number);
    }
    if (bounds.size() != 2 || !(bounds[0] < bounds[1]))
        refuse(line, "expected two bounds, the lower one first");
    parameter.low = bounds[0];
    parameter.high = bounds[1];
    const bool whole =
        std::floor(parameter.low) == parameter.low && std::floor(parameter.high) == parameter.high;
    if (parameter.kind == SweepParameter::Kind::loguniform && parameter.low <= 0)
        refuse(line, "loguniform needs bounds above 0");
    if (parameter.kind == SweepParameter::Kind::integer &&
        (!whole || std::abs(parameter.high) > 1e15 || std::abs(parameter.low) > 1e15))
        refuse(line, "integer needs whole numbers as bounds");
}

/// Five digits: enough to tell trials apart, short enough for tables.
std::string rounded(double value) {
    char text[32];
    const auto [end, error] = std::to_chars(text, text + sizeof text, value, std::chars_format::general, 5);
    return error == std::errc{} ? std::string(text, end) : to_text(value);
}

std::string drawn(const SweepParameter& parameter, double uniform) {
    switch (parameter.kind) {
        case SweepParameter::Kind::choice: {
            const auto count = static_cast<double>(parameter.choices.size());
            return parameter
                .choices[static_cast<std::size_t>(std::min(std::floor(uniform * count), count - 1))];
        }
        case SweepParameter::Kind::uniform:
            return rounded(parameter.low + uniform * (parameter.high - parameter.low));
        case SweepParameter::Kind::loguniform:
            return rounded(parameter.low * std::pow(parameter.high / parameter.low, uniform));
        case SweepParameter::Kind::integer:
            return std::to_string(static_cast<std::int64_t>(std::min(
                parameter.low + std::floor(uniform * (parameter.high - parameter.low + 1)), parameter.high)));
    }
    return {};
}

}  // namespace

SweepParameter parse_sweep_parameter(const std::string& line) {
    const std::string form =
        "expected `KEY choice V1, V2, ...`, `KEY uniform A B`, `KEY loguniform A B` or `KEY integer A B`";
    const std::size_t first = line.find(' ');
    const std::size_t second = first == std::string::npos ? first : line.find(' ', first + 1);
    if (second == std::string::npos) refuse(line, form);
    SweepParameter parameter{.key = line.substr(0, first)};
    const std::string kind = line.substr(first + 1, second - first - 1), rest(trim(line.substr(second)));
    if (parameter.key.starts_with("sweep.") || parameter.key == "run.dir")
        refuse(line, parameter.key + " is no key that trials can differ in");
    const auto& keys = config_keys();
    if (std::none_of(keys.begin(), keys.end(), [&](const ConfigKey& k) { return k.key == parameter.key; }))
        refuse(line, parameter.key + " is no key of the configuration");
    if (kind == "choice") {
        parameter.choices = choices_of(line, rest);
        return parameter;
    }
    if (kind == "uniform")
        parameter.kind = SweepParameter::Kind::uniform;
    else if (kind == "loguniform")
        parameter.kind = SweepParameter::Kind::loguniform;
    else if (kind == "integer")
        parameter.kind = SweepParameter::Kind::integer;
    else
        refuse(line, form);
    read_bounds(line, rest, parameter);
    return parameter;
}

SweepSpace::SweepSpace(const Config& config)
    : grid_(config.sweep.method == "grid"), seed_(config.sweep.seed), trials_(config.sweep.trials) {
    for (const std::string& line : config.sweep.params) {
        parameters_.push_back(parse_sweep_parameter(line));
        const SweepParameter& added = parameters_.back();
        const auto same = [&](const SweepParameter& other) { return other.key == added.key; };
        if (std::count_if(parameters_.begin(), parameters_.end(), same) > 1)
            refuse(line, added.key + " is given twice");
        if (grid_ && added.kind != SweepParameter::Kind::choice)
            refuse(line, "a grid needs choices; set sweep.method=random to draw from a range");
    }
    if (parameters_.empty())
        throw usage_error("sweep.param is missing: at least one key that trials differ in");
    if (grid_) {
        double all = 1;
        for (const SweepParameter& parameter : parameters_)
            all *= static_cast<double>(parameter.choices.size());
        if (trials_ == 0 || static_cast<double>(trials_) > all)
            trials_ = all > most_trials ? most_trials + 1 : static_cast<std::int64_t>(all);
    } else if (trials_ == 0) {
        trials_ = 16;
    }
    if (trials_ > most_trials)
        throw usage_error("sweep.trials: expected at most " + std::to_string(most_trials) + " trials");
}

std::vector<std::pair<std::string, std::string>> SweepSpace::values(std::int64_t trial) const {
    std::vector<std::pair<std::string, std::string>> values;
    std::int64_t rest = trial;  // grid: the last parameter changes fastest
    for (std::size_t i = parameters_.size(); i-- > 0;) {
        const SweepParameter& parameter = parameters_[i];
        if (grid_) {
            const auto count = static_cast<std::int64_t>(parameter.choices.size());
            values.emplace_back(parameter.key, parameter.choices[static_cast<std::size_t>(rest % count)]);
            rest /= count;
        } else {
            const RandomStream stream(seed_, Purpose::sweep, static_cast<std::uint64_t>(i));
            values.emplace_back(parameter.key, drawn(parameter, static_cast<double>(unit_interval(stream.word(
                                                                    static_cast<std::uint64_t>(trial))))));
        }
    }
    std::reverse(values.begin(), values.end());
    return values;
}

Config SweepSpace::trial(const Config& sweep, std::int64_t trial) const {
    Config config = sweep;
    for (const auto& [key, value] : values(trial)) {
        for (const ConfigKey& known : config_keys())
            if (known.key == key && known.repeated) set_config(config, key, "");
        set_config(config, key, value);
    }
    return config;
}

}  // namespace trireme
