#pragma once
// A model on one rank of a data group, with its training state and random samples: for tests of states that
// are sharded over the group.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <mpi.h>

#include "comm/mpi_communicator.hpp"
#include "support/catch.hpp"
#include "support/tensors.hpp"
#include "trireme/comm/agree.hpp"
#include "trireme/train/step.hpp"

namespace trireme::testing {

/// Counts what is allocated and not yet released.
class CountingDevice final : public Device {
public:
    std::string name() const override { return device_->name(); }
    void* allocate(std::size_t bytes) override {
        bytes_ += static_cast<std::int64_t>(bytes);
        return device_->allocate(bytes);
    }
    void release(void* data, std::size_t bytes) noexcept override {
        bytes_ -= static_cast<std::int64_t>(bytes);
        device_->release(data, bytes);
    }
    void copy_from_host(void* to, const void* from, std::size_t bytes) override {
        device_->copy_from_host(to, from, bytes);
    }
    void copy_to_host(void* to, const void* from, std::size_t bytes) override {
        device_->copy_to_host(to, from, bytes);
    }
    void clear(void* data, std::size_t bytes) override { device_->clear(data, bytes); }
    void synchronize() override { device_->synchronize(); }
    bool host_memory() const override { return device_->host_memory(); }
    bool has_streams() const override { return device_->has_streams(); }
    std::unique_ptr<DeviceGraph> record(const std::function<void()>& work) override {
        return device_->record(work);
    }
    std::unique_ptr<Device> staging() override { return device_->staging(); }
    std::int64_t bytes() const { return bytes_; }

private:
    std::unique_ptr<Device> device_ = make_device("cpu");
    std::int64_t bytes_ = 0;
};

struct ReplicaSetup {
    int stage = 0;
    bool overlap = false;
    std::int64_t bucket_bytes = 4096;
    std::int64_t lanes = 4;
    DType compute = DType::f32, wire = DType::f32;
    std::string optimizer = "sgd";
    double clip = 0;
    bool average = false;
};

inline const std::vector<std::string> replica_mlp = {
    "linear out=24 name=a",     "batchnorm name=n", "relu", "dropout p=0.2", "linear out=20 name=b", "gelu",
    "linear out=classes name=c"};
inline const std::vector<std::string> replica_gpt = {"embedding dim=12 name=tokens",
                                                     "positions name=places",
                                                     "residual",
                                                     "layernorm name=n1",
                                                     "attention heads=3 name=attention",
                                                     "end",
                                                     "residual",
                                                     "layernorm name=n2",
                                                     "linear out=30 name=up",
                                                     "gelu",
                                                     "linear out=12 name=down",
                                                     "end",
                                                     "layernorm name=n3",
                                                     "linear out=classes tied=tokens bias=false name=head"};

/// A model on one rank of a data group, and random samples for it.
struct Replica {
    static constexpr std::int64_t batch = 12, context = 5, classes = 7;

    Replica(Communicator& data, const std::vector<std::string>& layers, const ReplicaSetup& setup)
        : data_group(data),
          lanes(setup.lanes),
          mine(part_of({0, lanes}, data.size(), data.rank())),
          tokens(layers == replica_gpt),
          sample(tokens ? Shape{context} : Shape{16}),
          model({layers, "", "kaiming"}, {}, sample, classes,
                {.max_samples = batch, .compute = setup.compute}),
          options{.name = setup.optimizer,
                  .eps = 1e-3,  // gradients that are nothing but rounding have no say
                  .momentum = setup.optimizer == "sgd" ? 0.9 : 0,
                  .weight_decay = 0.01},
          optimizer(make_optimizer(options)),
          state_options{.stage = setup.stage,
                        .bucket_bytes = setup.bucket_bytes,
                        .overlap = setup.overlap,
                        .eval_average = setup.average,
                        .arena = {.state_names = optimizer->state_names(),
                                  .compute = setup.compute,
                                  .average = setup.average},
                        .reducer = {.lanes = lanes, .my_lanes = mine, .wire = setup.wire}},
          state(data, device, model.table(), state_options),
          update(*optimizer, model.table(), options, &data, state.sharding.pieces().updated),
          runner(device, model, *state.weights, 1, 1),
          sums(model.table(), self, state.sharding.pieces().updated),
          step({.world = data,
                .norms = setup.stage > 0 && data.size() > 1 ? data : static_cast<Communicator&>(self),
                .pipeline = stages,
                .runner = runner,
                .state = state,
                .update = update,
                .sums = sums},
               lanes,
               {.clip_norm = setup.clip, .may_skip = setup.compute == DType::f16, .average_decay = 0.9}) {
        model.initialize(runner.ops(), state.arena.weights, 3);
        if (state.arena.average)
            for (const Column::Piece& piece : state.arena.average->pieces())
                runner.ops().copy(state.arena.weights.range(piece.range),
                                  state.arena.average->range(piece.range));
        runner.use(WeightKind::current);
        const Values values = random_values(batch * sample.count(), 11);
        x.assign(values.begin(), values.end());
        ids = random_labels(batch * sample.count(), classes, 12);
        labels = random_labels(batch * (tokens ? context : 1), classes, 13);
        make_lanes(batch);
    }

