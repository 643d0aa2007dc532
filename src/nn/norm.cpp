// BatchNorm (Ioffe and Szegedy 2015): per channel over all samples and pixels of a *lane*. LayerNorm (Ba,
// Kiros, Hinton 2016): over the features of each sample (of each pixel of an image).
//   y = γ (x - μ)/√(σ² + ε) + β
//   dβ = Σ dy,  dγ = Σ dy·x̂,  dx = γ/σ (dy - mean(dy) - x̂·mean(dy·x̂))
#include "nn/layers.hpp"

namespace trireme {
namespace {

/// Extent over which a norm goes: the features of a flat sample or of each position, the channels of an
/// image.
std::int64_t features_of(const Shape& in) {
    return in.rank() == 3 ? in[0] : in[in.rank() - 1];
}

/// A parameter of which every rank of a tensor group has a copy.
Parameter replica(const ModelPlan& plan, const std::string& name, std::int64_t features, float value) {
    return {.name = name, .shape = {features}, .init = {.value = value}, .counted = plan.group.rank() == 0};
}

/// Norms act on each position alone. Where positions are split, a rank's gradient is that of its own: summed
/// over the group once a step, when the last lane has added to it, and before anybody takes it up.
void sum_over_positions(LaneContext& lane, bool split, ParameterId id) {
    if (split && lane.last) lane.sum_over_tensor(lane.gradient(id));
}

class BatchNormLayer final : public Layer {
public:
    explicit BatchNormLayer(const LayerSpec& spec) : spec_(spec) { spec.allow({"eps", "momentum"}); }

    Shape plan(ModelPlan& plan, const Shape& in, bool) override {
        if (in.rank() != 1 && in.rank() != 3)
            spec_.refuse("needs flat samples or images, but gets " + in.text());
        channels_ = in[0];
        elements_ = in.count();
        eps_ = static_cast<float>(spec_.real("eps", 1e-5));
        const auto momentum = static_cast<float>(spec_.real("momentum", 0.1));
        if (!(eps_ > 0) || !(momentum > 0) || momentum > 1)
            spec_.refuse("expected eps > 0 and 0 < momentum <= 1");
        const Shape shape{channels_};
        gamma_ = plan.table.add(replica(plan, spec_.name() + ".weight", channels_, 1));
        beta_ = plan.table.add(replica(plan, spec_.name() + ".bias", channels_, 0));
        running_mean_ = plan.table.add({.name = spec_.name() + ".running_mean",
                                        .shape = shape,
                                        .role = Role::statistic,
                                        .average = momentum});
        running_var_ = plan.table.add({.name = spec_.name() + ".running_var",
                                       .shape = shape,
                                       .role = Role::statistic,
                                       .init = {.value = 1},
                                       .average = momentum});
        const int tick = plan.workspace.next_tick();
        mean_ = plan.workspace.add(0, channels_, DType::f32, forward_at(tick), backward_at(tick));
        inv_std_ = plan.workspace.add(0, channels_, DType::f32, forward_at(tick), backward_at(tick));
        return in;
    }

    void forward(LaneContext& lane, View x, View y) const override {
        const BatchNorm args = arguments(lane, x, y);
        if (!lane.training) {
            lane.ops->batchnorm_apply(args, lane.weight(running_mean_), lane.weight(running_var_));
            return;
        }
        // The lane's share of the batch statistics goes where the gradients go, is reduced with them, and the
        // update moves the running statistics towards the sum: so they are the same on all ranks.
        const auto share =
            static_cast<float>(static_cast<double>(lane.samples) / static_cast<double>(lane.batch_samples));
        lane.ops->batchnorm_forward(args, lane.gradient(running_mean_), lane.gradient(running_var_), share,
                                    lane.accumulate);
    }

    void backward(LaneContext& lane, View x, View y, View dy, View dx) const override {
        lane.ops->batchnorm_backward(arguments(lane, x, y), rows(dy, channels_),
                                     dx ? rows(dx, channels_) : rows(dy, channels_), lane.gradient(gamma_),
                                     lane.gradient(beta_), lane.accumulate);
        lane.gradients_done(gamma_);
    }

    void add_work(Work& work, std::int64_t samples, bool) const override {
        // Forward reads x twice and writes y; backward reads x and dy twice and writes dx.
        work.move(elements_, samples, 3 + 5 + (activation_ == Activation::none ? 0 : 1));
    }

    bool absorb(Activation activation) override {
        if (activation != Activation::relu || activation_ != Activation::none) return false;
        activation_ = activation;
        return true;
    }

private:
    BatchNorm arguments(const LaneContext& lane, View x, View y) const {
        return {.x = rows(x, channels_),
                .y = rows(y, channels_),
                .gamma = lane.weight(gamma_),
                .beta = lane.weight(beta_),
                .eps = eps_,
                .mean = lane.tensor(mean_, {channels_}),
                .inv_std = lane.tensor(inv_std_, {channels_}),
                .activation = activation_};
    }

    LayerSpec spec_;
    std::int64_t channels_ = 0, elements_ = 0;
    float eps_ = 0;
    ParameterId gamma_ = -1, beta_ = -1;                // [C]
    ParameterId running_mean_ = -1, running_var_ = -1;  // [C]
    TensorId mean_ = -1, inv_std_ = -1;                 // [C]
    Activation activation_ = Activation::none;
};

class LayerNormLayer final : public Layer {
public:
    explicit LayerNormLayer(const LayerSpec& spec) : spec_(spec) { spec.allow({"eps"}); }

