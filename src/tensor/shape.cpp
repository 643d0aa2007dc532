#include "trireme/tensor/shape.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"

namespace trireme {

Shape::Shape(std::initializer_list<std::int64_t> dims) {
    for (const std::int64_t dim : dims) push_back(dim);
}

std::int64_t Shape::count() const {
    std::int64_t product = 1;
    for (const std::int64_t dim : *this) product *= dim;
    return product;
}

void Shape::push_back(std::int64_t dim) {
    if (rank_ == max_rank) throw failure("a tensor of more than 6 dimensions");
    dims_[static_cast<std::size_t>(rank_++)] = dim;
}

Shape Shape::batched(std::int64_t outer) const {
    Shape result{outer};
    for (const std::int64_t dim : *this) result.push_back(dim);
    return result;
}

Shape Shape::inner() const {
    Shape result;
    for (int axis = 1; axis < rank_; ++axis) result.push_back((*this)[axis]);
    return result;
}

std::string Shape::text() const {
    if (rank_ == 0) return "scalar";
    std::string result;
    for (const std::int64_t dim : *this) result += (result.empty() ? "" : "x") + std::to_string(dim);
    return result;
}

bool operator==(const Shape& a, const Shape& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

}  // namespace trireme
