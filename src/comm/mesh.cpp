#include "trireme/comm/mesh.hpp"

#include <string>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/comm/agree.hpp"

namespace trireme {

Mesh::Mesh(Communicator& world, int tensor, int pipeline) : world_(world) {
    const int ranks = world.size();
    if (tensor < 1 || pipeline < 1 || ranks % (tensor * pipeline) != 0)
        throw usage_error("parallel.tensor=" + std::to_string(tensor) +
                          " times parallel.pipeline=" + std::to_string(pipeline) +
                          " must divide the number of ranks, " + std::to_string(ranks));
    const int rank = world.rank();
    const int in_tensor = rank % tensor, in_pipeline = rank / tensor % pipeline,
              in_data = rank / (tensor * pipeline);
    tensor_ = world.split(in_data * pipeline + in_pipeline, in_tensor);
    pipeline_ = world.split(in_data * tensor + in_tensor, in_pipeline);
    model_ = world.split(in_data, in_pipeline * tensor + in_tensor);
    data_ = world.split(in_pipeline * tensor + in_tensor, in_data);
}

Mesh::Mesh(Communicator& world, std::unique_ptr<Communicator> data, std::unique_ptr<Communicator> pipeline,
           std::unique_ptr<Communicator> tensor, std::unique_ptr<Communicator> model)
    : world_(world),
      data_(std::move(data)),
      pipeline_(std::move(pipeline)),
      tensor_(std::move(tensor)),
      model_(std::move(model)) {}

void Mesh::require_tensor_on_one_node(Communicator& node) {
    const int node_number = broadcast_value(node, world_.rank());  // the world rank of the node's first
    const int first = all_reduce_value(*tensor_, node_number, Reduce::min),
              last = all_reduce_value(*tensor_, node_number, Reduce::max);
    if (all_reduce_value(world_, first != last ? 1 : 0, Reduce::max) == 0) return;
    throw usage_error(
        "parallel.tensor=" + std::to_string(tensor_->size()) +
        ": the ranks that split a layer would lie on several nodes, with every layer waiting for the "
        "network; start a multiple of that many ranks on each node, or set parallel.allow_spread=true");
}

}  // namespace trireme
