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

/// The elements of each rank's part of `extent`, `times` as large, one part after the other.
std::span<const Range> parts_of(const TensorGroup& group, std::int64_t extent, std::int64_t times,
                                std::array<Range, most_tensor_ranks>& parts) {
    for (int q = 0; q < group.size(); ++q) {
        const Range part = group.part_of(extent, q);
        parts[static_cast<std::size_t>(q)] = {part.begin * times, part.end * times};
    }
    return std::span(parts).first(static_cast<std::size_t>(group.size()));
}

}  // namespace

Shape begin_sequence(const LayerSpec& spec, ModelPlan& plan, const Shape& whole) {
    if (!plan.sequence) return whole;
    if (whole[0] < plan.group.size())
        spec.refuse("parallel.sequence=true: its " + std::to_string(whole[0]) +
                    " positions are fewer than the " + std::to_string(plan.group.size()) +
                    " ranks that would split them");
    plan.positions = whole[0];
    return {plan.group.part(whole[0]).size(), whole[1]};
}

void take_positions(LaneContext& lane, View whole, std::int64_t positions, std::int64_t width, View mine) {
    const Range part = lane.group.part(positions);
    lane.ops->take_columns(rows(whole, positions * width), part.begin * width,
                           rows(mine, part.size() * width));
}

void GroupEdge::plan(ModelPlan& plan, const Shape& in, std::int64_t rows, std::int64_t width, Moment when,
                     bool sums) {
    positions_ = split_positions(plan, in);
    rows_ = rows;
    width_ = width;
    const auto add = [&] { return plan.workspace.add(rows * width, 0, DType::f32, when, when); };
    if (positions_ > 0) whole_ = add();
    if (positions_ > 0 || (sums && plan.compute != DType::f32)) room_ = add();
}

View GroupEdge::room(const LaneContext& lane, DType type) const {
    return block(lane, room_, type, 0, {lane.samples * rows_, width_});
}

View GroupEdge::whole(LaneContext& lane, View x) const {
    if (positions_ == 0) return rows(x, width_);
    const View staging = room(lane, x.dtype);
    const View all = block(lane, whole_, x.dtype, 0, staging.shape);
    std::array<Range, most_tensor_ranks> room_for_parts{};
    const std::span<const Range> parts =
        parts_of(lane.group, positions_, lane.samples * width_, room_for_parts);
    const auto part_of = [&](int rank) {
        const Range here = parts[static_cast<std::size_t>(rank)];
        return block(lane, room_, x.dtype, here.begin, {lane.samples, here.size() / lane.samples});
    };
    lane.ops->copy(rows(x, part_of(lane.group.rank()).shape[1]), part_of(lane.group.rank()));
    lane.group.comm->all_gather(staging, parts);
    for (int q = 0; q < lane.group.size(); ++q)
        lane.ops->put_columns(part_of(q), lane.group.part_of(positions_, q).begin * width_,
                              rows(all, positions_ * width_));
    return all;
}

View GroupEdge::part(const LaneContext& lane, View result) const {
    const bool there = positions_ == 0 && result.dtype == DType::f32;
    return there ? rows(result, width_) : room(lane, DType::f32);
}

void GroupEdge::sum(LaneContext& lane, View part, View result, View bias) const {
    View sums = part;
    if (positions_ == 0) {
        lane.sum_over_tensor(part);
    } else {
        std::array<Range, most_tensor_ranks> room_for_parts{};
        const std::span<const Range> parts =
            parts_of(lane.group, positions_, lane.samples * width_, room_for_parts);
        for (int q = 0; q < lane.group.size(); ++q) {
            const Range here = parts[static_cast<std::size_t>(q)];
            lane.ops->take_columns(
                rows(part, positions_ * width_), lane.group.part_of(positions_, q).begin * width_,
                block(lane, whole_, DType::f32, here.begin, {lane.samples, here.size() / lane.samples}));
        }
        // What has been taken out of the partial sums makes room for the whole ones.
        const Range mine = parts[static_cast<std::size_t>(lane.group.rank())];
        sums = block(lane, room_, DType::f32, 0, {mine.size() / width_, width_});
        lane.group.comm->reduce_scatter(block(lane, whole_, DType::f32, 0, part.shape), parts, sums,
                                        Reduce::sum);
    }
    const View to = rows(result, width_);
    if (bias)
        lane.ops->add_row(sums, bias, to);
    else if (sums.data != to.data)
        lane.ops->copy(sums, to);
}

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
    std::array<Range, most_tensor_ranks> room{};
    lane.group.comm->all_gather(block(lane, all_, mine.dtype, 0, {all_rows * columns_}),
                                parts_of(lane.group, columns_, all_rows, room));
    for (int q = 0; q < lane.group.size(); ++q) {
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
