// Layers one after another. The model's outermost sequence may be cut into chunks, of which a rank has some.
#pragma once

#include <memory>
#include <vector>

#include "trireme/nn/layer.hpp"

namespace trireme {

class Sequence final : public Layer {
public:
    void append(std::unique_ptr<Layer> layer);
    int size() const { return static_cast<int>(children_.size()); }

    /// Says, before plan(), which children this rank has: those of the given intervals. The others are
    /// planned for their shapes and parameters' names, but take no memory and are never run.
    void keep_only(std::vector<Range> chunks) { chunks_ = std::move(chunks); }

    Shape plan(ModelPlan& plan, const Shape& in, bool first) override;
    void forward(LaneContext& lane, View x, View y) const override { forward({0, size()}, lane, x, y); }
    void backward(LaneContext& lane, View x, View y, View dy, View dx) const override {
        backward({0, size()}, lane, x, y, dy, dx);
    }
    /// The work of the children that are here.
    void add_work(Work& work, std::int64_t samples, bool first) const override;
    bool absorb(Activation activation) override {
        return !children_.empty() && children_.back().layer->absorb(activation);
    }

    // Of some children, which follow each other; x and y are what the first one takes and the last one gives.
    void forward(Range children, LaneContext& lane, View x, View y) const;
    void backward(Range children, LaneContext& lane, View x, View y, View dy, View dx) const;
    /// Comes to the same blocks as a pass of a lane without computing anything.
    void visit(Range children, const LaneContext& lane, bool backward) const;
    Work work_of(int child, std::int64_t samples) const;

    /// What child i gives, and its gradient, [N, out...]; for every child but the last one.
    View activation(const LaneContext& lane, std::int64_t i) const;
    View gradient(const LaneContext& lane, std::int64_t i) const;

private:
    struct Child {
        std::unique_ptr<Layer> layer;
        Shape in{}, out{};
        TensorId y = -1, dy = -1;  // [N, out...], absent for the last child
    };
    void deal_features(ModelPlan& plan);
    bool here(std::int64_t child) const;
    bool touched(std::int64_t child) const;
    void enter(std::int64_t child, std::int64_t until, const LaneContext& lane, bool backward) const;
    const Child& child(std::int64_t i) const { return children_[static_cast<std::size_t>(i)]; }

    std::vector<Child> children_;
    std::vector<Range> chunks_;  // empty: all children
    bool outermost_ = false;     // its children are the blocks of the parameter table
};

/// Layers one after another; `lines` are consumed from `next` up to the end, or up to shortcut or end.
std::unique_ptr<Sequence> make_sequence(const std::vector<LayerSpec>& lines, std::size_t& next);

}  // namespace trireme
