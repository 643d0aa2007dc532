// A planned model: layers, parameter table, workspace plan and loss. Immutable once built; lanes run through
// it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/nn/layer.hpp"

namespace trireme {

enum class LossKind { cross_entropy, mse, bce };
/// @throws Error (bad_usage) on other names than cross_entropy, mse, bce.
LossKind loss_from(const std::string& name);

struct LossOptions {
    LossKind kind = LossKind::cross_entropy;
    float label_smoothing = 0;
    std::int32_t ignore_index = -100;
};

class ColumnGather;
class Sequence;

/// How a model is run.
struct ModelOptions {
    std::int64_t max_samples = 1;  ///< of a lane
    DType compute = DType::f32;    ///< what layers compute in: float32, bfloat16, float16
    TensorGroup group{};           ///< the ranks that split each layer
    bool sequence = false;         ///< they also split the positions of sequences between layers
    /// The layers that this rank has, as intervals of them, chunk after chunk; empty: all. The rest of the
    /// model is planned, but takes no memory.
    std::vector<Range> chunks{};
};

/// Estimated seconds of a training lane's way through each outermost layer of a model, for cutting it into
/// stages; the same on every machine. Errors as in Model.
std::vector<double> layer_costs(const ModelDescription& description, const Shape& sample,
                                std::int64_t outputs, const ModelOptions& options);

class Model {
public:
    /// `sample`: shape of one input; `outputs`: classes (tokens of the vocabulary), or width of the target.
    /// @throws Error (bad_usage) quoting the layer line that is wrong or does not fit.
    Model(const ModelDescription& description, const LossOptions& loss, const Shape& sample,
          std::int64_t outputs, const ModelOptions& options);
    ~Model();

    const ParameterTable& table() const { return table_; }
    const WorkspacePlan& workspace() const { return workspace_; }
    const Shape& input() const { return input_; }
    const Shape& output() const { return output_; }
    std::int64_t outputs() const { return output_[output_.rank() - 1]; }  ///< classes, or values
    const LossOptions& loss() const { return loss_; }
    DType compute() const { return compute_; }
    const TensorGroup& group() const { return group_; }
    /// True where equal lanes of different steps are computed differently (dropout).
    bool random() const { return random_; }

    // One lane's way through the model. A rank that has all layers calls forward(), loss() or
    // start_backward(), backward() with chunk 0; in a pipeline each of its chunks in turn.

    int chunks() const { return static_cast<int>(chunks_.size()); }
    /// What a chunk takes from, and hands to, its neighbours, and the gradients that come back: activations
    /// in the compute type. For all chunks but the model's first one (inlet) and last one (outlet).
    View inlet(const LaneContext& lane, int chunk) const;
    View inlet_gradient(const LaneContext& lane, int chunk) const;
    View outlet(const LaneContext& lane, int chunk) const;
    View outlet_gradient(const LaneContext& lane, int chunk) const;

    /// Runs the layers of a chunk, the first one over x [N, input...], the others over their inlets. The
    /// result of the last one [N, output...], float32 in any precision, lies in the lane's workspace. Over a
    /// tensor group it may be this rank's part of the classes: for loss() and whole().
    View forward(LaneContext& lane, View x, int chunk = 0) const;
    /// All classes of what forward() gave, on every rank of the tensor group. Collective over it.
    View whole(LaneContext& lane, View output) const;
    /// Adds the loss of the last chunk's output against y to `sums`; start_backward() also takes its
    /// gradient, times gradient_scale, for the backward pass to begin with.
    void loss(LaneContext& lane, View y, const LossSums& sums) const;
    void start_backward(LaneContext& lane, View y, float gradient_scale, const LossSums& sums) const;
    /// Adds the gradients of the chunk's weights to lane.gradients and leaves that of its inlet there. x as
    /// in forward().
    void backward(LaneContext& lane, View x, int chunk = 0) const;
    /// In place of a pass of a lane that has no samples: what other ranks want of this one on the way.
    void visit(const LaneContext& lane, int chunk, bool backward) const;

    /// Sets the weights to their initial values; every element depends on seed, parameter and index only.
    void initialize(Ops& ops, const Column& weights, std::uint64_t seed) const;

    Work work(std::int64_t samples) const;

private:
    bool is_first(int chunk) const;
    bool is_last(int chunk) const;
    const Range& layers_of(int chunk) const { return chunks_[static_cast<std::size_t>(chunk)]; }
    void check_sequence(const ModelPlan& plan) const;
    void plan_ends(ModelPlan& plan);
    Shape local_output(const LaneContext& lane) const;  ///< [N, output...] of this rank
    /// The inputs in the compute type: x itself, or what forward() made of it.
    View input_of(const LaneContext& lane, View x) const;
    View output_of(const LaneContext& lane) const;
    void run_loss(LaneContext& lane, View y, View d_output, float gradient_scale, const LossSums& sums) const;
    void run_split_loss(LaneContext& lane, View y, View d_output, float gradient_scale,
                        const LossSums& sums) const;

    ParameterTable table_;
    WorkspacePlan workspace_;
    LossOptions loss_;
    DType compute_;
    TensorGroup group_;
    std::vector<Range> chunks_;
    Shape input_, output_;
    bool random_ = false;
    Range classes_;  ///< those that this rank has of the output
    std::unique_ptr<Sequence> layers_;
    TensorId input_tensor_ = -1;  // the inputs in the compute type; absent where they come in it
    TensorId output_tensor_ = -1, d_output_tensor_ = -1;
    // Only where classes are split: [rows], [rows, 3], [rows] of SplitCrossEntropy; all classes.
    TensorId maximum_ = -1, row_sums_ = -1, winner_ = -1, whole_ = -1;
    std::unique_ptr<ColumnGather> gather_;
};

}  // namespace trireme
