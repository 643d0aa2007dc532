// A planned model: layers, parameter table, workspace plan and loss. Immutable once built; lanes run through
// it.
#pragma once

#include <memory>
#include <string>

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

class Model {
public:
    /// `sample`: shape of one input; `outputs`: classes, or width of the target; lanes have at most
    /// `max_samples`; layers compute in `compute` (float32, bfloat16, float16).
    /// @throws Error (bad_usage) quoting the layer line that is wrong or does not fit.
    Model(const ModelDescription& description, const LossOptions& loss, const Shape& sample,
          std::int64_t outputs, std::int64_t max_samples, DType compute = DType::f32);
    ~Model();

    const ParameterTable& table() const { return table_; }
    const WorkspacePlan& workspace() const { return workspace_; }
    const Shape& input() const { return input_; }
    const Shape& output() const { return output_; }
    const LossOptions& loss() const { return loss_; }
    DType compute() const { return compute_; }

    /// Runs the layers over x [N, input...]; the result [N, outputs], float32 in any precision, lies in the
    /// lane's workspace.
    View forward(LaneContext& lane, View x) const;
    /// Adds the loss of the output against y to `sums`; with gradients, also starts and runs the backward
    /// pass. gradient_scale: factor on every gradient.
    void loss(LaneContext& lane, View output, View y, const LossSums& sums) const;
    void loss_and_backward(LaneContext& lane, View x, View output, View y, float gradient_scale,
                           const LossSums& sums) const;

    /// Sets the weights to their initial values; every element depends on seed, parameter and index only.
    void initialize(Ops& ops, const Column& weights, std::uint64_t seed) const;

    Work work(std::int64_t samples) const;

private:
    /// The inputs in the compute type: x itself, or what forward() made of it.
    View input_of(const LaneContext& lane, View x) const;
    void run_loss(LaneContext& lane, View output, View y, View d_output, float gradient_scale,
                  const LossSums& sums) const;

    ParameterTable table_;
    WorkspacePlan workspace_;
    LossOptions loss_;
    DType compute_;
    Shape input_, output_;
    std::unique_ptr<Layer> layers_;
    TensorId input_tensor_ = -1;  // the inputs in the compute type; absent where they come in it
    TensorId output_tensor_ = -1, d_output_tensor_ = -1;
};

}  // namespace trireme
