#include "trireme/parallel/gradient_sums.hpp"

namespace trireme {

GradientSums::GradientSums(const ParameterTable& table, Communicator& pipeline,
                           const std::vector<Range>& pieces) {
    for (const Parameter& parameter : table.all()) {
        if (!parameter.tied || pipeline.size() == 1) continue;
        std::unique_ptr<Communicator> ranks = pipeline.split(parameter.held ? 1 : 0, pipeline.rank());
        if (!parameter.held || ranks->size() == 1) continue;
        Range mine;  // the parameter has a bucket of its own where this is not all of it
        for (const Range piece : pieces)
            if (const Range part = intersect(piece, parameter.place); !part.empty()) mine = part;
        sums_.push_back({mine, std::move(ranks)});
    }
}

void GradientSums::run(const Column& gradients) {
    for (const Sum& sum : sums_) sum.ranks->all_reduce(gradients.range(sum.place), Reduce::sum);
}

}  // namespace trireme
