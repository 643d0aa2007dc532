// Layers one after another, and residual blocks (y = act(main(x) + shortcut(x)), the shortcut being x itself
// or layers of its own).
#include "nn/sequence.hpp"

#include <algorithm>
#include <utility>

#include "nn/layers.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"

namespace trireme {

void Sequence::append(std::unique_ptr<Layer> layer) {
    // An activation that the layer before can apply on the way needs no pass, and no tensor, of its own.
    const Activation activation = activation_of(*layer);
    if (activation != Activation::none && !children_.empty() && children_.back().layer->absorb(activation))
        return;
    children_.push_back({std::move(layer)});
}

bool Sequence::here(std::int64_t child) const {
    return chunks_.empty() || std::any_of(chunks_.begin(), chunks_.end(), [child](const Range& chunk) {
               return chunk.begin <= child && child < chunk.end;
           });
}

/// Whether a rank reads or writes what this child gives; an empty chunk hands it on.
bool Sequence::touched(std::int64_t child) const {
    return chunks_.empty() || std::any_of(chunks_.begin(), chunks_.end(), [child](const Range& chunk) {
               return chunk.begin - 1 <= child && child < chunk.end;
           });
}

Shape Sequence::plan(ModelPlan& plan, const Shape& in, bool first) {
    deal_features(plan);
    const bool split_output = std::exchange(plan.split_output, false), outer_here = plan.here;
    outermost_ = std::exchange(plan.outermost, false);
    std::vector<int> begin_tick, end_tick;  // first and one past the last tick of each child
    Shape shape = in;
    for (std::size_t i = 0; i < children_.size(); ++i) {
        begin_tick.push_back(plan.workspace.ticks());
        children_[i].in = shape;
        plan.here = outer_here && here(static_cast<std::int64_t>(i));
        plan.workspace.take_memory(plan.here);
        if (outermost_) plan.table.begin_block();
        const ParameterId first_parameter = plan.table.count();
        shape = children_[i].layer->plan(plan, shape, first && i == 0);
        if (!plan.here) plan.table.leave_out({first_parameter, plan.table.count()});
        children_[i].out = shape;
        end_tick.push_back(plan.workspace.ticks());
    }
    plan.here = outer_here;
    // Between child i and i+1: the activation lives from i's forward to i's backward (which may look at its
    // output); its gradient from (i+1)'s backward to i's. A neighbour on another rank sends or receives it.
    for (std::size_t i = 0; i + 1 < children_.size(); ++i) {
        const auto at = static_cast<std::int64_t>(i);
        const std::int64_t elements = children_[i].out.count();
        plan.workspace.take_memory(outer_here && touched(at));
        children_[i].y = plan.workspace.add(elements, 0, plan.compute, forward_at(begin_tick[i]),
                                            backward_at(begin_tick[i]));
        children_[i].dy = plan.workspace.add(elements, 0, plan.compute, backward_at(end_tick[i + 1] - 1),
                                             backward_at(begin_tick[i]));
    }
    plan.workspace.take_memory(outer_here);
    plan.split_output = split_output;
    return shape;
}

void Sequence::forward(Range children, LaneContext& lane, View x, View y) const {
    for (std::int64_t i = children.begin; i < children.end; ++i) {
        const View out = i + 1 < children.end ? activation(lane, i) : y;
        enter(i, children.end - 1, lane, false);
        child(i).layer->forward(lane, x, out);
        x = out;
    }
}

void Sequence::backward(Range children, LaneContext& lane, View x, View y, View dy, View dx) const {
    for (std::int64_t i = children.end; i-- > children.begin;) {
        const View in = i > children.begin ? activation(lane, i - 1) : x;
        const View d_in = i > children.begin ? gradient(lane, i - 1) : dx;
        enter(i, children.begin, lane, true);
        child(i).layer->backward(lane, in, y, dy, d_in);
        y = in;
        dy = d_in;
    }
}

void Sequence::visit(Range children, const LaneContext& lane, bool backward) const {
    for (std::int64_t i = 0; i < children.size(); ++i)
        if (backward)
            enter(children.end - 1 - i, children.begin, lane, true);
        else
            enter(children.begin + i, children.end - 1, lane, false);
}

void Sequence::enter(std::int64_t child, std::int64_t until, const LaneContext& lane, bool backward) const {
    if (outermost_) lane.enter(static_cast<int>(child), static_cast<int>(until), backward);
}

void Sequence::add_work(Work& work, std::int64_t samples, bool first) const {
    for (std::int64_t i = 0; i < size(); ++i)
        if (here(i)) child(i).layer->add_work(work, samples, first && i == 0);
}

Work Sequence::work_of(int i, std::int64_t samples) const {
    Work work;
    child(i).layer->add_work(work, samples, i == 0);
    return work;
}

/// Tensor parallelism: two layers that can split, with nothing but element-wise ones between them, leave
/// the features split on the way; the model's last one leaves them split where the loss can take them so.
/// Where positions are split, the last one is nobody's partner: as that it would give a part of them.
void Sequence::deal_features(ModelPlan& plan) {
    const auto splits = [&](std::size_t i) { return children_[i].layer->splits(); };
    const std::size_t count = children_.size();
    const std::size_t partners = plan.sequence && plan.split_output ? count - 1 : count;
    bool output_split = false;
    for (std::size_t i = 0; plan.group.size() > 1 && i < count; ++i) {
        if (!splits(i)) continue;
        std::size_t partner = i + 1;
        while (partner < count && children_[partner].layer->passes_split()) ++partner;
        if (partner < partners && children_[partner].layer->takes_split()) {
            children_[i].layer->set_features(Features::whole, Features::split);
            for (std::size_t between = i + 1; between < partner; ++between)
                children_[between].layer->set_features(Features::split, Features::split);
            children_[partner].layer->set_features(Features::split, Features::whole);
            i = partner;
        } else if (i + 1 == count && plan.split_output) {
            children_[i].layer->set_features(Features::whole, Features::split);
            output_split = true;
        }
    }
    plan.split_output = output_split;
}

View Sequence::activation(const LaneContext& lane, std::int64_t i) const {
    return lane.tensor(child(i).y, child(i).out.batched(lane.samples));
}

View Sequence::gradient(const LaneContext& lane, std::int64_t i) const {
    return lane.tensor(child(i).dy, child(i).out.batched(lane.samples));
}

namespace {

class Residual final : public Layer {
public:
    Residual(const LayerSpec& spec, std::unique_ptr<Layer> main, std::unique_ptr<Layer> shortcut)
        : spec_(spec), main_(std::move(main)), shortcut_(std::move(shortcut)) {
        spec_.allow({});
    }

