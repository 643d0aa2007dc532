// Matrices as cuBLASLt describes them, and products of them in single precision, whatever the format in
// memory.
#pragma once

#include <library_types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::cudaemu {

std::size_t width(cudaDataType);  // 0 for types that are not emulated

// Packed by columns.
struct Dense {
    std::int64_t rows, cols;
    std::vector<float> values;  // [cols, rows]

    Dense(std::int64_t rows_, std::int64_t cols_)
        : rows(rows_), cols(cols_), values(static_cast<std::size_t>(rows_ * cols_)) {}
    float& at(std::int64_t r, std::int64_t c) { return values[static_cast<std::size_t>(c * rows + r)]; }
    float at(std::int64_t r, std::int64_t c) const { return values[static_cast<std::size_t>(c * rows + r)]; }
    Dense transposed() const;
};

struct Matrix {
    void* data = nullptr;
    cudaDataType type = CUDA_R_32F;
    std::int64_t rows = 0, cols = 0, ld = 0;
    std::int64_t stride = 0;  // elements from one of a batch to the next
    bool by_rows = false;

    bool well_formed() const {
        return rows >= 0 && cols >= 0 && ld >= (by_rows ? cols : rows) && width(type) != 0;
    }
    std::size_t bytes() const;  // from the first element to the last
    Matrix of_batch(std::int64_t i) const;

    Dense read() const;
    void write(const Dense&) const;
};

Matrix vector(const void* data, cudaDataType type, std::int64_t size);

// sum + alpha a b, added up in float, in the order of the inner index.
void multiply(const Dense& a, const Dense& b, float alpha, Dense& sum);

void round_to_tf32(Dense&);

}  // namespace trireme::cudaemu
