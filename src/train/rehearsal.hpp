// A training step of one rank of a mesh that is not there: built and run as the trainer does it, on the meta
// device and among meta communicators, so that what it allocates and sends is counted and nothing is done.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/comm/traffic.hpp"
#include "trireme/data/dataset.hpp"
#include "trireme/nn/layer.hpp"
#include "trireme/parallel/training_state.hpp"
#include "trireme/train/config.hpp"
#include "trireme/train/runtime.hpp"

namespace trireme {

/// data x pipeline x tensor, as Mesh numbers them.
struct MeshShape {
    int ranks = 1, tensor = 1, pipeline = 1;

    int data() const { return ranks / (tensor * pipeline); }
    int rank(int in_data, int in_pipeline, int in_tensor) const {
        return (in_data * pipeline + in_pipeline) * tensor + in_tensor;
    }
};
/// parallel.tensor and parallel.pipeline on so many ranks. @throws Error (bad_usage, all ranks) with all
/// three numbers where their product does not divide the ranks.
MeshShape mesh_shape(const Config& config, std::int64_t ranks);

/// What a model is made for.
struct DataFacts {
    DatasetLayout train, valid;  ///< valid has no rows where there is none
    std::int64_t outputs = 0;    ///< classes, tokens of the vocabulary, or values of a target
};
/// From the files of data.train and data.valid: their heads, and the labels, which are counted. Collective
/// over the ranks that are there. @throws Error (bad_usage, bad_data; all ranks) naming key or file.
DataFacts look_at_data(Communicator& world, const Config& config);

/// Bytes on one rank.
struct RankMemory {
    StateBytes state;
    std::int64_t lane_gradients = 0;  ///< of the reproducible mode: lanes' columns and their exchange
    std::int64_t activations = 0;     ///< the workspaces of all lanes that are in flight
    std::int64_t input = 0;           ///< batches that are read ahead
    std::int64_t total() const { return state.total() + lane_gradients + activations + input; }
};

/// The calls of one step within one group of ranks.
struct GroupTraffic {
    std::string group;  ///< data, tensor, pipeline, model, world
    int ranks = 1;
    Traffic::Table calls{};
};

struct Rehearsal {
    RankMemory memory;
    std::vector<GroupTraffic> traffic;
    std::int64_t parameters = 0;      ///< weights of the model that this rank computes with
    std::int64_t all_parameters = 0;  ///< of the whole model
    std::int64_t lanes = 0;           ///< V
    std::int64_t my_lanes = 0;        ///< those of this rank in each step
    std::int64_t largest_lane = 0;    ///< samples
    std::int64_t batch = 0;           ///< samples of a step
    int threads = 1;
    bool overlap = false;
    Work work;                ///< of one of its lanes, of the largest size
    double update_bytes = 0;  ///< that the optimizer moves
    double bubble = 0;        ///< part of the time that goes into waiting for other stages, by estimate
};

/// What `rank` of the mesh allocates, and does in one step with a whole batch. @throws Error as the trainer
/// does where the configuration does not fit.
Rehearsal rehearse(Runtime& here, Config config, const DataFacts& data, const MeshShape& mesh, int rank);

}  // namespace trireme
