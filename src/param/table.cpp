#include "trireme/param/table.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"

namespace trireme {
Shape Parameter::local() const {
    if (!held) return {0};
    Shape extents = shape;
    if (slice) extents[slice->axis] = slice->range.size();
    return extents;
}

std::vector<Strip> strips_of(const Parameter& parameter, Range local) {
    if (local.empty()) return {};
    const Slice slice =
        parameter.slice.value_or(Slice{0, {0, parameter.shape.rank() > 0 ? parameter.shape[0] : 1}});
    std::int64_t inner = 1;  // elements of one step along the axis
    for (int axis = slice.axis + 1; axis < parameter.shape.rank(); ++axis) inner *= parameter.shape[axis];
    const std::int64_t extent = parameter.shape.rank() > 0 ? parameter.shape[slice.axis] : 1;
    const std::int64_t length = slice.range.size() * inner, stride = extent * inner;
    std::vector<Strip> strips;
    for (std::int64_t at = local.begin; at < local.end;) {
        const std::int64_t within = at % length, count = std::min(length - within, local.end - at);
        strips.push_back({at / length * stride + slice.range.begin * inner + within, at, count});
        at += count;
    }
    return strips;
}

ParameterId ParameterTable::add(Parameter parameter) {
    const bool taken = std::any_of(parameters_.begin(), parameters_.end(),
                                   [&](const Parameter& other) { return other.name == parameter.name; });
    if (taken)
        throw usage_error("two parameters are called " + parameter.name +
                          ": give the layers different names");
    parameter.block = std::max(block_, 0);
    parameters_.push_back(std::move(parameter));
    return count() - 1;
}

void ParameterTable::share(ParameterId id, bool here) {
    Parameter& parameter = parameters_[static_cast<std::size_t>(id)];
    parameter.tied = true;
    if (!here) return;
    parameter.shared = parameter.held;
    parameter.counted = parameter.counted && parameter.held;
    parameter.held = true;
}

void ParameterTable::leave_out(Range ids) {
    for (std::int64_t id = ids.begin; id < ids.end; ++id)
        parameters_[static_cast<std::size_t>(id)].held = false;
}

void ParameterTable::lay_out() {
    order_.clear();
    for (const Role role : {Role::statistic, Role::weight})
        for (ParameterId id = count() - 1; id >= 0; --id)
            if ((*this)[id].role == role) order_.push_back(id);
    std::int64_t offset = 0;
    for (const ParameterId id : order_) {
        Parameter& parameter = parameters_[static_cast<std::size_t>(id)];
        parameter.place = {offset, offset + parameter.local_count()};
        offset = round_up(parameter.place.end, parameter_alignment);
    }
    arena_size_ = offset;
}

Range ParameterTable::slot(ParameterId id) const {
    const Range place = (*this)[id].place;
    return {place.begin, round_up(place.end, parameter_alignment)};
}

std::int64_t ParameterTable::finished_after(ParameterId id) const {
    for (ParameterId before = id - 1; before >= 0; --before)
        if ((*this)[before].role == Role::weight) return (*this)[before].place.begin;
    return arena_size_;
}

std::int64_t ParameterTable::local_weight_count() const {
    std::int64_t total = 0;
    for (const Parameter& parameter : parameters_)
        if (parameter.role == Role::weight) total += parameter.local_count();
    return total;
}

std::int64_t ParameterTable::weight_count() const {
    std::int64_t total = 0;
    for (const Parameter& parameter : parameters_)
        if (parameter.role == Role::weight) total += parameter.shape.count();
    return total;
}

}  // namespace trireme
