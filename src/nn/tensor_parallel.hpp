// What layers have in common that split their weights over a tensor group.
#pragma once

#include "trireme/nn/layer.hpp"

namespace trireme {

/// The last extent as columns, all others as rows.
inline View rows(View x, std::int64_t columns) {
    return {x.data, x.dtype, {columns > 0 ? x.count() / columns : 0, columns}};
}

// Sequence parallelism (Korthikanti et al. 2022): between the layers that split their weights a sequence
// [T, D] is [T_r, D] on each rank, its part of the positions. Seen as one row of T·D columns, those are
// neighbouring columns.

/// Positions of the whole sequence of which samples of this shape are one rank's part; 0: they are whole.
inline std::int64_t split_positions(const ModelPlan& plan, const Shape& in) {
    return in.rank() == 2 ? plan.positions : 0;
}
/// Where a sequence begins: from here on its positions are split, if that is wanted. Returns the shape here.
/// @throws Error (bad_usage) quoting the line when there are fewer positions than ranks.
Shape begin_sequence(const LayerSpec& spec, ModelPlan& plan, const Shape& whole);
/// This rank's positions [N, T_r, width] of a whole sequence [N, T, width].
void take_positions(LaneContext& lane, View whole, std::int64_t positions, std::int64_t width, View mine);

/// The edge between a layer that splits its weights and its neighbours, in one pass over the layer. What
/// comes in is brought together where positions are split, what the layer has is a part of a sum over the
/// ranks: all-reduced, or reduce-scattered to the positions. At a time one of the two is in use.
class GroupEdge {
public:
    /// For `rows` per sample (all positions) of `width` features; `sums`: part() and sum() are asked for.
    void plan(ModelPlan& plan, const Shape& in, std::int64_t rows, std::int64_t width, Moment when,
              bool sums);

    /// x [N·rows here, width] of all ranks. [N·rows, width]; x itself where positions are not split
    View whole(LaneContext& lane, View x) const;
    /// Room for all positions, beside what whole() gave; only where they are split. [N·rows, width]
    View room(const LaneContext& lane, DType type) const;
    /// Where this rank's part of a sum goes that is to end in `result`: there, where it can. Partial sums are
    /// float32 whatever layers compute in: they are rounded once, when they are complete. [N·rows, width]
    View part(const LaneContext& lane, View result) const;
    /// result = the sum of the ranks' parts (+ bias). result [N·rows here, width], bias [width] or absent
    void sum(LaneContext& lane, View part, View result, View bias = {}) const;

private:
    std::int64_t positions_ = 0, rows_ = 1, width_ = 0;
    TensorId whole_ = -1, room_ = -1;  // [N·rows, width] f32
};

/// Brings columns that are split over the ranks together on all of them, and takes this rank's back.
class ColumnGather {
public:
    /// `rows` per sample of `columns` in all, for the layer with this tick.
    void plan(ModelPlan& plan, std::int64_t rows, std::int64_t columns, int tick);

    /// Where this rank's columns go before forward(). [N·rows, its columns]
    View mine(const LaneContext& lane, DType type) const;
    /// y [N·rows, columns] from what every rank has put into mine().
    void forward(LaneContext& lane, View mine, View y) const;
    /// This rank's columns of dy. [N·rows, its columns]
    View backward(LaneContext& lane, View dy) const;

private:
    std::int64_t rows_ = 1, columns_ = 0;
    TensorId all_ = -1;   // forward: the ranks' columns, one rank after the other
    TensorId mine_ = -1;  // backward: this rank's
};

/// How the weights of a matrix start: model.init, or normal with the line's own std=.
Init linear_init(const LayerSpec& spec, const std::string& model_init, std::int64_t fan_in,
                 std::int64_t fan_out);

}  // namespace trireme
