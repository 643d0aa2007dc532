// SwiGLU (Shazeer 2020): y = (silu(x Wgᵀ) · (x Wuᵀ)) Wdᵀ, without biases. Over a tensor group each rank has
// some of the hidden features: rows of Wg and Wu, columns of Wd. One all-reduce forward, one backward; where
// positions are split between layers, gathers and reduce-scatters as in attention.
#include "nn/layers.hpp"

namespace trireme {
namespace {

class SwiGlu final : public Layer {
public:
    explicit SwiGlu(const LayerSpec& spec) : spec_(spec) { spec.allow({"hidden", "std", "out_std"}); }

    Shape plan(ModelPlan& plan, const Shape& in, bool first) override {
        if (in.rank() != 1 && in.rank() != 2)
            spec_.refuse("needs vectors or a sequence of them, but gets " + in.text());
        width_ = in[in.rank() - 1];
        const std::int64_t positions = split_positions(plan, in);
        rows_ = positions > 0 ? positions : in.count() / width_;
        hidden_ = spec_.required_integer("hidden");
        const TensorGroup& group = plan.group;
        const Range here = group.part(hidden_);
        here_ = here.size();
        const auto add = [&](const char* name, const Shape& shape, int axis) {
            Parameter parameter{.name = spec_.name() + name,
                                .shape = shape,
                                .decay = true,
                                .init = linear_init(spec_, plan.init, shape[1], shape[0]),
                                .operand = true};
            if (axis == 1 && spec_.has("out_std"))
                parameter.init = {.kind = InitKind::normal,
                                  .value = static_cast<float>(spec_.real("out_std", 0))};
            if (group.size() > 1) parameter.slice = Slice{axis, here};
            return plan.table.add(parameter);
        };
        gate_ = add(".gate.weight", {hidden_, width_}, 0);
        up_ = add(".up.weight", {hidden_, width_}, 0);
        down_ = add(".down.weight", {width_, hidden_}, 1);

        const int tick = plan.workspace.next_tick();
        const auto tensor = [&](Moment from, Moment to) {
            return plan.workspace.add(rows_ * here_, 0, plan.compute, from, to);
        };
        y_gate_ = tensor(forward_at(tick), backward_at(tick));
        y_up_ = tensor(forward_at(tick), backward_at(tick));
        y_ = tensor(forward_at(tick), backward_at(tick));
        d_y_ = tensor(backward_at(tick), backward_at(tick));
        forward_.plan(plan, in, rows_, width_, forward_at(tick), group.size() > 1);
        backward_.plan(plan, in, rows_, width_, backward_at(tick), !first);
        return in;
    }

    void forward(LaneContext& lane, View x, View y) const override {
        const View in = forward_.whole(lane, x), out = rows(y, width_);
        const Shape hidden{in.shape[0], here_};
        const View gate = lane.tensor(y_gate_, hidden), up = lane.tensor(y_up_, hidden),
                   both = lane.tensor(y_, hidden);
        lane.ops->matmul({.a = in, .b = lane.operand(gate_), .c = gate, .transpose_b = true});
        lane.ops->matmul({.a = in, .b = lane.operand(up_), .c = up, .transpose_b = true});
        lane.ops->gate_forward(gate, up, both);
        const View part = lane.group.size() > 1 ? forward_.part(lane, out) : out;
        lane.ops->matmul({.a = both, .b = lane.operand(down_), .c = part, .transpose_b = true});
        if (lane.group.size() > 1) forward_.sum(lane, part, out);
    }

    void backward(LaneContext& lane, View x, View, View dy, View dx) const override {
        const View d_out = backward_.whole(lane, dy);
        const Shape hidden{d_out.shape[0], here_};
        const View gate = lane.tensor(y_gate_, hidden), up = lane.tensor(y_up_, hidden),
                   both = lane.tensor(y_, hidden), d_both = lane.tensor(d_y_, hidden);
        weights_back(lane, d_out, both, down_);
        lane.ops->matmul({.a = d_out, .b = lane.operand(down_), .c = d_both});
        lane.ops->gate_backward(gate, up, d_both, gate, up);  // both are not looked at again
        const View in = backward_.whole(lane, x);
        weights_back(lane, gate, in, gate_);
        weights_back(lane, up, in, up_);
        if (dx) {
            // The sum of both branches (and over the ranks): added in float32, rounded once.
            const View part = backward_.part(lane, dx);
            lane.ops->matmul({.a = gate, .b = lane.operand(gate_), .c = part});
            lane.ops->matmul({.a = up, .b = lane.operand(up_), .c = part, .accumulate = true});
            backward_.sum(lane, part, dx);
        }
        lane.gradients_done(gate_);
    }

    void add_work(Work& work, std::int64_t samples, bool first) const override {
        const std::int64_t rows = samples * rows_;
        for (int branch = 0; branch < 2; ++branch) {
            work.gemms.push_back({rows, here_, width_, false, true});
            work.gemms.push_back({here_, width_, rows, true, false, true});
            if (!first) work.gemms.push_back({rows, width_, here_, false, false, true});
        }
        work.gemms.push_back({rows, width_, here_, false, true});
        work.gemms.push_back({width_, here_, rows, true, false, true});
        work.gemms.push_back({rows, here_, width_, false, false});
        work.move(rows_ * here_, samples, 3 + 5);
        work.move(rows_ * width_, samples, first || work.compute == DType::f32 ? 0 : 3);
    }

private:
    static void weights_back(LaneContext& lane, View dz, View x, ParameterId weight) {
        lane.ops->matmul({.a = dz,
                          .b = x,
                          .c = lane.gradient(weight),
                          .transpose_a = true,
                          .accumulate = lane.accumulate});
    }

    LayerSpec spec_;
    std::int64_t width_ = 0, hidden_ = 0, here_ = 0, rows_ = 1;
    ParameterId gate_ = -1, up_ = -1, down_ = -1;           // [hidden, width] twice, [width, hidden]
    TensorId y_gate_ = -1, y_up_ = -1, y_ = -1, d_y_ = -1;  // [N·rows, hidden]
    GroupEdge forward_, backward_;                          // [N·rows, width]
};

}  // namespace

std::unique_ptr<Layer> make_swiglu(const LayerSpec& spec) {
    return std::make_unique<SwiGlu>(spec);
}

}  // namespace trireme
