#include "nn/tensor_parallel.hpp"

#include <array>
#include <span>

namespace trireme {

namespace {

/// Elements of a planned tensor from `begin` on, read as `type`: the model's output is float32 in any
/// precision, so there is room for that.
View block(const LaneContext& lane, TensorId id, DType type, std::int64_t begin, const Shape& shape) {
    std::byte* data = static_cast<std::byte*>(lane.tensor(id, shape).data);
    return {data + static_cast<std::size_t>(begin) * size_of(type), type, shape};
}

}  // namespace

void ColumnGather::plan(ModelPlan& plan, std::int64_t rows, std::int64_t columns, int tick) {
    rows_ = rows;
    columns_ = columns;
    all_ = plan.workspace.add(rows * columns, 0, DType::f32, forward_at(tick), forward_at(tick));
    mine_ = plan.workspace.add(rows * plan.group.part(columns).size(), 0, DType::f32, backward_at(tick),
                               backward_at(tick));
}

View ColumnGather::mine(const LaneContext& lane, DType type) const {
    const std::int64_t all_rows = lane.samples * rows_;
    const Range part = lane.group.part(columns_);
    return block(lane, all_, type, part.begin * all_rows, {all_rows, part.size()});
}

void ColumnGather::forward(LaneContext& lane, View mine, View y) const {
    const std::int64_t all_rows = lane.samples * rows_;
    const int ranks = lane.group.size();
    std::array<Range, most_tensor_ranks> parts{};
    for (int q = 0; q < ranks; ++q) {
        const Range part = lane.group.part_of(columns_, q);
        parts[static_cast<std::size_t>(q)] = {part.begin * all_rows, part.end * all_rows};
    }
    lane.group.comm->all_gather(block(lane, all_, mine.dtype, 0, {all_rows * columns_}),
                                std::span(parts).first(static_cast<std::size_t>(ranks)));
    for (int q = 0; q < ranks; ++q) {
        const Range part = lane.group.part_of(columns_, q);
        lane.ops->put_columns(block(lane, all_, mine.dtype, part.begin * all_rows, {all_rows, part.size()}),
                              part.begin, y);
    }
}

View ColumnGather::backward(LaneContext& lane, View dy) const {
    const Range part = lane.group.part(columns_);
    const View mine = block(lane, mine_, dy.dtype, 0, {lane.samples * rows_, part.size()});
    lane.ops->take_columns(dy, part.begin, mine);
    return mine;
}

Init linear_init(const LayerSpec& spec, const std::string& model_init, std::int64_t fan_in,
                 std::int64_t fan_out) {
    if (!spec.has("std")) return init_from(model_init, fan_in, fan_out);
    const double std = spec.real("std", 0);
    if (!(std >= 0)) spec.refuse("expected std >= 0");
    return {.kind = InitKind::normal, .value = static_cast<float>(std)};
}

}  // namespace trireme
