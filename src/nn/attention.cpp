// Multi-head attention of a sequence with itself (Vaswani et al. 2017): y = A Woᵀ + bo, with
//   A = attention(q, k, v),  q = x Wqᵀ + bq,  k = x Wkᵀ + bk,  v = x Wvᵀ + bv,
// q and k turned by their positions where `rope` says so. Grouped queries: kv_heads < heads.
//
// Over a tensor group each rank has some of the heads: rows of Wq, Wk, Wv and columns of Wo. One all-reduce
// forward (of y), one backward (of dx). Where positions are split between layers, every rank attends over all
// of them: x is gathered and y reduce-scattered; backward gathers dy and, instead of keeping it, x again.
#include <cmath>

#include "nn/layers.hpp"

namespace trireme {
namespace {

class AttentionLayer final : public Layer {
public:
    explicit AttentionLayer(const LayerSpec& spec) : spec_(spec) {
        spec.allow({"heads", "kv_heads", "causal", "rope", "base", "bias", "std", "out_std"});
    }

    Shape plan(ModelPlan& plan, const Shape& in, bool first) override {
        if (in.rank() != 2) spec_.refuse("needs a sequence of vectors, but gets " + in.text());
        const std::int64_t positions = split_positions(plan, in);
        t_ = positions > 0 ? positions : in[0];
        width_ = in[1];
        heads_ = spec_.required_integer("heads");
        kv_heads_ = spec_.integer("kv_heads", heads_);
        causal_ = spec_.flag("causal", true);
        rope_ = spec_.flag("rope", false);
        base_ = static_cast<float>(spec_.real("base", 10000));
        if (width_ % heads_ != 0)
            spec_.refuse("heads=" + std::to_string(heads_) + " must divide the width, " +
                         std::to_string(width_));
        if (heads_ % kv_heads_ != 0)
            spec_.refuse("kv_heads=" + std::to_string(kv_heads_) +
                         " must divide heads=" + std::to_string(heads_));
        d_ = width_ / heads_;
        if (rope_ && (d_ % 2 != 0 || !(base_ > 1)))
            spec_.refuse("rope needs an even number of features a head (here " + std::to_string(d_) +
                         ") and base above 1");
        const TensorGroup& group = plan.group;
        if (group.size() > kv_heads_)
            spec_.refuse("parallel.tensor=" + std::to_string(group.size()) + " is more than its " +
                         std::to_string(kv_heads_) + " key heads");
        const int tick = plan.workspace.next_tick();
        const Range kv = group.part(kv_heads_);
        const std::int64_t share = heads_ / kv_heads_;
        kv_here_ = kv.size();
        heads_here_ = kv.size() * share;
        const Range q_rows{kv.begin * share * d_, kv.end * share * d_}, kv_rows{kv.begin * d_, kv.end * d_};

        const bool split = group.size() > 1, bias = spec_.flag("bias", true);
        q_ = add(plan, "q", width_, q_rows, split, bias);
        k_ = add(plan, "k", kv_heads_ * d_, kv_rows, split, bias);
        v_ = add(plan, "v", kv_heads_ * d_, kv_rows, split, bias);
        out_weight_ = plan.table.add(out_parameter(plan, q_rows, split));
        if (bias) {
            Parameter parameter{.name = spec_.name() + ".out.bias", .shape = {width_}};
            parameter.counted = group.rank() == 0;
            out_bias_ = plan.table.add(parameter);
        }
        plan_tensors(plan, in, tick, first);
        return in;
    }

    void forward(LaneContext& lane, View x, View y) const override {
        const View in = forward_.whole(lane, x);
        const Attention args = arguments(lane);
        project(lane, in, q_, args.q);
        project(lane, in, k_, args.k);
        project(lane, in, v_, args.v);
        if (rope_) {
            lane.ops->rotate(args.q, 0, base_, false, args.q);
            lane.ops->rotate(args.k, 0, base_, false, args.k);
        }
        lane.ops->attention_forward(args);
        const View bias = out_bias_ < 0 ? View{} : lane.weight(out_bias_);
        const View attended = rows(args.y, heads_here_ * d_), out = rows(y, width_);
        if (lane.group.size() == 1) {
            lane.ops->matmul(
                {.a = attended, .b = lane.operand(out_weight_), .c = out, .transpose_b = true, .bias = bias});
            return;
        }
        const View part = forward_.part(lane, out);
        lane.ops->matmul({.a = attended, .b = lane.operand(out_weight_), .c = part, .transpose_b = true});
        forward_.sum(lane, part, out, bias);
    }