    Shape plan(ModelPlan& plan, const Shape& in, bool first) override {
        in_ = in;
        const int begin = plan.workspace.ticks();
        out_ = main_->plan(plan, in, first);
        const int shortcut_begin = plan.workspace.ticks();
        const Shape other = shortcut_ ? shortcut_->plan(plan, in, first) : in;
        if (!(out_ == other))
            spec_.refuse("the block ends with " + out_.text() + " but its shortcut with " + other.text() +
                         "; give the shortcut layers of its own after a `shortcut` line");
        const int end = plan.workspace.next_tick();
        const auto add = [&](const Shape& shape, Moment from, Moment to) {
            return plan.workspace.add(shape.count(), 0, plan.compute, from, to);
        };
        // The branches' outputs are looked at again by the backward of their last layers.
        main_y_ = add(out_, forward_at(begin), backward_at(begin));
        if (shortcut_) {
            shortcut_y_ = add(out_, forward_at(shortcut_begin), backward_at(shortcut_begin));
            shortcut_dy_ = add(out_, backward_at(end), backward_at(shortcut_begin));
        }
        if (!first) main_dx_ = add(in_, backward_at(end), backward_at(begin));
        return out_;
    }

    void forward(LaneContext& lane, View x, View y) const override {
        const View main = tensor(lane, main_y_, out_);
        main_->forward(lane, x, main);
        View other = x;
        if (shortcut_) {
            other = tensor(lane, shortcut_y_, out_);
            shortcut_->forward(lane, x, other);
        }
        lane.ops->add(main, other, activation_, y);
    }

    void backward(LaneContext& lane, View x, View y, View dy, View dx) const override {
        if (activation_ != Activation::none) lane.ops->activation_backward(activation_, {}, y, dy, dy);
        // Each branch may overwrite its gradient, so the shortcut gets its own; dx is the sum of both
        // branches'.
        if (shortcut_) {
            const View shortcut_dy = tensor(lane, shortcut_dy_, out_);
            lane.ops->copy(dy, shortcut_dy);
            shortcut_->backward(lane, x, tensor(lane, shortcut_y_, out_), shortcut_dy, dx);
        } else if (dx) {
            lane.ops->copy(dy, dx);
        }
        const View main_dx = dx ? tensor(lane, main_dx_, in_) : View{};
        main_->backward(lane, x, tensor(lane, main_y_, out_), dy, main_dx);
        if (dx) lane.ops->add_scaled(main_dx, 1, dx);
    }

