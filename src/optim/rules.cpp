#include "trireme/optim/rules.hpp"

#include "trireme/base/error.hpp"

namespace trireme {

ParameterRule parse_rule(const std::string& text) {
    throw usage_error("optim.rule=" + text + ": not built yet");
}

std::vector<UpdateRun> make_update_runs(const ParameterTable& table, const RunOptions& options) {
    std::vector<UpdateRun> runs;
    for (const ParameterId id : table.order()) {
        const Parameter& parameter = table[id];
        runs.push_back({.place = table.slot(id),
                        .role = parameter.role,
                        .weight_decay = parameter.decay ? options.weight_decay : 0,
                        .matrix = parameter.decay,
                        .average = parameter.average});
    }
    return runs;
}

std::string groups_text(const ParameterTable&, const RunOptions&) {
    return {};
}

}  // namespace trireme
