// Captured graphs, and their executable form.
#pragma once

#include <memory>
#include <vector>

#include "capture.hpp"

struct CUgraph_st {
    std::shared_ptr<const std::vector<trireme::cudaemu::Node>> nodes;
    std::size_t lanes = 0;
};

struct CUgraphExec_st {
    std::shared_ptr<const std::vector<trireme::cudaemu::Node>> nodes;
    // One to a lane, so that nodes of different lanes are ordered by their dependencies alone.
    std::shared_ptr<std::vector<void*>> actors;
    std::shared_ptr<trireme::cudaemu::Mark>
        last;  // of the launch before: launches of one graph never overlap
};
