#pragma once
// A model with its arena and a random batch, run lane by lane without data files: for tests of layers, steps
// and reducers.

#include <memory>
#include <string>
#include <vector>

#include "support/tensors.hpp"
#include "trireme/nn/model.hpp"

namespace trireme::testing {

struct Rig {
    Rig(const std::vector<std::string>& layers, Shape sample, std::int64_t outputs, std::int64_t batch,
        LossOptions loss = {}, const std::string& init = "kaiming", const std::string& device_kind = "cpu",
        DType compute = DType::f32)
        : device(make_device(device_kind)),
          ops(make_ops(*device, 1)),
          model(ModelDescription{layers, "", init}, loss, sample, outputs,
                {.max_samples = batch, .compute = compute}),
          arena(*device, model.table(), {.compute = compute}),
          workspace(*device, model.workspace().bytes()) {
        model.initialize(*ops, arena.weights, 5);
        refresh();
        const Values inputs = random_values(batch * sample.count(), 11);
        x.assign(inputs.begin(), inputs.end());
        const bool classes = loss.kind == LossKind::cross_entropy;
        labels = random_labels(batch, static_cast<std::int32_t>(outputs), 12);
        const Values reals = random_values(classes ? 0 : batch * outputs, 13, 0, 1);
        targets.assign(reals.begin(), reals.end());
        samples = batch;
        shape = sample;
        width = outputs;
    }

    /// After a change of the weights: makes the 16-bit copy anew, where there is one.
    void refresh() {
        if (arena.low) ops->copy(arena.weights.whole(), arena.low->whole());
    }

    /// Loss sums of samples [part) with the gradients left in `gradients` (absent: forward only).
    double run(Range part, const Column* gradients = nullptr, bool accumulate = false, bool training = true,
               std::int64_t step = 3) {
        LaneContext lane;
        lane.ops = ops.get();
        lane.table = &model.table();
        lane.plan = &model.workspace();
        lane.weights = &arena.weights;
        lane.operands = &arena.operands();
        lane.gradients = gradients != nullptr ? gradients : &arena.gradients;
        lane.workspace = workspace.as<std::byte>();
        lane.training = training;
        lane.accumulate = accumulate;
        lane.seed = 9;
        lane.step = step;
        lane.samples = part.size();
        lane.first_in_batch = part.begin;
        lane.batch_samples = samples;
        lane.finished = [this](std::int64_t offset) { finished.push_back(offset); };
        const View in = view_of(x.data() + part.begin * shape.count(), shape.batched(part.size()));
        const View y = targets.empty()
                           ? view_of(labels.data() + part.begin, Shape{part.size()})
                           : view_of(targets.data() + part.begin * width, Shape{part.size(), width});
        double sums[3] = {};
        model.forward(lane, in);
        const LossSums to{&sums[0], &sums[1], &sums[2]};
        if (gradients != nullptr) {
            model.start_backward(lane, y, 1.0F / static_cast<float>(samples), to);
            model.backward(lane, in);
        } else {
            model.loss(lane, y, to);
        }
        return sums[0];
    }

    std::unique_ptr<Device> device;
    std::unique_ptr<Ops> ops;
    Model model;
    Arena arena;
    Buffer workspace;
    std::vector<float> x;
    std::vector<std::int32_t> labels;
    std::vector<float> targets;
    std::int64_t samples = 0, width = 0;
    Shape shape;
    std::vector<std::int64_t> finished;
};

}  // namespace trireme::testing
