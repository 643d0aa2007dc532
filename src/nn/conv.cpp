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

    Shape plan(ModelPlan& plan, const Shape& in, bool first) override {
        window_ = window_from(spec_, in);
        window_.out = spec_.required_integer("out");
        window_.groups = spec_.integer("groups", 1);
        if (window_.c % window_.groups != 0 || window_.out % window_.groups != 0)
            spec_.refuse("groups=" + std::to_string(window_.groups) + " must divide the " +
                         std::to_string(window_.c) + " input and the " + std::to_string(window_.out) +
                         " output channels");
        const int tick = plan.workspace.next_tick();
        // Over a tensor group each rank has some of the output channels, and all get the whole image.
        split_ = plan.group.size() > 1 && window_.groups == 1;
        here_ = split_ ? plan.group.part(window_.out) : Range{0, window_.out};
        const std::int64_t area = window_.kernel_h * window_.kernel_w;
        const std::int64_t inner = window_.c / window_.groups;
        Parameter weight{.name = spec_.name() + ".weight",
                         .shape = {window_.out, inner, window_.kernel_h, window_.kernel_w},
                         .decay = true,
                         .init = init_from(plan.init, inner * area, window_.out / window_.groups * area),
                         .operand = true};
        Parameter bias{.name = spec_.name() + ".bias", .shape = {window_.out}};
        if (split_)
            weight.slice = bias.slice = Slice{0, here_};
        else
            weight.counted = bias.counted = plan.group.rank() == 0;
        weight_ = plan.table.add(weight);
        if (spec_.flag("bias", true)) bias_ = plan.table.add(bias);
        const Shape out{window_.out, window_.out_h(), window_.out_w()};
        window_.out = here_.size();
        if (split_) {
            gather_.plan(plan, out[1] * out[2], out[0], tick);
            if (!first) dx_edge_.plan(plan, in, 1, in.count(), backward_at(tick), true);
        }
        return out;
    }

    void forward(LaneContext& lane, View x, View y) const override {
        const View here = split_ ? gather_.mine(lane, y.dtype) : y;
        lane.ops->conv_forward(of(lane), x, lane.operand(weight_), bias_ < 0 ? View{} : lane.weight(bias_),
                               activation_, images(lane, here));
        if (split_) gather_.forward(lane, here, rows(y, y.shape[1]));
    }

    void backward(LaneContext& lane, View x, View y, View dy, View dx) const override {
        if (activation_ != Activation::none) lane.ops->activation_backward(activation_, {}, y, dy, dy);
        const View dz = split_ ? gather_.backward(lane, rows(dy, dy.shape[1])) : rows(dy, window_.out);
        if (bias_ >= 0) lane.ops->sum_rows(dz, lane.gradient(bias_), lane.accumulate);
        lane.ops->conv_backward_weights(of(lane), x, images(lane, dz), lane.gradient(weight_),
                                        lane.accumulate);
        if (dx) {
            const View part = split_ ? View{dx_edge_.part(lane, dx).data, DType::f32, dx.shape} : dx;
            lane.ops->conv_backward_data(of(lane), images(lane, dz), lane.operand(weight_), part);
            if (split_) dx_edge_.sum(lane, part, dx);
        }
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
    /// This rank's output channels as images.
    View images(const LaneContext& lane, View view) const {
        return {view.data, view.dtype, {lane.samples, window_.out, window_.out_h(), window_.out_w()}};
    }
    Window of(const LaneContext& lane) const {
        Window window = window_;
        window.n = lane.samples;
        return window;
    }

    LayerSpec spec_;
    Window window_;  // its output channels are this rank's
    bool split_ = false;
    Range here_;  // output channels of this rank
    ColumnGather gather_;
    GroupEdge dx_edge_;        // [N, in...]
    ParameterId weight_ = -1;  // [out, in/groups, kh, kw]
    ParameterId bias_ = -1;    // [out], or absent
    Activation activation_ = Activation::none;
};

}  // namespace

std::unique_ptr<Layer> make_conv(const LayerSpec& spec) {
    return std::make_unique<Conv>(spec);
}

}  // namespace trireme
