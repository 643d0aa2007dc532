#include "trireme/optim/rules.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"

namespace trireme {
namespace {

Error rule_error(const std::string& rule, const std::string& what) {
    return usage_error("optim.rule=" + rule + ": " + what);
}

std::optional<RuleValue> parse_value(std::string_view text) {
    RuleValue value;
    value.multiple = text.ends_with('x');
    if (value.multiple) text.remove_suffix(1);
    const std::optional<double> number = parse_real(text);
    if (!number || !std::isfinite(*number) || *number < 0) return std::nullopt;
    value.value = *number;
    return value;
}

std::string text_of(const ParameterRule& rule) {
    std::string text = rule.pattern;
    const auto add = [&text](const char* key, const std::optional<RuleValue>& value) {
        if (value) text += key + to_text(value->value) + (value->multiple ? "x" : "");
    };
    add(" lr=", rule.lr);
    add(" decay=", rule.decay);
    return text;
}

bool fits(const ParameterRule& rule, const Parameter& parameter) {
    return parameter.role == Role::weight && fnmatch(rule.pattern.c_str(), parameter.name.c_str(), 0) == 0;
}

double lr_factor(const ParameterRule& rule, double lr) {
    if (rule.lr->multiple) return rule.lr->value;
    if (rule.lr->value == 0) return 0;
    if (lr == 0)
        throw rule_error(text_of(rule), "a rate of its own is kept as a multiple of optim.lr, which is 0");
    return rule.lr->value / lr;
}

/// The weights' names, the one that is most like the pattern first where there is one, not too many.
std::string names_near(const std::string& pattern, const ParameterTable& table) {
    constexpr std::size_t most = 6;
    std::vector<std::string> names;
    for (const Parameter& parameter : table.all())
        if (parameter.role == Role::weight) names.push_back(parameter.name);
    const auto like = std::find(names.begin(), names.end(), nearest(pattern, names));
    if (like != names.end()) std::rotate(names.begin(), like, like + 1);
    std::string text;
    for (std::size_t i = 0; i < std::min(most, names.size()); ++i) text += (i > 0 ? ", " : "") + names[i];
    if (names.size() > most) text += ", ...";
    return text;
}

void check_fit(const ParameterTable& table, const std::vector<ParameterRule>& rules) {
    for (const ParameterRule& rule : rules)
        if (std::none_of(table.all().begin(), table.all().end(),
                         [&rule](const Parameter& parameter) { return fits(rule, parameter); }))
            throw rule_error(text_of(rule), "no weight is called " + rule.pattern +
                                                "; there are: " + names_near(rule.pattern, table));
}

/// The run of one parameter.
UpdateRun run_of(const ParameterTable& table, ParameterId id, const RunOptions& options) {
    const Parameter& parameter = table[id];
    UpdateRun run{.place = table.slot(id), .parameter = id, .role = parameter.role};
    if (parameter.role == Role::statistic) {
        run.average = parameter.average;
        return run;
    }
    run.weight_decay = parameter.decay ? options.weight_decay : 0;
    run.counted = parameter.counted;
    run.matrix = parameter.decay;
    for (const ParameterRule& rule : options.rules) {
        if (!fits(rule, parameter)) continue;
        if (rule.lr) run.lr_factor = lr_factor(rule, options.lr);
        if (rule.decay)
            run.weight_decay = rule.decay->value * (rule.decay->multiple ? options.weight_decay : 1);
    }
    return run;
}

bool alike(const UpdateRun& a, const UpdateRun& b) {
    return a.role == b.role && a.lr_factor == b.lr_factor && a.weight_decay == b.weight_decay &&
           a.matrix == b.matrix && a.counted == b.counted && a.average == b.average;
}

/// Six digits are enough for the log: a factor may be a quotient.
std::string short_text(double value) {
    char text[32];
    const auto [end, error] = std::to_chars(text, text + sizeof text, value, std::chars_format::general, 6);
    return error == std::errc{} ? std::string(text, end) : to_text(value);
}

/// Names by a value that they share, in the order in which the values first appear.
class Groups {
public:
    void add(double value, const std::string& name) {
        const auto found = std::find_if(groups_.begin(), groups_.end(),
                                        [value](const auto& group) { return group.first == value; });
        (found != groups_.end() ? *found : groups_.emplace_back(value, "")).second += " " + name;
    }
    const std::vector<std::pair<double, std::string>>& all() const { return groups_; }

private:
    std::vector<std::pair<double, std::string>> groups_;  ///< value, " NAME NAME"
};

}  // namespace

ParameterRule parse_rule(const std::string& text) {
    const std::string form =
        "expected PATTERN lr=VALUE decay=VALUE, one of the two or both, as in *.bias lr=2x decay=0";
    ParameterRule rule;
    for (const std::string& word : split(text, ' ')) {
        if (word.empty()) continue;
        const std::size_t equals = word.find('=');
        if (rule.pattern.empty()) {
            if (equals != std::string::npos) throw rule_error(text, form);
            rule.pattern = word;
            continue;
        }
        const std::string key = word.substr(0, equals);
        if (equals == std::string::npos || (key != "lr" && key != "decay"))
            throw rule_error(text, word + " is neither lr= nor decay=; " + form);
        std::optional<RuleValue>& slot = key == "lr" ? rule.lr : rule.decay;
        if (slot) throw rule_error(text, key + "= is given twice");
        slot = parse_value(word.substr(equals + 1));
        if (!slot)
            throw rule_error(text,
                             word + ": expected a number that is not negative (0.01), or a multiple (2x)");
    }
    if (!rule.lr && !rule.decay) throw rule_error(text, form);
    return rule;
}

std::vector<UpdateRun> make_update_runs(const ParameterTable& table, const RunOptions& options) {
    check_fit(table, options.rules);
    const std::vector<Range> all = {{0, table.arena_size()}};
    const std::vector<Range>& pieces = options.pieces ? *options.pieces : all;
    std::vector<UpdateRun> runs;
    auto piece = pieces.begin();
    bool fresh = true;  // no run of this piece yet
    for (const ParameterId id : table.order()) {
        UpdateRun run = run_of(table, id, options);
        const Range slot = run.place;
        if (slot.empty()) continue;
        for (; piece != pieces.end() && piece->begin < slot.end; ++piece, fresh = true) {
            run.place = intersect(slot, *piece);
            if (run.place.empty()) continue;
            if (!options.one_each && !fresh && alike(runs.back(), run))
                runs.back().place.end = run.place.end;
            else
                runs.push_back(run);
            fresh = false;
            if (piece->end > slot.end) break;  // the next parameter has the rest
        }
    }
    return runs;
}

std::string groups_text(const ParameterTable& table, const RunOptions& options) {
    Groups decays, rates;
    std::string fixed;
    for (ParameterId id = 0; id < table.count(); ++id) {
        const Parameter& parameter = table[id];
        if (parameter.role == Role::statistic) continue;
        const UpdateRun run = run_of(table, id, options);
        if (run.weight_decay > 0)
            decays.add(run.weight_decay, parameter.name);
        else
            fixed += " " + parameter.name;
        if (run.lr_factor != 1) rates.add(run.lr_factor, parameter.name);
    }
    std::string text;
    for (const auto& [decay, names] : decays.all())
        text +=
            "weight decay " + (options.rules.empty() ? "" : short_text(decay) + " ") + "on:" + names + "; ";
    if (text.empty()) text = "weight decay on: none; ";
    text += "not on:" + (fixed.empty() ? " none" : fixed);
    for (const auto& [factor, names] : rates.all())
        text +=
            (factor == 0 ? "\nfrozen (rate 0):" : "\nlearning rate x" + short_text(factor) + " on:") + names;
    return text;
}

}  // namespace trireme
