#include "trireme/nn/description.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"

namespace trireme {

LayerSpec::LayerSpec(const std::string& line, int index) : line_(line) {
    std::vector<std::string> words = split(line, ' ');
    std::erase(words, std::string());
    if (words.empty()) refuse("expected `kind key=value ...`");
    kind_ = words.front();
    for (std::size_t i = 1; i < words.size(); ++i) {
        const std::size_t equals = words[i].find('=');
        if (equals == std::string::npos || equals == 0) refuse("`" + words[i] + "` is no key=value");
        if (!options_.emplace(words[i].substr(0, equals), words[i].substr(equals + 1)).second)
            refuse("`" + words[i].substr(0, equals) + "` is given twice");
    }
    name_ = text("name", std::to_string(index) + "." + kind_);
}

std::int64_t LayerSpec::integer(const std::string& key, std::int64_t fallback, std::int64_t least) const {
    const auto option = options_.find(key);
    if (option == options_.end()) return fallback;
    const auto value = parse_int(option->second);
    if (!value || *value < least)
        refuse(key + "=" + option->second + ": expected a whole number of at least " + std::to_string(least));
    return *value;
}

std::int64_t LayerSpec::required_integer(const std::string& key) const {
    if (!has(key)) refuse("`" + key + "=` is missing");
    return integer(key, 0);
}

double LayerSpec::real(const std::string& key, double fallback) const {
    const auto option = options_.find(key);
    if (option == options_.end()) return fallback;
    const auto value = parse_real(option->second);
    if (!value) refuse(key + "=" + option->second + ": expected a number");
    return *value;
}

bool LayerSpec::flag(const std::string& key, bool fallback) const {
    const auto option = options_.find(key);
    if (option == options_.end()) return fallback;
    const auto value = parse_bool(option->second);
    if (!value) refuse(key + "=" + option->second + ": expected true or false");
    return *value;
}

std::string LayerSpec::text(const std::string& key, const std::string& fallback) const {
    const auto option = options_.find(key);
    return option == options_.end() ? fallback : option->second;
}

void LayerSpec::allow(const std::vector<std::string>& known) const {
    for (const auto& [key, value] : options_) {
        if (key == "name" || std::find(known.begin(), known.end(), key) != known.end()) continue;
        const std::string near = nearest(key, known);
        refuse("unknown option `" + key + "`" + (near.empty() ? "" : "; did you mean `" + near + "`?"));
    }
}

void LayerSpec::refuse(const std::string& why) const {
    throw usage_error("layer = " + line_ + ": " + why);
}

Init init_from(const std::string& text, std::int64_t fan_in, std::int64_t fan_out) {
    std::vector<std::string> words = split(text, ' ');
    std::erase(words, std::string());
    const auto refuse = [&] {
        return usage_error("model.init=" + text +
                           ": expected kaiming, xavier, normal [std=0.02], zeros or constant value=0.5");
    };
    if (words.empty() || words.size() > 2) throw refuse();
    const auto option = [&](const std::string& key, std::optional<double> fallback) {
        std::optional<double> value = fallback;
        if (words.size() == 2)
            value =
                words[1].starts_with(key + "=") ? parse_real(words[1].substr(key.size() + 1)) : std::nullopt;
        if (!value) throw refuse();
        return static_cast<float>(*value);
    };
    Init init{.fan_in = fan_in, .fan_out = fan_out};
    if (words[0] == "kaiming" && words.size() == 1)
        init.kind = InitKind::kaiming;
    else if (words[0] == "xavier" && words.size() == 1)
        init.kind = InitKind::xavier;
    else if (words[0] == "normal")
        init.kind = InitKind::normal, init.value = option("std", 0.02);
    else if (words[0] == "zeros" && words.size() == 1)
        init.kind = InitKind::constant, init.value = 0;
    else if (words[0] == "constant")
        init.kind = InitKind::constant, init.value = option("value", std::nullopt);
    else
        throw refuse();
    return init;
}

}  // namespace trireme
