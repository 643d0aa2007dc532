// y = act(x ⋆ K + b), cross-correlation over windows of the image. With dz = dy · act'(y), dK, db and dx are
// the sums over the same windows with the roles exchanged.
#include "nn/layers.hpp"
#include "nn/window.hpp"

namespace trireme {
namespace {

class Conv final : public Layer {
public:
    explicit Conv(const LayerSpec& spec) : spec_(spec) {
        spec.allow({"out", "kernel", "stride", "padding", "dilation", "groups", "bias"});
    }

    Shape plan(ModelPlan& plan, const Shape& in, bool) override {
        window_ = window_from(spec_, in);
        window_.out = spec_.required_integer("out");
        window_.groups = spec_.integer("groups", 1);
        if (window_.c % window_.groups != 0 || window_.out % window_.groups != 0)
            spec_.refuse("groups=" + std::to_string(window_.groups) + " must divide the " +
                         std::to_string(window_.c) + " input and the " + std::to_string(window_.out) +
                         " output channels");
        plan.workspace.next_tick();
        const std::int64_t area = window_.kernel_h * window_.kernel_w;
        const std::int64_t inner = window_.c / window_.groups;
        weight_ =
            plan.table.add({.name = spec_.name() + ".weight",
                            .shape = {window_.out, inner, window_.kernel_h, window_.kernel_w},
                            .decay = true,
                            .init = init_from(plan.init, inner * area, window_.out / window_.groups * area)});
        if (spec_.flag("bias", true))
            bias_ = plan.table.add({.name = spec_.name() + ".bias", .shape = {window_.out}});
        return {window_.out, window_.out_h(), window_.out_w()};
    }

    void forward(LaneContext& lane, View x, View y) const override {
        lane.ops->conv_forward(of(lane), x, lane.operand(weight_), bias_ < 0 ? View{} : lane.weight(bias_),
                               activation_, y);
    }

    void backward(LaneContext& lane, View x, View y, View dy, View dx) const override {
        if (activation_ != Activation::none) lane.ops->activation_backward(activation_, {}, y, dy, dy);
        if (bias_ >= 0) {
            const View rows{dy.data, dy.dtype, {dy.count() / window_.out, window_.out}};
            lane.ops->sum_rows(rows, lane.gradient(bias_), lane.accumulate);
        }
        lane.ops->conv_backward_weights(of(lane), x, dy, lane.gradient(weight_), lane.accumulate);
        if (dx) lane.ops->conv_backward_data(of(lane), dy, lane.operand(weight_), dx);
        lane.gradients_done(weight_);
    }

    void add_work(Work& work, std::int64_t samples, bool first) const override {
        Window window = window_;
        window.n = samples;
        work.convs.push_back({window, Work::ConvPass::forward});
        work.convs.push_back({window, Work::ConvPass::backward_weights});
        if (!first) work.convs.push_back({window, Work::ConvPass::backward_data});
        const std::int64_t y = window.out * window.out_h() * window.out_w();
        if (activation_ != Activation::none) work.move(y, samples, 3);
        if (bias_ >= 0) work.move(y, samples, 1);
    }

    bool absorb(Activation activation) override {
        if (activation_ != Activation::none || !derivative_from_output(activation)) return false;
        activation_ = activation;
        return true;
    }

private:
    Window of(const LaneContext& lane) const {
        Window window = window_;
        window.n = lane.samples;
        return window;
    }

    LayerSpec spec_;
    Window window_;
    ParameterId weight_ = -1;  // [out, in/groups, kh, kw]
    ParameterId bias_ = -1;    // [out], or absent
    Activation activation_ = Activation::none;
};

}  // namespace

std::unique_ptr<Layer> make_conv(const LayerSpec& spec) {
    return std::make_unique<Conv>(spec);
}

}  // namespace trireme
