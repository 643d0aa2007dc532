// Storage that is there for one block of layers at a time: weights or gradients that are spread over ranks.
#pragma once

namespace trireme {

/// Told by the model which block it comes to. A block is a top-level layer, see ParameterTable::begin_block.
class BlockStorage {
public:
    virtual ~BlockStorage() = default;
    /// Before the forward or backward pass of a block: its parameters have to be there when this returns, and
    /// those of all other blocks are done with. Every rank of the data group comes to the same blocks in the
    /// same order: this may be collective.
    virtual void enter(int block, bool backward) = 0;
};

}  // namespace trireme
