// y = act(x Wᵀ + b). With dz = dy · act'(y):  dW = dzᵀ x,  db = Σ_rows dz,  dx = dz W.
//
// Over a tensor group (Shoeybi et al. 2019) the rows of W, [out, in], are split, or its columns:
//   rows      x is whole; y is split, or gathered; dx is the sum of what the ranks have, one all-reduce
//   backward columns   x is split; y is the sum of what the ranks have, one all-reduce forward; b is added
//   once, after it
// Where positions are split between layers, every rank multiplies all of them: what comes in is gathered
// first, and sums are reduce-scattered.
#include "nn/layers.hpp"

namespace trireme {
namespace {

class Linear final : public Layer {
public:
    explicit Linear(const LayerSpec& spec) : spec_(spec) { spec.allow({"out", "bias", "std", "tied"}); }

    Shape plan(ModelPlan& plan, const Shape& in, bool first) override {
        const bool flat = in.rank() == 1, sequence = in.rank() == 2;
        if (!flat && !sequence)
            spec_.refuse("needs flat samples, but gets " + in.text() + "; put `layer = flatten` before it");
        const TensorGroup& group = plan.group;
        by_columns_ = group.size() > 1 && input_ == Features::split;
        by_rows_ = group.size() > 1 && !by_columns_;
        in_ = by_columns_ ? plan.split_width : in[in.rank() - 1];
        out_ = spec_.text("out", "") == "classes" || spec_.text("out", "") == "outputs"
                   ? plan.outputs
                   : spec_.required_integer("out");
        positions_ = split_positions(plan, in);
        rows_ = positions_ > 0 ? positions_ : in.count() / in[in.rank() - 1];
        const int tick = plan.workspace.next_tick();
        here_in_ = by_columns_ ? group.part(in_) : Range{0, in_};
        here_out_ = by_rows_ ? group.part(out_) : Range{0, out_};

        weight_ = tied() ? tied_weight(plan) : plan.table.add(weight(plan));
        if (spec_.flag("bias", true)) {
            Parameter bias{.name = spec_.name() + ".bias", .shape = {out_}};
            if (by_rows_) bias.slice = Slice{0, here_out_};
            bias.counted = !by_columns_ || group.rank() == 0;
            bias_ = plan.table.add(bias);
        }
        if (by_columns_) {
            y_edge_.plan(plan, in, rows_, out_, forward_at(tick), true);
            dy_edge_.plan(plan, in, rows_, out_, backward_at(tick), false);
        }
        if (by_rows_) {
            x_edge_.plan(plan, in, rows_, in_, forward_at(tick), false);
            dx_edge_.plan(plan, in, rows_, in_, backward_at(tick), !first);
        }
        if (gathers()) {
            gather_.plan(plan, rows_, out_, tick);
            y_edge_.plan(plan, in, rows_, out_, forward_at(tick), false);
            dy_edge_.plan(plan, in, rows_, out_, backward_at(tick), false);
        }
        Shape out = in;
        out[in.rank() - 1] = gathers() || by_columns_ ? out_ : here_out_.size();
        // Split features have all positions, everything else its part of them.
        if (positions_ > 0) out[0] = by_rows_ && !gathers() ? positions_ : plan.group.part(positions_).size();
        plan.split_width = out_;  // for whoever takes split features over
        return out;
    }

    void forward(LaneContext& lane, View x, View y) const override {
        const View bias = bias_ < 0 ? View{} : lane.weight(bias_);
        if (by_columns_) {
            const View part = y_edge_.part(lane, y), rows_x = rows(x, here_in_.size());
            lane.ops->matmul({.a = rows_x, .b = lane.operand(weight_), .c = part, .transpose_b = true});
            y_edge_.sum(lane, part, y, bias);
            if (activation_ != Activation::none) lane.ops->activation_forward(activation_, y, y);
            return;
        }
        const View here = gathers() ? gather_.mine(lane, y.dtype) : rows(y, here_out_.size());
        lane.ops->matmul({.a = all_of(lane, x_edge_, x),  // [rows, in]
                          .b = lane.operand(weight_),     // [out, in]
                          .c = here,                      // [rows, out]
                          .transpose_b = true,
                          .bias = bias,
                          .activation = activation_});
        if (!gathers()) return;
        const View all = positions_ > 0 ? y_edge_.room(lane, y.dtype) : rows(y, out_);
        gather_.forward(lane, here, all);
        if (positions_ > 0) take_positions(lane, all, positions_, out_, y);
    }

