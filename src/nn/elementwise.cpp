// Layers without parameters that act on each element: activations and dropout.
#include "nn/layers.hpp"
#include "trireme/base/error.hpp"

namespace trireme {
namespace {

class ActivationLayer final : public Layer {
public:
    ActivationLayer(const LayerSpec& spec, Activation kind) : kind_(kind) {
        spec.allow(kind == Activation::gelu || kind == Activation::gelu_tanh
                       ? std::vector<std::string>{"form"}
                       : std::vector<std::string>{});
    }

    Shape plan(ModelPlan& plan, const Shape& in, bool) override {
        plan.workspace.next_tick();
        elements_ = in.count();
        return in;
    }
    void forward(LaneContext& lane, View x, View y) const override {
        lane.ops->activation_forward(kind_, x, y);
    }
    void backward(LaneContext& lane, View x, View y, View dy, View dx) const override {
        if (dx) lane.ops->activation_backward(kind_, x, y, dy, dx);
    }
    void add_work(Work& work, std::int64_t samples, bool first) const override {
        work.move(elements_, samples, first ? 2 : 5);
    }
    bool passes_split() const override { return true; }
    Activation kind() const { return kind_; }

private:
    Activation kind_;
    std::int64_t elements_ = 0;
};

/// y_i = x_i/(1-p) with probability 1-p, else 0 (Srivastava et al. 2014). The mask is a function of seed,
/// layer, step, the sample's position in the global batch and the element's index, so backward draws it again
/// instead of keeping it, and no rank changes it.
class Dropout final : public Layer {
public:
    explicit Dropout(const LayerSpec& spec) : p_(static_cast<float>(spec.real("p", 0.5))) {
        spec.allow({"p"});
        if (!(p_ >= 0) || p_ > 1) spec.refuse("expected 0 <= p <= 1");
    }

    Shape plan(ModelPlan& plan, const Shape& in, bool) override {
        tick_ = plan.workspace.next_tick();
        plan.random = plan.random || p_ > 0;
        // What of a sample is here are columns of its whole rows: split features, or (seen as one row of
        // positions times features) split positions.
        const std::int64_t last = in[in.rank() - 1];
        columns_ = width_ = last;
        if (features_ == Features::split) {
            width_ = plan.split_width;
            first_ = plan.group.part(width_).begin;
        } else if (const std::int64_t all = split_positions(plan, in); all > 0) {
            columns_ = in.count();
            width_ = all * last;
            first_ = plan.group.part(all).begin * last;
        }
        elements_ = in.count();
        return in;
    }
    void forward(LaneContext& lane, View x, View y) const override {
        if (lane.training)
            apply(lane, x, y);
        else
            lane.ops->copy(x, y);
    }
    void backward(LaneContext& lane, View, View, View dy, View dx) const override {
        if (dx) apply(lane, dy, dx);
    }
    void add_work(Work& work, std::int64_t samples, bool first) const override {
        work.move(elements_, samples, first ? 2 : 4);
    }

    bool passes_split() const override { return true; }
    void set_features(Features in, Features) override { features_ = in; }

private:
    void apply(LaneContext& lane, View from, View to) const {
        const RandomStream stream(lane.seed, Purpose::dropout, static_cast<std::uint64_t>(tick_),
                                  static_cast<std::uint64_t>(lane.step));
        // Every element keeps the number it has on one rank.
        const std::int64_t rows_before = lane.first_in_batch * (elements_ / columns_);
        lane.ops->dropout(stream, rows_before * width_ + first_, width_, p_, rows(from, columns_),
                          rows(to, columns_));
    }

    float p_;
    int tick_ = 0;  // the layer's number: part of the key
    Features features_ = Features::whole;
    std::int64_t elements_ = 0;                         // of a sample, here
    std::int64_t columns_ = 0, width_ = 0, first_ = 0;  // of a row: here, in all, and the first one here
};

Activation activation_from(const LayerSpec& spec) {
    const std::string& kind = spec.kind();
    if (kind == "relu") return Activation::relu;
    if (kind == "silu") return Activation::silu;
    if (kind == "tanh") return Activation::tanh;
    if (kind == "sigmoid") return Activation::sigmoid;
    const std::string form = spec.text("form", "exact");
    if (form == "exact") return Activation::gelu;
    if (form == "tanh") return Activation::gelu_tanh;
    spec.refuse("form=" + form + ": expected exact or tanh");
}

}  // namespace

std::unique_ptr<Layer> make_activation(const LayerSpec& spec) {
    return std::make_unique<ActivationLayer>(spec, activation_from(spec));
}
std::unique_ptr<Layer> make_dropout(const LayerSpec& spec) {
    return std::make_unique<Dropout>(spec);
}

Activation activation_of(const Layer& layer) {
    const auto* activation = dynamic_cast<const ActivationLayer*>(&layer);
    return activation != nullptr ? activation->kind() : Activation::none;
}

}  // namespace trireme
