#include "trireme/comm/mesh.hpp"

#include <string>

#include "trireme/base/error.hpp"

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
    data_ = world.split(in_pipeline * tensor + in_tensor, in_data);
}

}  // namespace trireme
