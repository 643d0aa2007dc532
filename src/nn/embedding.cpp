// Tokens to vectors, and positions.
//   embedding   y[i] = W[token_i]; over a tensor group each rank has an interval of the vocabulary, and y is
//               the sum, of which each rank keeps its positions where they are split between layers
//   positions   y = x + P, one learned row for each position that is here
#include "nn/layers.hpp"

namespace trireme {
namespace {

class Embedding final : public Layer {
public:
    explicit Embedding(const LayerSpec& spec) : spec_(spec) { spec.allow({"dim", "vocab", "std"}); }

    Shape plan(ModelPlan& plan, const Shape& in, bool first) override {
        if (in.rank() != 1 || !first)
            spec_.refuse("needs tokens as its input (data.kind=tokens), but gets " + in.text());
        vocab_ = spec_.text("vocab", "") == "classes" ? plan.outputs : spec_.integer("vocab", plan.outputs);
        dim_ = spec_.required_integer("dim");
        if (vocab_ < plan.outputs)
            spec_.refuse("vocab=" + std::to_string(vocab_) + ": the data have " +
                         std::to_string(plan.outputs) + " different tokens");
        const int tick = plan.workspace.next_tick();
        const TensorGroup& group = plan.group;
        here_ = group.part(vocab_);
        Parameter weight{
            .name = spec_.name() + ".weight",
            .shape = {vocab_, dim_},
            .decay = true,
            .init = {.kind = InitKind::normal, .value = static_cast<float>(spec_.real("std", 0.02))}};
        if (group.size() > 1) weight.slice = Slice{0, here_};
        weight_ = plan.table.add(weight);
        plan.embeddings[spec_.name()] = {weight_, vocab_, dim_};
        const Shape out = begin_sequence(spec_, plan, {in[0], dim_});
        forward_.plan(plan, out, in[0], dim_, forward_at(tick), group.size() > 1);
        backward_.plan(plan, out, in[0], dim_, backward_at(tick), false);
        return out;
    }

    void forward(LaneContext& lane, View x, View y) const override {
        const View ids{x.data, x.dtype, {x.count()}};
        const View out = rows(y, dim_);
        if (lane.group.size() == 1) {
            lane.ops->embedding_forward(ids, lane.weight(weight_), 0, out);
            return;
        }
        const View part = forward_.part(lane, out);
        lane.ops->embedding_forward(ids, lane.weight(weight_), here_.begin, part);
        forward_.sum(lane, part, out);
    }

    void backward(LaneContext& lane, View x, View, View dy, View) const override {
        const View ids{x.data, x.dtype, {x.count()}};
        // A head that shares the weights has left its gradient there already.
        const bool shared = (*lane.table)[weight_].shared;
        lane.ops->embedding_backward(ids, backward_.whole(lane, dy), here_.begin, lane.gradient(weight_),
                                     lane.accumulate || shared);
        lane.gradients_done(weight_);
    }

    void add_work(Work& work, std::int64_t samples, bool) const override {
        work.move(dim_, samples, 4);
        work.bytes += 4.0 * static_cast<double>(here_.size() * dim_);  // the gradient is cleared
    }

private:
    LayerSpec spec_;
    std::int64_t vocab_ = 0, dim_ = 0;
    Range here_;                    // of the vocabulary
    ParameterId weight_ = -1;       // [vocab, dim]
    GroupEdge forward_, backward_;  // [N·T, dim]
};

class Positions final : public Layer {
public:
    explicit Positions(const LayerSpec& spec) : spec_(spec) { spec.allow({"std"}); }

    Shape plan(ModelPlan& plan, const Shape& in, bool) override {
        if (in.rank() != 2) spec_.refuse("needs a sequence of vectors, but gets " + in.text());
        plan.workspace.next_tick();
        shape_ = in;
        Parameter weight{
            .name = spec_.name() + ".weight",
            .shape = in,
            .init = {.kind = InitKind::normal, .value = static_cast<float>(spec_.real("std", 0.02))}};
        if (const std::int64_t all = split_positions(plan, in); all > 0) {
            weight.shape[0] = all;
            weight.slice = Slice{0, plan.group.part(all)};
        } else {
            weight.counted = plan.group.rank() == 0;
        }
        weight_ = plan.table.add(weight);
        return in;
    }
    void forward(LaneContext& lane, View x, View y) const override {
        lane.ops->add_row(rows(x, shape_.count()), flat(lane.weight(weight_)), rows(y, shape_.count()));
    }
    void backward(LaneContext& lane, View, View, View dy, View dx) const override {
        lane.ops->sum_rows(rows(dy, shape_.count()), flat(lane.gradient(weight_)), lane.accumulate);
        if (dx) lane.ops->copy(dy, dx);
        lane.gradients_done(weight_);
    }
    void add_work(Work& work, std::int64_t samples, bool first) const override {
        work.move(shape_.count(), samples, first ? 3 : 5);
    }

private:
    static View flat(View view) { return {view.data, view.dtype, {view.count()}}; }

    LayerSpec spec_;
    Shape shape_;              // [T, D], of the positions that are here
    ParameterId weight_ = -1;  // [T, D], split as the positions are
};

}  // namespace

std::unique_ptr<Layer> make_embedding(const LayerSpec& spec) {
    return std::make_unique<Embedding>(spec);
}
std::unique_ptr<Layer> make_positions(const LayerSpec& spec) {
    return std::make_unique<Positions>(spec);
}

}  // namespace trireme