    void add_work(Work& work, std::int64_t samples, bool first) const override {
        main_->add_work(work, samples, first);
        if (shortcut_) shortcut_->add_work(work, samples, first);
        const int masked = activation_ == Activation::none ? 0 : 3;
        work.move(out_.count(), samples, 3 + 2 + masked);
        if (!first) work.move(in_.count(), samples, 3);
    }

    bool absorb(Activation activation) override {
        if (activation != Activation::relu || activation_ != Activation::none) return false;
        activation_ = activation;
        return true;
    }

private:
    View tensor(const LaneContext& lane, TensorId id, const Shape& sample) const {
        return lane.tensor(id, sample.batched(lane.samples));
    }

    LayerSpec spec_;
    std::unique_ptr<Layer> main_, shortcut_;  // shortcut absent: the identity
    Shape in_, out_;
    TensorId main_y_ = -1, shortcut_y_ = -1, shortcut_dy_ = -1;  // [N, out...]
    TensorId main_dx_ = -1;                                      // [N, in...]
    Activation activation_ = Activation::none;
};

using Factory = std::unique_ptr<Layer> (*)(const LayerSpec&);

const std::vector<std::pair<std::string, Factory>>& factories() {
    static const std::vector<std::pair<std::string, Factory>> table = {
        {"linear", make_linear},        {"conv", make_conv},
        {"batchnorm", make_batchnorm},  {"layernorm", make_layernorm},
        {"relu", make_activation},      {"gelu", make_activation},
        {"silu", make_activation},      {"tanh", make_activation},
        {"sigmoid", make_activation},   {"dropout", make_dropout},
        {"maxpool", make_pool},         {"avgpool", make_pool},
        {"flatten", make_flatten},      {"globalavgpool", make_global_average_pool},
        {"rmsnorm", make_rmsnorm},      {"embedding", make_embedding},
        {"positions", make_positions},  {"attention", make_attention},
        {"swiglu", make_swiglu},        {"tokens", make_image_tokens},
        {"tokenmean", make_token_mean},
    };
    return table;
}

std::unique_ptr<Layer> make_residual(const LayerSpec& spec, const std::vector<LayerSpec>& lines,
                                     std::size_t& next) {
    std::unique_ptr<Layer> main = make_sequence(lines, next), shortcut;
    if (next < lines.size() && lines[next].kind() == "shortcut") shortcut = make_sequence(lines, ++next);
    if (next == lines.size() || lines[next].kind() != "end") spec.refuse("`layer = end` is missing");
    ++next;
    return std::make_unique<Residual>(spec, std::move(main), std::move(shortcut));
}

}  // namespace

std::unique_ptr<Layer> make_layer(const LayerSpec& spec) {
    std::vector<std::string> known = {"residual", "shortcut", "end"};
    for (const auto& [kind, make] : factories()) {
        if (kind == spec.kind()) return make(spec);
        known.push_back(kind);
    }
    const std::string near = nearest(spec.kind(), known);
    std::string kinds;
    for (const std::string& kind : known) kinds += " " + kind;
    spec.refuse("unknown layer `" + spec.kind() + "`" +
                (near.empty() ? "; there are" + kinds : "; did you mean `" + near + "`?"));
}

std::unique_ptr<Sequence> make_sequence(const std::vector<LayerSpec>& lines, std::size_t& next) {
    auto sequence = std::make_unique<Sequence>();
    const std::size_t begin = next;
    while (next < lines.size() && lines[next].kind() != "shortcut" && lines[next].kind() != "end") {
        const LayerSpec& spec = lines[next++];
        sequence->append(spec.kind() == "residual" ? make_residual(spec, lines, next) : make_layer(spec));
    }
    if (sequence->size() == 0) {
        if (begin < lines.size()) lines[begin].refuse("there is no layer before this line");
        throw usage_error("the model has no layers: give model.arch or `layer = ...` lines");
    }
    return sequence;
}

}  // namespace trireme
