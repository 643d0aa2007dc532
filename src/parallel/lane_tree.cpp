#include "trireme/parallel/lane_tree.hpp"

#include <algorithm>

namespace trireme {

int LaneStack::push(LaneNode node) {
    nodes_.push_back(node);
    promote();
    int joins = 0;
    while (nodes_.size() >= 2) {
        const LaneNode top = nodes_.back(), below = nodes_[nodes_.size() - 2];
        if (below.level != top.level || below.index + 1 != top.index || below.index % 2 != 0) break;
        nodes_.pop_back();
        nodes_.back() = {below.level + 1, below.index / 2};
        promote();
        ++joins;
    }
    return joins;
}

// A left child whose sibling would begin past the last lane is all there is of its parent.
void LaneStack::promote() {
    LaneNode& top = nodes_.back();
    while (top.index % 2 == 0 && (top.index + 1) << top.level >= lanes_ && top.index > 0)
        top = {top.level + 1, top.index / 2};
}

std::vector<LaneNode> nodes_of(Range lanes, std::int64_t all_lanes) {
    LaneStack stack(all_lanes);
    for (std::int64_t lane = lanes.begin; lane < lanes.end; ++lane) stack.push({0, lane});
    return stack.nodes();
}

int stack_depth(Range lanes, std::int64_t all_lanes) {
    LaneStack stack(all_lanes);
    int deepest = 0;
    for (std::int64_t lane = lanes.begin; lane < lanes.end; ++lane) {
        deepest = std::max(deepest, stack.depth() + 1);
        stack.push({0, lane});
    }
    return deepest;
}

}  // namespace trireme
