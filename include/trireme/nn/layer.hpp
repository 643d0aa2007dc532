// A layer: planned once, then run forward and backward by any number of lanes. It keeps no state of its own;
// what a lane computes lies in the lane's workspace, so lanes may run side by side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/nn/description.hpp"
#include "trireme/nn/plan.hpp"
#include "trireme/ops/ops.hpp"
#include "trireme/param/arena.hpp"
#include "trireme/param/table.hpp"

namespace trireme {

/// What one lane brings along on its way through the model.
struct LaneContext {
    Ops* ops = nullptr;
    const ParameterTable* table = nullptr;
    const WorkspacePlan* plan = nullptr;
    const Column* weights = nullptr;    ///< float32: what norms, biases and statistics are read from
    const Column* operands = nullptr;   ///< in the compute type: what products read
    const Column* gradients = nullptr;  ///< where this lane's gradients go
    std::byte* workspace = nullptr;
    bool training = true;     ///< dropout acts, batchnorm takes the lane's statistics
    bool accumulate = false;  ///< add to the gradients that earlier lanes left there
    std::uint64_t seed = 0;
    std::int64_t step = 0;            ///< attempted updates so far: the dropout key
    std::int64_t samples = 0;         ///< of this lane
    std::int64_t first_in_batch = 0;  ///< position of its first sample in the global batch
    std::int64_t batch_samples = 0;   ///< of the global batch
    /// Called in the backward pass: everything below this arena offset is final for this lane. May be empty.
    std::function<void(std::int64_t)> finished;

    View weight(ParameterId id) const { return weights->of((*table)[id]); }
    View operand(ParameterId id) const { return operands->of((*table)[id]); }
    View gradient(ParameterId id) const { return gradients->of((*table)[id]); }
    /// Backward is through with the layer whose first parameter this is.
    void gradients_done(ParameterId first) const {
        if (finished) finished(table->finished_after(first));
    }
    /// A planned tensor in the given shape.
    View tensor(TensorId id, const Shape& shape) const {
        return {workspace + plan->offset(id), plan->dtype(id), shape};
    }
};

/// What planning fills in.
struct ModelPlan {
    ParameterTable& table;
    WorkspacePlan& workspace;
    std::string init;            ///< of weights, as in the configuration
    std::int64_t outputs = 0;    ///< what `classes` (or `outputs`) stands for
    DType compute = DType::f32;  ///< of activations, their gradients and the operands of products
};

/// The work of one lane, for rooflines and forecasts.
struct Work {
    struct Gemm {
        std::int64_t m, n, k;
        bool transpose_a, transpose_b;
        bool wide = false;  ///< the result is float32 in any precision: gradients of weights
    };
    enum class ConvPass { forward, backward_data, backward_weights };
    struct Conv {
        Window window;
        ConvPass pass;
    };
    DType compute = DType::f32;
    std::vector<Gemm> gemms;
    std::vector<Conv> convs;
    double bytes = 0;  ///< moved by everything else: norms, activations, pooling, dropout

    /// `elements` per sample of the compute type are touched `times` times for `samples` samples.
    void move(std::int64_t elements, std::int64_t samples, int times) {
        bytes += static_cast<double>(size_of(compute)) * static_cast<double>(elements) *
                 static_cast<double>(samples) * times;
    }
};

class Layer {
public:
    virtual ~Layer() = default;

    /// Registers parameters and tensors for samples of shape `in`; returns the shape of an output sample.
    /// `first`: no gradient with respect to the input is wanted.
    virtual Shape plan(ModelPlan& plan, const Shape& in, bool first) = 0;

    /// x [N, in...] to y [N, out...], N = lane.samples, never 0.
    virtual void forward(LaneContext& lane, View x, View y) const = 0;

    /// Adds this layer's parameter gradients to lane.gradients (or sets them, see accumulate) and writes dx,
    /// unless dx is absent. May overwrite dy.
    virtual void backward(LaneContext& lane, View x, View y, View dy, View dx) const = 0;

    /// What a training lane of `samples` samples costs; `first` as in plan().
    virtual void add_work(Work& work, std::int64_t samples, bool first) const = 0;

    /// Takes over a following activation as an epilogue; false where it cannot.
    virtual bool absorb(Activation) { return false; }
};

/// Builds the layer of one specification (not residual/shortcut/end, which the model assembles).
/// @throws Error (bad_usage) quoting the line when kind or options are unknown, with the nearest known one.
std::unique_ptr<Layer> make_layer(const LayerSpec& spec);

}  // namespace trireme
