// The extents of a tensor, outermost first. At most six, kept in place: a shape never allocates.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace trireme {

class Shape {
public:
    static constexpr int max_rank = 6;

    Shape() = default;
    Shape(std::initializer_list<std::int64_t> dims);

    int rank() const { return rank_; }
    std::int64_t operator[](int axis) const { return dims_[static_cast<std::size_t>(axis)]; }
    std::int64_t& operator[](int axis) { return dims_[static_cast<std::size_t>(axis)]; }
    /// Number of elements; 1 for a scalar (rank 0).
    std::int64_t count() const;
    /// @throws Error when there would be more than max_rank extents.
    void push_back(std::int64_t dim);

    /// This shape with `outer` as a new outermost extent: a batch of samples of this shape.
    Shape batched(std::int64_t outer) const;
    /// This shape without its outermost extent.
    Shape inner() const;

    /// "32x1x28x28"; "scalar" for rank 0.
    std::string text() const;

    const std::int64_t* begin() const { return dims_.data(); }
    const std::int64_t* end() const { return dims_.data() + rank_; }
    friend bool operator==(const Shape& a, const Shape& b);

private:
    std::array<std::int64_t, max_rank> dims_{};
    int rank_ = 0;
};

}  // namespace trireme