    void backward(LaneContext& lane, View x, View, View dy, View dx) const override {
        const View d_out = backward_.whole(lane, dy);
        const Attention args = arguments(lane);
        const View attended = rows(args.y, heads_here_ * d_);
        if (out_bias_ >= 0) lane.ops->sum_rows(d_out, lane.gradient(out_bias_), lane.accumulate);
        lane.ops->matmul({.a = d_out,
                          .b = attended,
                          .c = lane.gradient(out_weight_),
                          .transpose_a = true,
                          .accumulate = lane.accumulate});
        const View d_attended = lane.tensor(d_y_, args.q.shape);
        lane.ops->matmul(
            {.a = d_out, .b = lane.operand(out_weight_), .c = rows(d_attended, heads_here_ * d_)});

        const View dq = lane.tensor(d_q_, args.q.shape), dk = lane.tensor(d_k_, args.k.shape),
                   dv = lane.tensor(d_v_, args.v.shape);
        lane.ops->attention_backward(args, d_attended, dq, dk, dv);
        if (rope_) {
            lane.ops->rotate(dq, 0, base_, true, dq);
            lane.ops->rotate(dk, 0, base_, true, dk);
        }
        // dx is the sum over q, k, v (and over the ranks): added in float32, rounded once.
        const View in = backward_.whole(lane, x), part = dx ? backward_.part(lane, dx) : View{};
        back(lane, in, q_, dq, part, false);
        back(lane, in, k_, dk, part, true);
        back(lane, in, v_, dv, part, true);
        if (dx) backward_.sum(lane, part, dx);
        lane.gradients_done(q_.weight);
    }

    void add_work(Work& work, std::int64_t samples, bool first) const override {
        const std::int64_t rows = samples * t_, q = heads_here_ * d_, kv = kv_here_ * d_;
        for (const std::int64_t out : {q, kv, kv}) {
            work.gemms.push_back({rows, out, width_, false, true});
            work.gemms.push_back({out, width_, rows, true, false, true});
            if (!first) work.gemms.push_back({rows, width_, out, false, false, true});
        }
        work.gemms.push_back({rows, width_, q, false, true});
        work.gemms.push_back({width_, q, rows, true, false, true});
        work.gemms.push_back({rows, q, width_, false, false});
        Attention shape;
        shape.n = samples;
        shape.t = t_;
        shape.heads = heads_here_;
        shape.kv_heads = kv_here_;
        shape.d = d_;
        shape.causal = causal_;
        work.attentions.push_back({shape, false});
        work.attentions.push_back({shape, true});
        if (rope_) work.move(t_ * (q + kv), samples, 4);
        const bool rounded = !first && work.compute != DType::f32;
        work.move(t_ * width_, samples, rounded ? 3 : 1);  // sums of biases; dx out of its float32 sum
    }

private:
    struct Projection {
        ParameterId weight = -1, bias = -1;  // [out, width], [out] or absent
        std::int64_t out = 0;                // here
    };

    Projection add(ModelPlan& plan, const std::string& name, std::int64_t out, Range here, bool split,
                   bool bias) {
        Parameter weight{.name = spec_.name() + "." + name + ".weight",
                         .shape = {out, width_},
                         .decay = true,
                         .init = linear_init(spec_, plan.init, width_, out),
                         .operand = true};
        Parameter offset{.name = spec_.name() + "." + name + ".bias", .shape = {out}};
        if (split) weight.slice = offset.slice = Slice{0, here};
        Projection projection;
        projection.out = here.size();
        projection.weight = plan.table.add(weight);
        if (bias) projection.bias = plan.table.add(offset);
        return projection;
    }