    void backward(LaneContext& lane, View x, View y, View dy, View dx) const override {
        if (activation_ != Activation::none) lane.ops->activation_backward(activation_, {}, y, dy, dy);
        View dz = by_columns_ || gathers() ? dy_edge_.whole(lane, dy) : rows(dy, here_out_.size());
        if (gathers()) dz = gather_.backward(lane, dz);
        const View rows_x = all_of(lane, dx_edge_, x);  // not kept since forward, but gathered again
        if (bias_ >= 0) lane.ops->sum_rows(dz, lane.gradient(bias_), lane.accumulate);
        lane.ops->matmul({.a = dz,                      // [rows, out]
                          .b = rows_x,                  // [rows, in]
                          .c = lane.gradient(weight_),  // [out, in]
                          .transpose_a = true,
                          .accumulate = lane.accumulate});
        if (dx) {
            const View part = by_rows_ ? dx_edge_.part(lane, dx) : rows(dx, here_in_.size());
            lane.ops->matmul({.a = dz, .b = lane.operand(weight_), .c = part});
            if (by_rows_) dx_edge_.sum(lane, part, dx);
        }
        if (!tied())
            lane.gradients_done(weight_);
        else if (bias_ >= 0)
            lane.gradients_done(bias_);
    }

    void add_work(Work& work, std::int64_t samples, bool first) const override {
        const std::int64_t rows = samples * rows_, out = here_out_.size(), in = here_in_.size();
        work.gemms.push_back({rows, out, in, false, true});
        work.gemms.push_back({out, in, rows, true, false, true});
        if (!first) work.gemms.push_back({rows, in, out, false, false});
        // Bias and activation pass over y once forward (read, write); backward reads y and dy, writes dz, and
        // sums.
        if (bias_ >= 0 || activation_ != Activation::none) work.move(rows_ * out, samples, 2);
        if (activation_ != Activation::none) work.move(rows_ * out, samples, 3);
        if (bias_ >= 0) work.move(rows_ * out, samples, 1);
    }

    bool absorb(Activation activation) override {
        if (activation_ != Activation::none || !derivative_from_output(activation)) return false;
        activation_ = activation;
        return true;
    }
    bool splits() const override { return true; }
    bool takes_split() const override { return !tied(); }
    void set_features(Features in, Features out) override {
        input_ = in;
        output_ = out;
    }

private:
    /// With `tied` the weights are those of an embedding, which comes later in the backward pass and adds to
    /// the gradient that is left here.
    bool tied() const { return spec_.has("tied"); }
    ParameterId tied_weight(ModelPlan& plan) const {
        const std::string name = spec_.text("tied", "");
        const auto embedding = plan.embeddings.find(name);
        if (embedding == plan.embeddings.end())
            spec_.refuse("tied=" + name + ": there is no embedding of this name before it");
        if (embedding->second.dim != in_ || embedding->second.vocab != out_)
            spec_.refuse("tied=" + name + ": that embedding has " + std::to_string(embedding->second.vocab) +
                         " vectors of " + std::to_string(embedding->second.dim) + ", but here are " +
                         std::to_string(in_) + " features and " + std::to_string(out_) + " outputs");
        plan.table.share(embedding->second.weight, plan.here);
        return embedding->second.weight;
    }
    Parameter weight(const ModelPlan& plan) const {
        Parameter parameter{.name = spec_.name() + ".weight",
                            .shape = {out_, in_},
                            .decay = true,
                            .init = linear_init(spec_, plan.init, in_, out_),
                            .operand = true};
        if (by_rows_) parameter.slice = Slice{0, here_out_};
        if (by_columns_) parameter.slice = Slice{1, here_in_};
        return parameter;
    }

    bool gathers() const { return by_rows_ && output_ == Features::whole; }
    /// The inputs that this rank multiplies. [N·rows, in]
    View all_of(LaneContext& lane, const GroupEdge& edge, View x) const {
        return by_rows_ ? edge.whole(lane, x) : rows(x, here_in_.size());
    }

    LayerSpec spec_;
    Features input_ = Features::whole, output_ = Features::whole;
    bool by_rows_ = false, by_columns_ = false;
    std::int64_t in_ = 0, out_ = 0, rows_ = 1;  // rows of a sample: its positions, where it is a sequence
    std::int64_t positions_ = 0;                // those of the whole sequence, where it is split
    Range here_in_, here_out_;                  // of this rank
    ParameterId weight_ = -1;                   // [out, in]
    ParameterId bias_ = -1;                     // [out], or absent
    GroupEdge x_edge_, dx_edge_;                // [N·rows, in], forward and backward
    GroupEdge y_edge_, dy_edge_;                // [N·rows, out]
    ColumnGather gather_;
    Activation activation_ = Activation::none;
};

}  // namespace

std::unique_ptr<Layer> make_linear(const LayerSpec& spec) {
    return std::make_unique<Linear>(spec);
}

}  // namespace trireme
