// The ranks of the world as a grid: data x pipeline x tensor parallel, tensor innermost.
#pragma once

#include <memory>

#include "trireme/comm/communicator.hpp"

namespace trireme {

class Mesh {
public:
    /// @throws Error (bad_usage) with all three numbers when tensor * pipeline does not divide the world.
    Mesh(Communicator& world, int tensor, int pipeline);
    /// From groups that are there already.
    Mesh(Communicator& world, std::unique_ptr<Communicator> data, std::unique_ptr<Communicator> pipeline,
         std::unique_ptr<Communicator> tensor, std::unique_ptr<Communicator> model);

    /// @throws Error (bad_usage, all ranks) when a tensor group lies on several nodes. `node`: the ranks of
    /// this node. Collective.
    void require_tensor_on_one_node(Communicator& node);

    Communicator& world() { return world_; }
    Communicator& data() { return *data_; }          ///< ranks that hold the same part of the model
    Communicator& pipeline() { return *pipeline_; }  ///< the stages of one replica
    Communicator& tensor() { return *tensor_; }      ///< the ranks that split each layer
    Communicator& model() { return *model_; }        ///< the ranks of one replica: its stages' tensor groups

private:
    Communicator& world_;
    std::unique_ptr<Communicator> data_, pipeline_, tensor_, model_;
};

}  // namespace trireme
