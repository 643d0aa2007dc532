// The one order in which lane gradients are summed in the reproducible mode: a binary tree over the V lanes
// whose node (level, index) covers lanes [index·2^level, (index+1)·2^level), cut off at V. The tree depends
// on V alone, so whoever computes a node, and on however many ranks, gets the same bits.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/base/range.hpp"

namespace trireme {

struct LaneNode {
    int level = 0;
    std::int64_t index = 0;
    friend bool operator==(const LaneNode&, const LaneNode&) = default;
};

/// Sums that arrive in lane order, as a stack of nodes: each new node is joined with the one before while
/// both are children of the same parent.
class LaneStack {
public:
    explicit LaneStack(std::int64_t lanes) : lanes_(lanes) {}

    void clear() { nodes_.clear(); }
    /// Pushes a node; returns how many times the top had to be added to the one below it (and was then
    /// dropped).
    int push(LaneNode node);
    const std::vector<LaneNode>& nodes() const { return nodes_; }
    int depth() const { return static_cast<int>(nodes_.size()); }
    void reserve(std::size_t depth) { nodes_.reserve(depth); }

private:
    void promote();

    std::int64_t lanes_;
    std::vector<LaneNode> nodes_;
};

/// The nodes that remain when one worker sums the lanes of a range: the largest whole subtrees within it.
std::vector<LaneNode> nodes_of(Range lanes, std::int64_t all_lanes);

/// The deepest stack while doing so: how many buffers it takes.
int stack_depth(Range lanes, std::int64_t all_lanes);

}  // namespace trireme
