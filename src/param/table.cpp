#include "trireme/param/table.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {
constexpr std::int64_t alignment =
    16;  // elements: 64 bytes of float32, one cache line, four 16-byte accesses
}

ParameterId ParameterTable::add(Parameter parameter) {
    const bool taken = std::any_of(parameters_.begin(), parameters_.end(),
                                   [&](const Parameter& other) { return other.name == parameter.name; });
    if (taken)
        throw usage_error("two parameters are called " + parameter.name +
                          ": give the layers different names");
    if (parameter.part.empty()) parameter.part = {0, parameter.shape.count()};
    parameters_.push_back(std::move(parameter));
    return count() - 1;
}

void ParameterTable::lay_out() {
    std::int64_t offset = 0;
    for (auto parameter = parameters_.rbegin(); parameter != parameters_.rend(); ++parameter) {
        parameter->place = {offset, offset + parameter->part.size()};
        offset = round_up(parameter->place.end, alignment);
    }
    arena_size_ = offset;
}

std::int64_t ParameterTable::weight_count() const {
    std::int64_t total = 0;
    for (const Parameter& parameter : parameters_)
        if (parameter.role == Role::weight) total += parameter.part.size();
    return total;
}

}  // namespace trireme
