#include "train/rehearsal.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "train/assembly.hpp"
#include "train/mesh_report.hpp"
#include "trireme/base/error.hpp"
#include "trireme/tensor/meta_device.hpp"

namespace trireme {
namespace {

/// One rank's view of a mesh that is not there.
class MetaMesh {
public:
    /// `tied`: for each tied weight, whether each stage's rank has it.
    MetaMesh(const MeshShape& shape, int rank, std::vector<std::vector<int>> tied)
        : world_(rank, shape.ranks) {
        const int in_tensor = rank % shape.tensor, in_pipeline = rank / shape.tensor % shape.pipeline,
                  in_data = rank / (shape.tensor * shape.pipeline);
        auto data = group("data", in_data, shape.data(), {});
        auto pipeline = group("pipeline", in_pipeline, shape.pipeline, std::move(tied));
        auto tensor = group("tensor", in_tensor, shape.tensor, {});
        auto model =
            group("model", in_pipeline * shape.tensor + in_tensor, shape.tensor * shape.pipeline, {});
        mesh_ = std::make_unique<Mesh>(world_, std::move(data), std::move(pipeline), std::move(tensor),
                                       std::move(model));
    }
    Mesh& mesh() { return *mesh_; }
    void clear() {
        world_.traffic().clear();
        for (auto& [name, comm] : groups_) comm->traffic().clear();
    }
    std::vector<GroupTraffic> traffic() {
        std::vector<GroupTraffic> all;
        for (auto& [name, comm] : groups_) all.push_back({name, comm->size(), comm->traffic().table()});
        all.push_back({"world", world_.size(), world_.traffic().table()});
        return all;
    }

private:
    std::unique_ptr<Communicator> group(const std::string& name, int rank, int size,
                                        std::vector<std::vector<int>> colours) {
        auto comm = std::make_unique<MetaCommunicator>(rank, size, std::move(colours));
        groups_.emplace_back(name, comm.get());
        return comm;
    }