    Shape plan(ModelPlan& plan, const Shape& in, bool) override {
        split_ = split_positions(plan, in) > 0;
        channels_ = features_of(in);
        rows_ = in.count() / channels_;
        eps_ = static_cast<float>(spec_.real("eps", 1e-5));
        if (!(eps_ > 0)) spec_.refuse("expected eps > 0");
        gamma_ = plan.table.add(replica(plan, spec_.name() + ".weight", channels_, 1));
        beta_ = plan.table.add(replica(plan, spec_.name() + ".bias", channels_, 0));
        const int tick = plan.workspace.next_tick();
        mean_ = plan.workspace.add(rows_, 0, DType::f32, forward_at(tick), backward_at(tick));
        inv_std_ = plan.workspace.add(rows_, 0, DType::f32, forward_at(tick), backward_at(tick));
        return in;
    }

    void forward(LaneContext& lane, View x, View y) const override {
        lane.ops->layernorm_forward(arguments(lane, x, y));
    }

    void backward(LaneContext& lane, View x, View y, View dy, View dx) const override {
        lane.ops->layernorm_backward(arguments(lane, x, y), rows(dy, channels_),
                                     dx ? rows(dx, channels_) : rows(dy, channels_), lane.gradient(gamma_),
                                     lane.gradient(beta_), lane.accumulate);
        sum_over_positions(lane, split_, gamma_);
        sum_over_positions(lane, split_, beta_);
        lane.gradients_done(gamma_);
    }

    void add_work(Work& work, std::int64_t samples, bool) const override {
        work.move(rows_ * channels_, samples, 2 + 3);  // rows stay in cache between their two passes
    }

private:
    LayerNorm arguments(const LaneContext& lane, View x, View y) const {
        const Shape all_rows{lane.samples * rows_};
        return {.x = rows(x, channels_),
                .y = rows(y, channels_),
                .gamma = lane.weight(gamma_),
                .beta = lane.weight(beta_),
                .eps = eps_,
                .mean = lane.tensor(mean_, all_rows),
                .inv_std = lane.tensor(inv_std_, all_rows)};
    }

    LayerSpec spec_;
    bool split_ = false;                    // the positions are, over the tensor group
    std::int64_t channels_ = 0, rows_ = 0;  // rows per sample, here
    float eps_ = 0;
    ParameterId gamma_ = -1, beta_ = -1;  // [C]
    TensorId mean_ = -1, inv_std_ = -1;   // [N·rows]
};

/// RMSNorm (Zhang and Sennrich 2019): y = γ x / √(mean(x²) + ε), over the features of each position.
class RmsNormLayer final : public Layer {
public:
    explicit RmsNormLayer(const LayerSpec& spec) : spec_(spec) { spec.allow({"eps"}); }

    Shape plan(ModelPlan& plan, const Shape& in, bool) override {
        split_ = split_positions(plan, in) > 0;
        features_ = features_of(in);
        rows_ = in.count() / features_;
        eps_ = static_cast<float>(spec_.real("eps", 1e-5));
        if (!(eps_ > 0)) spec_.refuse("expected eps > 0");
        gamma_ = plan.table.add(replica(plan, spec_.name() + ".weight", features_, 1));
        const int tick = plan.workspace.next_tick();
        inv_rms_ = plan.workspace.add(rows_, 0, DType::f32, forward_at(tick), backward_at(tick));
        return in;
    }
    void forward(LaneContext& lane, View x, View y) const override {
        lane.ops->rmsnorm_forward(arguments(lane, x, y));
    }
    void backward(LaneContext& lane, View x, View y, View dy, View dx) const override {
        lane.ops->rmsnorm_backward(arguments(lane, x, y), rows(dy, features_),
                                   dx ? rows(dx, features_) : rows(dy, features_), lane.gradient(gamma_),
                                   lane.accumulate);
        sum_over_positions(lane, split_, gamma_);
        lane.gradients_done(gamma_);
    }
    void add_work(Work& work, std::int64_t samples, bool) const override {
        work.move(rows_ * features_, samples, 2 + 3);  // rows stay in cache between their two passes
    }

private:
    RmsNorm arguments(const LaneContext& lane, View x, View y) const {
        return {.x = rows(x, features_),
                .y = rows(y, features_),
                .gamma = lane.weight(gamma_),
                .eps = eps_,
                .inv_rms = lane.tensor(inv_rms_, {lane.samples * rows_})};
    }

    LayerSpec spec_;
    bool split_ = false;                    // the positions are, over the tensor group
    std::int64_t features_ = 0, rows_ = 0;  // rows per sample, here
    float eps_ = 0;
    ParameterId gamma_ = -1;  // [C]
    TensorId inv_rms_ = -1;   // [N·rows]
};

}  // namespace

std::unique_ptr<Layer> make_rmsnorm(const LayerSpec& spec) {
    return std::make_unique<RmsNormLayer>(spec);
}
std::unique_ptr<Layer> make_batchnorm(const LayerSpec& spec) {
    return std::make_unique<BatchNormLayer>(spec);
}
std::unique_ptr<Layer> make_layernorm(const LayerSpec& spec) {
    return std::make_unique<LayerNormLayer>(spec);
}

}  // namespace trireme