    void make_lanes(std::int64_t samples) {
        batches.clear();
        for (std::int64_t lane = mine.begin; lane < mine.end; ++lane) {
            LaneBatch b;
            b.lane = lane;
            b.positions = part_of({0, samples}, lanes, lane);
            b.first_in_batch = b.positions.begin;
            b.batch_samples = samples;
            const std::int64_t first = b.positions.begin * sample.count();
            const Shape shape = sample.batched(b.samples());
            b.x = tokens ? view_of(ids.data() + first, shape) : view_of(x.data() + first, shape);
            b.y = tokens ? view_of(labels.data() + first, shape)
                         : view_of(labels.data() + b.positions.begin, Shape{b.samples()});
            batches.push_back(b);
        }
    }

    StepResult train(double scale = 1, double lr = 0.05) {
        const std::int64_t samples = all_reduce_value(
            data_group, batches.empty() ? std::int64_t{0} : batches.front().batch_samples, Reduce::max);
        const StepResult result = step.run(
            batches, {.lr = lr, .updates = done, .attempt = done, .batch_samples = samples, .scale = scale});
        if (!result.skipped) ++done;
        return result;
    }
    double evaluate(WeightKind kind) {
        if (kind == WeightKind::average) runner.use(kind);
        LaneSums losses(device, lanes);
        evaluate_lanes(runner, stages, batches, losses);
        losses.fetch();
        losses.reduce(data_group);
        if (kind == WeightKind::average) runner.use(WeightKind::current);
        return losses.loss() / losses.count();
    }

    /// A column in whole, from the pieces of all ranks.
    std::vector<float> whole(const Column& column) {
        std::vector<double> sum(static_cast<std::size_t>(model.table().arena_size())), copies(sum.size());
        for (const Column::Piece& piece : column.pieces())
            for (std::int64_t i = piece.range.begin; i < piece.range.end; ++i) {
                const auto at = static_cast<std::size_t>(i);
                const View element = column.range({i, i + 1});
                sum[at] = element.dtype == DType::f32
                              ? static_cast<double>(*element.as<float>())
                              : value_of(element.dtype, *static_cast<std::uint16_t*>(element.data));
                copies[at] = 1;
            }
        all_reduce_values(data_group, std::span<double>(sum));
        all_reduce_values(data_group, std::span<double>(copies));
        std::vector<float> values;
        for (const Parameter& p : model.table().all())
            for (auto i = static_cast<std::size_t>(p.place.begin); i < static_cast<std::size_t>(p.place.end);
                 ++i)
                values.push_back(static_cast<float>(sum[i] / copies[i]));
        return values;
    }
    /// The bits of everything that a step may change on this rank. Statistics are read as float32 alone.
    std::vector<unsigned char> bits() const {
        std::vector<unsigned char> all;
        const auto add = [&](View view) {
            const auto* bytes = static_cast<const unsigned char*>(view.data);
            all.insert(all.end(), bytes, bytes + view.bytes());
        };
        add(state.arena.weights.whole());
        for (const Column& column : state.arena.states) add(column.whole());
        if (state.arena.average) add(state.arena.average->whole());
        for (const Parameter& p : model.table().all())
            if (state.arena.low && p.role == Role::weight)
                add(state.arena.low->range(state.arena.low->held(p.place)));
        return all;
    }
    std::int64_t collectives() const { return state.reducer->collectives() + state.weights->collectives(); }

    MpiCommunicator self{MPI_COMM_SELF, false};
    Communicator& data_group;
    CountingDevice device;
    std::int64_t lanes;
    Range mine;
    bool tokens;
    Shape sample;
    Model model;
    OptimizerOptions options;
    std::unique_ptr<Optimizer> optimizer;
    TrainingStateOptions state_options;
    TrainingState state;
    UpdatePass update;
    Pipeline stages;
    LaneRunner runner;
    GradientSums sums;
    TrainStep step;
    std::vector<float> x;
    std::vector<std::int32_t> ids, labels;
    std::vector<LaneBatch> batches;
    std::int64_t done = 0;
};

}  // namespace trireme::testing
