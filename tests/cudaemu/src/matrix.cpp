#include "matrix.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "sanitizer.hpp"

namespace trireme::cudaemu {
namespace {

// Calls f with a null pointer to the C++ type.
template <class F>
bool with_type(cudaDataType type, F f) {
    switch (type) {
        case CUDA_R_32F:
            return f(static_cast<float*>(nullptr)), true;
        case CUDA_R_16BF:
            return f(static_cast<__nv_bfloat16*>(nullptr)), true;
        case CUDA_R_16F:
            return f(static_cast<__half*>(nullptr)), true;
        default:
            return false;
    }
}

// Calls f(element of the matrix, element of the dense one) for all.
template <class T, class D, class F>
void for_each(const Matrix& m, T* data, D& dense, F f) {
    for (std::int64_t c = 0; c < m.cols; ++c) {
        for (std::int64_t r = 0; r < m.rows; ++r) {
            f(data[m.by_rows ? r * m.ld + c : c * m.ld + r],
              dense.values[static_cast<std::size_t>(c * m.rows + r)]);
        }
    }
}

}  // namespace

std::size_t width(cudaDataType type) {
    std::size_t bytes = 0;
    with_type(type, [&]<class T>(T*) { bytes = sizeof(T); });
    return bytes;
}

Dense Dense::transposed() const {
    Dense t(cols, rows);
    for (std::int64_t c = 0; c < cols; ++c) {
        for (std::int64_t r = 0; r < rows; ++r) t.at(c, r) = at(r, c);
    }
    return t;
}

std::size_t Matrix::bytes() const {
    if (rows == 0 || cols == 0) return 0;
    const std::int64_t elements = by_rows ? (rows - 1) * ld + cols : (cols - 1) * ld + rows;
    return static_cast<std::size_t>(elements) * width(type);
}

Matrix Matrix::of_batch(std::int64_t i) const {
    Matrix m = *this;
    m.data = static_cast<std::byte*>(data) + i * stride * static_cast<std::int64_t>(width(type));
    return m;
}

Dense Matrix::read() const {
    Dense dense(rows, cols);
    san::reads(data, bytes());
    with_type(type, [&]<class T>(T*) {
        for_each(*this, static_cast<const T*>(data), dense,
                 [](const T& from, float& to) { to = static_cast<float>(from); });
    });
    return dense;
}

void Matrix::write(const Dense& dense) const {
    san::writes(data, bytes());
    with_type(type, [&]<class T>(T*) {
        for_each(*this, static_cast<T*>(data), dense, [](T& to, const float& from) { to = T(from); });
    });
}

Matrix vector(const void* data, cudaDataType type, std::int64_t size) {
    return {const_cast<void*>(data), type, size, 1, std::max<std::int64_t>(size, 1)};
}

void multiply(const Dense& a, const Dense& b, float alpha, Dense& sum) {
    std::vector<float> column(static_cast<std::size_t>(a.rows));
    for (std::int64_t j = 0; j < b.cols; ++j) {
        std::ranges::fill(column, 0.0f);
        for (std::int64_t k = 0; k < a.cols; ++k) {
            const float factor = b.at(k, j);
            const float* from = a.values.data() + k * a.rows;
            for (std::int64_t i = 0; i < a.rows; ++i) column[static_cast<std::size_t>(i)] += from[i] * factor;
        }
        for (std::int64_t i = 0; i < a.rows; ++i) sum.at(i, j) += alpha * column[static_cast<std::size_t>(i)];
    }
}

// To nearest, ties away from zero: 10 bits are kept.
void round_to_tf32(Dense& m) {
    for (float& v : m.values) {
        if (std::isfinite(v)) v = std::bit_cast<float>((std::bit_cast<unsigned>(v) + 0x1000u) & ~0x1fffu);
    }
}

}  // namespace trireme::cudaemu