    MetaCommunicator world_;
    std::vector<std::pair<std::string, MetaCommunicator*>> groups_;
    std::unique_ptr<Mesh> mesh_;
};

Runtime runtime_of(Runtime& here, MetaMesh& mesh, Device& device) {
    return {.session = here.session,
            .mesh = mesh.mesh(),
            .device = device,
            .log = here.log,
            .threads = here.threads,
            .stop_requested = {}};
}

Assembly parts_for(const DataFacts& data) {
    Assembly parts;
    parts.train_set = data.train;
    parts.valid_set = data.valid;
    return parts;
}

/// For each tied weight, in the order of the table, which of the stages' ranks hold it.
std::vector<std::vector<int>> tied_weights(Runtime& here, const Config& config, const DataFacts& data,
                                           const MeshShape& shape, int rank) {
    std::vector<std::vector<int>> held;
    MetaDevice device;
    for (int stage = 0; shape.pipeline > 1 && stage < shape.pipeline; ++stage) {
        MetaMesh mesh(shape, shape.rank(0, stage, rank % shape.tensor), {});
        Runtime there = runtime_of(here, mesh, device);
        Assembly parts = parts_for(data);
        build_model(there, config, data.outputs, parts);
        std::size_t number = 0;
        for (const Parameter& parameter : parts.model->table().all()) {
            if (!parameter.tied) continue;
            if (held.size() == number) held.emplace_back(static_cast<std::size_t>(shape.pipeline));
            held[number++][static_cast<std::size_t>(stage)] = parameter.held ? 1 : 0;
        }
        if (held.empty()) break;
    }
    return held;
}

/// The lanes of a rank's first step, with addresses that nobody reads.
std::vector<LaneBatch> first_batches(const EpochPlan& plan, Range my_lanes, const DataFacts& data,
                                     const Model& model, const Buffer& nowhere) {
    std::vector<LaneBatch> batches;
    const bool tokens = data.train.is_tokens(), classes = model.loss().kind == LossKind::cross_entropy;
    const Shape target = tokens ? data.train.sample : classes ? Shape{} : Shape{data.train.target.count()};
    for (std::int64_t lane = my_lanes.begin; lane < my_lanes.end; ++lane) {
        LaneBatch batch;
        batch.lane = lane;
        batch.positions = plan.lane(0, lane);
        batch.first_in_batch = batch.positions.begin;
        batch.batch_samples = plan.step(0).size();
        batch.x = {nowhere.data(), tokens ? DType::i32 : DType::f32,
                   data.train.sample.batched(batch.samples())};
        batch.y = {nowhere.data(), classes ? DType::i32 : DType::f32, target.batched(batch.samples())};
        batches.push_back(batch);
    }
    return batches;
}

std::int64_t input_bytes(const Config& config, const Assembly& parts, Range my_lanes, std::int64_t outputs) {
    std::int64_t bytes = 0;
    for (const auto& [set, plan] :
         {std::pair{&parts.train_set, &parts.plan}, std::pair{&parts.valid_set, &parts.valid_plan}})
        if (set->rows() > 0)
            bytes += loader_bytes(*set, loader_options(config, *plan, {}, my_lanes, outputs, 1));
    return bytes;
}

DatasetLayout open_set(Communicator& world, const Config& config, const std::string& key,
                       const std::string& pattern) {
    if (pattern.empty()) throw usage_error(key + " is missing: the pattern of the training files");
    DatasetLayout set = open_dataset(world, pattern, dataset_options(config));
    check_compatible(set, set.sample, key + "=" + pattern);
    check_kind(config, set);
    return set;
}

}  // namespace

MeshShape mesh_shape(const Config& config, std::int64_t ranks) {
    const std::int64_t tensor = config.parallel.tensor, pipeline = config.parallel.pipeline;
    if (ranks < 1 || ranks % (tensor * pipeline) != 0)
        throw usage_error("parallel.tensor=" + std::to_string(tensor) +
                          " times parallel.pipeline=" + std::to_string(pipeline) +
                          " must divide the number of ranks, " + std::to_string(ranks));
    return {static_cast<int>(ranks), static_cast<int>(tensor), static_cast<int>(pipeline)};
}

DataFacts look_at_data(Communicator& world, const Config& config) {
    DataFacts data;
    data.train = open_set(world, config, "data.train", config.data.train);
    data.outputs = count_outputs(world, config, data.train);
    if (data.outputs < 1)
        throw Error(Status::bad_data,
                    "data.train=" + config.data.train +
                        ": no sample counts: every label is "
                        "train.ignore_index",
                    Scope::all_ranks);
    if (!config.data.valid.empty()) data.valid = open_set(world, config, "data.valid", config.data.valid);
    return data;
}

Rehearsal rehearse(Runtime& here, Config config, const DataFacts& data, const MeshShape& shape, int rank) {
    config.train.lanes = choose_lanes(config, shape.data());
    MetaMesh mesh(shape, rank, tied_weights(here, config, data, shape, rank));
    MetaDevice device, elsewhere;
    Runtime there = runtime_of(here, mesh, device);
    Assembly parts = parts_for(data);
    build_model(there, config, data.outputs, parts);
    build_step(there, config, parts);

    const Range my_lanes = part_of({0, config.train.lanes}, shape.data(), mesh.mesh().data().rank());
    Rehearsal found;
    found.memory.state = parts.state->bytes();
    found.memory.activations = static_cast<std::int64_t>(parts.model->workspace().bytes()) *
                               parts.runner->workers() * parts.runner->slots();
    found.memory.lane_gradients = device.bytes() - found.memory.state.total() - found.memory.activations;
    found.memory.input = input_bytes(config, parts, my_lanes, data.outputs);

    const Buffer nowhere(elsewhere, 64);
    const std::vector<LaneBatch> batches = first_batches(parts.plan, my_lanes, data, *parts.model, nowhere);
    mesh.clear();
    parts.step->run(batches, {.batch_samples = parts.plan.step(0).size()});
    found.traffic = mesh.traffic();

    const ParameterTable& table = parts.model->table();
    found.parameters = table.local_weight_count();
    found.all_parameters = table.weight_count();
    found.lanes = config.train.lanes;
    found.my_lanes = my_lanes.size();
    found.largest_lane = parts.plan.largest_lane();
    found.batch = parts.plan.step(0).size();
    found.threads = here.threads;
    found.overlap = parts.state->queue.overlaps();
    found.work = parts.model->work(found.largest_lane);
    found.bubble = Bubble::expected(parts);
    // The gradient in; weights, moments and average in and out; the rounded copy out.
    const StateBytes& bytes = found.memory.state;
    std::int64_t updated = 0;
    for (const Range piece : parts.state->sharding.pieces().updated) updated += piece.size();
    found.update_bytes = 4.0 * 3 * static_cast<double>(updated) +
                         2.0 * static_cast<double>(bytes.states + bytes.average) +
                         (bytes.low > 0 ? 2.0 * static_cast<double>(updated) : 0);
    return found;
}

}  // namespace trireme
