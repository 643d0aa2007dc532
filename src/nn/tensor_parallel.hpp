// What layers have in common that split their weights over a tensor group.
#pragma once

#include "trireme/nn/layer.hpp"

namespace trireme {

/// The last extent as columns, all others as rows.
inline View rows(View x, std::int64_t columns) {
    return {x.data, x.dtype, {columns > 0 ? x.count() / columns : 0, columns}};
}

/// A float32 tensor in which the ranks' partial results are added.
class PartialSum {
public:
    void plan(ModelPlan& plan, std::int64_t per_sample, Moment from, Moment to) {
        id_ = plan.workspace.add(per_sample, 0, DType::f32, from, to);
    }
    View view(const LaneContext& lane, const Shape& shape) const { return lane.tensor(id_, shape); }

private:
    TensorId id_ = -1;
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
