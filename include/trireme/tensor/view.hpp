// A non-owning tensor: where the elements lie, their type and extents. Elements are contiguous, outermost
// first; activations with two spatial extents are kept channels-last (see ops.hpp).
#pragma once

#include <cassert>
#include <cstdint>
#include <span>

#include "trireme/tensor/dtype.hpp"
#include "trireme/tensor/shape.hpp"

namespace trireme {

struct View {
    void* data = nullptr;
    DType dtype = DType::f32;
    Shape shape;

    std::int64_t count() const { return shape.count(); }
    std::size_t bytes() const { return static_cast<std::size_t>(count()) * size_of(dtype); }
    explicit operator bool() const { return data != nullptr; }

    template <class T>
    T* as() const {
        assert(dtype == dtype_of<T>);
        return static_cast<T*>(data);
    }
    template <class T>
    std::span<T> span() const {
        return {as<T>(), static_cast<std::size_t>(count())};
    }
};

template <class T>
View view_of(T* data, Shape shape) {
    return {data, dtype_of<T>, shape};
}

}  // namespace trireme
