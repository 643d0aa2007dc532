#include "train/mesh_report.hpp"

#include <algorithm>
#include <cstdio>

#include "trireme/base/parse.hpp"
#include "trireme/comm/agree.hpp"

namespace trireme {
namespace {

std::string interval(const Range& range) {
    if (range.empty()) return "none";
    const std::string first = std::to_string(range.begin);
    return range.size() == 1 ? first : first + "-" + std::to_string(range.end - 1);
}

std::string line_of(const std::vector<std::string>& cells) {
    constexpr int widths[] = {-6, -16, -6, -8, -8, -14, 12};
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) {
        char text[64];
        std::snprintf(text, sizeof text, "%*s ", widths[i], cells[i].c_str());
        line += text;
    }
    return line.substr(0, line.find_last_not_of(' ') + 1);
}

}  // namespace

std::vector<std::string> mesh_table(Runtime& runtime, const Assembly& parts) {
    constexpr std::size_t most_lines = 32;
    Mesh& mesh = runtime.mesh;
    std::string stages, layers;
    for (int chunk = 0; chunk < parts.pipeline->chunks(); ++chunk) {
        const int stage = parts.pipeline->stage(chunk);
        stages += (chunk > 0 ? "," : "") + std::to_string(stage);
        layers += (chunk > 0 ? "," : "") + interval(parts.stages[static_cast<std::size_t>(stage)]);
    }
    const std::vector<std::string> all = gather_texts(
        mesh.world(),
        line_of({std::to_string(mesh.world().rank()), runtime.session.host(),
                 std::to_string(mesh.data().rank()), stages, std::to_string(mesh.tensor().rank()), layers,
                 std::to_string(parts.model->table().local_weight_count())}));
    std::vector<std::string> table = {
        "mesh: data " + std::to_string(mesh.data().size()) + " x pipeline " +
            std::to_string(mesh.pipeline().size()) + " x tensor " + std::to_string(mesh.tensor().size()),
        line_of({"rank", "host", "data", "stage", "tensor", "layers", "weights"})};
    table.insert(table.end(), all.begin(),
                 all.begin() + static_cast<std::ptrdiff_t>(std::min(all.size(), most_lines)));
    if (all.size() > most_lines)
        table.push_back("... and " + count_text(static_cast<std::int64_t>(all.size() - most_lines), "rank"));
    return table;
}

std::string state_text(const TrainingState& state) {
    const StateBytes bytes = state.bytes();
    std::string parts;
    const auto add = [&parts](const char* what, std::int64_t size) {
        if (size > 0)
            parts +=
                (parts.empty() ? "" : ", ") + std::string(what) + " " + bytes_text(static_cast<double>(size));
    };
    add("weights", bytes.weights);
    add("their 16-bit copy", bytes.low);
    add("gradients", bytes.gradients);
    add("optimizer", bytes.states);
    add("average", bytes.average);
    add("windows", bytes.weight_windows + bytes.gradient_windows);
    add("buffers", bytes.buffers);
    return "parallel.zero=" + std::to_string(state.sharding.stage()) + ": the state is sharded over " +
           std::to_string(state.sharding.ranks()) + " ranks, " +
           bytes_text(static_cast<double>(bytes.total())) + " here (" + parts + ")";
}

double Bubble::expected(const Assembly& parts) {
    // A backward pass takes about twice as long as a forward pass: gradients of inputs and of weights.
    std::vector<double> forward, backward;
    for (const double cost : parts.stage_costs) {
        forward.push_back(cost / 3);
        backward.push_back(2 * cost / 3);
    }
    return bubble_fraction(parts.pipeline->shape(), forward, backward);
}

void Bubble::add(const StepResult& step) {
    if (steps_++ == 0) return;
    seconds_ += step.lanes_seconds;
    waited_ += step.pipeline_seconds;
}

double Bubble::measured(Communicator& pipeline) const {
    const double longest = all_reduce_value(pipeline, seconds_, Reduce::max);
    const double busy = all_reduce_value(pipeline, seconds_ - waited_);
    return longest > 0 ? 1 - busy / (longest * pipeline.size()) : 0;
}

}  // namespace trireme
