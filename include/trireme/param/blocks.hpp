// Storage that is there for one block of layers at a time: weights or gradients that are spread over ranks.
#pragma once

namespace trireme {

class Ops;

/// Told by the model which block it comes to. A block is a top-level layer, see ParameterTable::begin_block.
class BlockStorage {
public:
    virtual ~BlockStorage() = default;
    /// Before the forward or backward pass of a block, on the way to block `until`, the last one of this
    /// pass: its parameters have to be there when this returns, and those of all other blocks are done with.
    /// The ranks of a data group come to the same blocks in the same order: this may be collective.
    virtual void enter(Ops& ops, int block, int until, bool backward) = 0;
};

}  // namespace trireme
