// Gradients that ranks of one replica have in parts: of a tied weight, whose two layers are on different
// stages of a pipeline. Added once in a step, after the lanes and the reduction over replicas.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "trireme/comm/communicator.hpp"
#include "trireme/param/arena.hpp"
#include "trireme/param/table.hpp"

namespace trireme {

class GradientSums {
public:
    /// Finds the tied weights of which this rank has one of two copies; of those, what it updates (`pieces`:
    /// ArenaPieces::updated). Collective over `pipeline`, the stages of one replica.
    GradientSums(const ParameterTable& table, Communicator& pipeline, const std::vector<Range>& pieces);

    /// Afterwards both copies have the whole gradient, bit by bit the same. Collective.
    void run(const Column& gradients);

private:
    struct Sum {
        Range place;
        std::unique_ptr<Communicator> ranks;
    };
    std::vector<Sum> sums_;
};

}  // namespace trireme