    /// Wo: by default as the others; `out_std` for the smaller start that deep stacks want.
    Parameter out_parameter(const ModelPlan& plan, Range columns, bool split) const {
        Parameter parameter{.name = spec_.name() + ".out.weight",
                            .shape = {width_, width_},
                            .decay = true,
                            .init = linear_init(spec_, plan.init, width_, width_),
                            .operand = true};
        if (spec_.has("out_std"))
            parameter.init = {.kind = InitKind::normal,
                              .value = static_cast<float>(spec_.real("out_std", 0))};
        if (split) parameter.slice = Slice{1, columns};
        return parameter;
    }

    void plan_tensors(ModelPlan& plan, const Shape& in, int tick, bool first) {
        const std::int64_t q = t_ * heads_here_ * d_, kv = t_ * kv_here_ * d_;
        const auto kept = [&](std::int64_t elements) {
            return plan.workspace.add(elements, 0, plan.compute, forward_at(tick), backward_at(tick));
        };
        const auto back = [&](std::int64_t elements) {
            return plan.workspace.add(elements, 0, plan.compute, backward_at(tick), backward_at(tick));
        };
        y_q_ = kept(q);
        y_k_ = kept(kv);
        y_v_ = kept(kv);
        y_ = kept(q);
        log_sums_ = plan.workspace.add(t_ * heads_here_, 0, DType::f32, forward_at(tick), backward_at(tick));
        d_q_ = back(q);
        d_k_ = back(kv);
        d_v_ = back(kv);
        d_y_ = back(q);
        forward_.plan(plan, in, t_, width_, forward_at(tick), plan.group.size() > 1);
        backward_.plan(plan, in, t_, width_, backward_at(tick), !first);
    }

    Attention arguments(const LaneContext& lane) const {
        const Shape q{lane.samples, t_, heads_here_, d_}, kv{lane.samples, t_, kv_here_, d_};
        return {.n = lane.samples,
                .t = t_,
                .heads = heads_here_,
                .kv_heads = kv_here_,
                .d = d_,
                .causal = causal_,
                .scale = 1 / std::sqrt(static_cast<float>(d_)),
                .q = lane.tensor(y_q_, q),
                .k = lane.tensor(y_k_, kv),
                .v = lane.tensor(y_v_, kv),
                .y = lane.tensor(y_, q),
                .log_sums = lane.training ? lane.tensor(log_sums_, {lane.samples, heads_here_, t_}) : View{}};
    }

    static void project(LaneContext& lane, View in, const Projection& projection, View y) {
        lane.ops->matmul({.a = in,
                          .b = lane.operand(projection.weight),
                          .c = rows(y, projection.out),
                          .transpose_b = true,
                          .bias = projection.bias < 0 ? View{} : lane.weight(projection.bias)});
    }

    static void back(LaneContext& lane, View in, const Projection& projection, View dy, View sum, bool add) {
        const View dz = rows(dy, projection.out);
        if (projection.bias >= 0) lane.ops->sum_rows(dz, lane.gradient(projection.bias), lane.accumulate);
        lane.ops->matmul({.a = dz,
                          .b = in,
                          .c = lane.gradient(projection.weight),
                          .transpose_a = true,
                          .accumulate = lane.accumulate});
        if (sum)
            lane.ops->matmul({.a = dz, .b = lane.operand(projection.weight), .c = sum, .accumulate = add});
    }

    LayerSpec spec_;
    std::int64_t t_ = 0, width_ = 0, d_ = 0;
    std::int64_t heads_ = 0, kv_heads_ = 0;      // in all
    std::int64_t heads_here_ = 0, kv_here_ = 0;  // of this rank
    bool causal_ = true, rope_ = false;
    float base_ = 10000;
    Projection q_, k_, v_;
    ParameterId out_weight_ = -1, out_bias_ = -1;       // [width, width], [width] or absent
    TensorId y_q_ = -1, y_k_ = -1, y_v_ = -1, y_ = -1;  // [N, T, heads, d]
    TensorId log_sums_ = -1;                            // [N, heads, T]
    TensorId d_q_ = -1, d_k_ = -1, d_v_ = -1, d_y_ = -1;
    GroupEdge forward_, backward_;  // [N·T, width]
};

}  // namespace

std::unique_ptr<Layer> make_attention(const LayerSpec& spec) {
    return std::make_unique<AttentionLayer>(spec);
}

}  // namespace trireme
