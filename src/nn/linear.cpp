// y = act(x Wᵀ + b). With dz = dy · act'(y):  dW = dzᵀ x,  db = Σ_rows dz,  dx = dz W.
#include "nn/layers.hpp"

namespace trireme {
namespace {

class Linear final : public Layer {
public:
    explicit Linear(const LayerSpec& spec) : spec_(spec) { spec.allow({"out", "bias"}); }

    Shape plan(ModelPlan& plan, const Shape& in, bool) override {
        if (in.rank() != 1)
            spec_.refuse("needs flat samples, but gets " + in.text() + "; put `layer = flatten` before it");
        in_ = in[0];
        out_ = spec_.text("out", "") == "classes" || spec_.text("out", "") == "outputs"
                   ? plan.outputs
                   : spec_.required_integer("out");
        plan.workspace.next_tick();
        weight_ = plan.table.add({.name = spec_.name() + ".weight",
                                  .shape = {out_, in_},
                                  .decay = true,
                                  .init = init_from(plan.init, in_, out_)});
        if (spec_.flag("bias", true))
            bias_ = plan.table.add({.name = spec_.name() + ".bias", .shape = {out_}});
        return {out_};
    }

    void forward(LaneContext& lane, View x, View y) const override {
        lane.ops->matmul({.a = x,                      // [N, in]
                          .b = lane.operand(weight_),  // [out, in]
                          .c = y,                      // [N, out]
                          .transpose_b = true,
                          .bias = bias_ < 0 ? View{} : lane.weight(bias_),
                          .activation = activation_});
    }

    void backward(LaneContext& lane, View x, View y, View dy, View dx) const override {
        if (activation_ != Activation::none) lane.ops->activation_backward(activation_, {}, y, dy, dy);
        if (bias_ >= 0) lane.ops->sum_rows(dy, lane.gradient(bias_), lane.accumulate);
        lane.ops->matmul({.a = dy,                      // [N, out]
                          .b = x,                       // [N, in]
                          .c = lane.gradient(weight_),  // [out, in]
                          .transpose_a = true,
                          .accumulate = lane.accumulate});
        if (dx) lane.ops->matmul({.a = dy, .b = lane.operand(weight_), .c = dx});
        lane.gradients_done(weight_);
    }

    void add_work(Work& work, std::int64_t samples, bool first) const override {
        work.gemms.push_back({samples, out_, in_, false, true});
        work.gemms.push_back({out_, in_, samples, true, false, true});
        if (!first) work.gemms.push_back({samples, in_, out_, false, false});
        // Bias and activation pass over y once forward (read, write); backward reads y and dy, writes dz, and
        // sums.
        if (bias_ >= 0 || activation_ != Activation::none) work.move(out_, samples, 2);
        if (activation_ != Activation::none) work.move(out_, samples, 3);
        if (bias_ >= 0) work.move(out_, samples, 1);
    }

    bool absorb(Activation activation) override {
        if (activation_ != Activation::none || !derivative_from_output(activation)) return false;
        activation_ = activation;
        return true;
    }

private:
    LayerSpec spec_;
    std::int64_t in_ = 0, out_ = 0;
    ParameterId weight_ = -1;  // [out, in]
    ParameterId bias_ = -1;    // [out], or absent
    Activation activation_ = Activation::none;
};

}  // namespace

std::unique_ptr<Layer> make_linear(const LayerSpec& spec) {
    return std::make_unique<Linear>(spec);
}

}  // namespace trireme
