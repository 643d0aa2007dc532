// Which parameters are updated alike: weight decay for matrices and kernels, and the user's rules by name.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/param/table.hpp"

namespace trireme {

/// A number given outright, or as a multiple of the optimizer's own ("2x").
struct RuleValue {
    double value = 0;
    bool multiple = false;
};

/// `optim.rule = *.bias lr=2x decay=0`: for all parameters whose names fit the pattern (* and ? as in a
/// shell).
struct ParameterRule {
    std::string pattern;
    std::optional<RuleValue> lr, decay;
};
/// @throws Error (bad_usage) quoting the rule and what was expected.
ParameterRule parse_rule(const std::string& text);

/// Neighbouring parameters, or what this rank updates of them, that one update fits.
struct UpdateRun {
    Range place;
    ParameterId parameter = 0;  ///< the only one, or the first of several
    Role role = Role::weight;
    double lr_factor = 1;  ///< on the schedule's rate
    double weight_decay = 0;
    bool matrix = false;  ///< a matrix or kernel (Parameter::decay): layer-wise rates apply
    bool counted = true;  ///< in norms over all parameters; of copies one is counted
    float average = 0;    ///< statistics only: how far they follow one step
};

struct RunOptions {
    double lr = 1e-3, weight_decay = 0;  ///< what rules relate to; the decay is for Parameter::decay only
    std::vector<ParameterRule> rules{};  ///< later ones win over earlier ones
    bool one_each = false;               ///< a run for every parameter, none joined
    std::optional<std::vector<Range>> pieces{};  ///< what this rank updates, in arena order; absent: all
};
/// In arena order; they cover the pieces, and none reaches over the end of one. @throws Error (bad_usage)
/// naming a rule that fits no weight of the table.
std::vector<UpdateRun> make_update_runs(const ParameterTable& table, const RunOptions& options);

/// Who decays and who has a rate of its own, for the start-up log; a few lines.
std::string groups_text(const ParameterTable& table, const RunOptions& options);

}  // namespace trireme
