// A layer: planned once, then run forward and backward by any number of lanes. It keeps no state of its own;
// what a lane computes lies in the lane's workspace, so lanes may run side by side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/range.hpp"
#include "trireme/comm/communicator.hpp"
#include "trireme/nn/description.hpp"
#include "trireme/nn/plan.hpp"
#include "trireme/ops/ops.hpp"
#include "trireme/param/arena.hpp"
#include "trireme/param/blocks.hpp"
#include "trireme/param/table.hpp"

namespace trireme {

/// The ranks that split each layer of a model, and this one among them. A group of one is an ordinary group.
class TensorGroup {
public:
    TensorGroup() = default;
    explicit TensorGroup(Communicator& ranks) : comm(&ranks), rank_(ranks.rank()), size_(ranks.size()) {}
    /// A place in a group that is not there: to see what a rank would hold.
    TensorGroup(int rank, int size) : rank_(rank), size_(size) {}

    Communicator* comm = nullptr;  ///< absent: one rank, or a plan
    int rank() const { return rank_; }
    int size() const { return size_; }
    /// This rank's part of an extent, and any rank's.
    Range part(std::int64_t extent) const { return part_of(extent, rank()); }
    Range part_of(std::int64_t extent, int of) const { return trireme::part_of({0, extent}, size(), of); }

private:
    int rank_ = 0, size_ = 1;
};

/// Ranks of the largest tensor group.
inline constexpr int most_tensor_ranks = 64;

/// How the features between layers lie on the ranks of the tensor group.
enum class Features { whole, split };

/// What one lane brings along on its way through the model.
struct LaneContext {
    Ops* ops = nullptr;
    const ParameterTable* table = nullptr;
    const WorkspacePlan* plan = nullptr;
    const Column* weights = nullptr;           ///< float32: what norms, biases and statistics are read from
    const Column* operands = nullptr;          ///< in the compute type: what products read
    const Column* gradients = nullptr;         ///< where this lane's gradients go
    BlockStorage* weight_storage = nullptr;    ///< told of each block; absent: all weights are there,
    BlockStorage* gradient_storage = nullptr;  ///< and a place for every gradient
    std::byte* workspace = nullptr;
    bool training = true;     ///< dropout acts, batchnorm takes the lane's statistics
    bool accumulate = false;  ///< add to the gradients that earlier lanes left there
    bool last = false;        ///< no lane with samples adds to the same gradients after this one
    TensorGroup group{};
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
    /// The pass comes to a block on its way to block `until`. What is left of gradients goes before what is
    /// wanted of weights: so ranks whose lanes have no samples communicate in the same order.
    void enter(int block, int until, bool backward) const {
        if (backward && gradient_storage != nullptr) gradient_storage->enter(*ops, block, until, backward);
        if (weight_storage != nullptr) weight_storage->enter(*ops, block, until, backward);
    }
    /// Backward is through with the layer whose first parameter this is.
    void gradients_done(ParameterId first) const {
        if (finished) finished(table->finished_after(first));
    }
    /// Partial sums (float32) of all ranks of the tensor group, in place.
    void sum_over_tensor(View partial) const {
        if (group.comm != nullptr) group.comm->all_reduce(partial, Reduce::sum);
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
    TensorGroup group{};
    std::int64_t split_width = 0;  ///< whole width of the features that the last layer has left split
    bool sequence = false;         ///< between layers each rank of the group has its part of the positions
    std::int64_t positions = 0;    ///< then: of the whole sequence; set by the layer that begins it
    struct Tied {
        ParameterId weight = -1;
        std::int64_t vocab = 0, dim = 0;
    };
    std::map<std::string, Tied> embeddings{};  ///< by layer name, for heads that share their weights
    bool split_output = false;  ///< wanted by the model of its last layer; then: whether it is so
    bool outermost = true;      ///< the sequence being planned is the model's
    bool random = false;        ///< a layer draws random numbers, others in every step
    bool here = true;           ///< the layer being planned is on this rank's stages of the pipeline
};

/// The work of one lane, for rooflines and forecasts.
struct Work {
    struct Gemm {
        std::int64_t m, n, k;
        bool transpose_a, transpose_b;
        bool wide = false;  ///< the result is float32 in any precision: gradients of weights
        double flops() const;
    };
    enum class ConvPass { forward, backward_data, backward_weights };
    struct Conv {
        Window window;
        ConvPass pass;
        double flops() const;
    };
    DType compute = DType::f32;
    std::vector<Gemm> gemms;
    std::vector<Conv> convs;
    struct AttentionPass {
        Attention shape;
        bool backward;
        double flops() const;
    };
    std::vector<AttentionPass> attentions;
    double bytes = 0;  ///< moved by everything else: norms, activations, pooling, dropout

    /// Of all products: two for each multiplication and its addition.
    double flops() const;
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

    // How a layer takes part in tensor parallelism; decided by the sequence before plan().

    /// True for layers that can leave their output features split.
    virtual bool splits() const { return false; }
    /// True for layers that can take split features as their input.
    virtual bool takes_split() const { return false; }
    /// True for layers that act on each feature alone: split features pass through them.
    virtual bool passes_split() const { return false; }
    /// Tells a layer how the features before and after it lie. Whatever they are by itself, a layer whose
    /// output is `whole` may still split its weights.
    virtual void set_features(Features, Features) {}
};

/// Builds the layer of one specification (not residual/shortcut/end, which the model assembles).
/// @throws Error (bad_usage) quoting the line when kind or options are unknown, with the nearest known one.
std::unique_ptr<Layer> make_layer(const LayerSpec& spec);

}  // namespace trireme
