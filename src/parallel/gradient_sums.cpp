#include "trireme/parallel/gradient_sums.hpp"

namespace trireme {

GradientSums::GradientSums(const ParameterTable& table, Communicator& pipeline) {
    for (const Parameter& parameter : table.all()) {
        if (!parameter.tied || pipeline.size() == 1) continue;
        std::unique_ptr<Communicator> ranks = pipeline.split(parameter.held ? 1 : 0, pipeline.rank());
        if (parameter.held && ranks->size() > 1) sums_.push_back({parameter.place, std::move(ranks)});
    }
}

void GradientSums::run(const Column& gradients) {
    for (const Sum& sum : sums_) sum.ranks->all_reduce(gradients.range(sum.place), Reduce::sum);
}

}  // namespace trireme
