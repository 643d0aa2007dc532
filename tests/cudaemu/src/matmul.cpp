#include "matmul.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "device.hpp"
#include "sanitizer.hpp"

namespace trireme::cudaemu {
namespace {

constexpr int relu = CUBLASLT_EPILOGUE_RELU, bias = CUBLASLT_EPILOGUE_BIAS, gelu = CUBLASLT_EPILOGUE_GELU;
constexpr int drelu = 8, bgrad = 16, dgelu = 64, aux = 128;  // the bits that the enumerators are made of
constexpr int bgrad_a = CUBLASLT_EPILOGUE_BGRADA, bgrad_b = CUBLASLT_EPILOGUE_BGRADB;
constexpr int all_known[] = {
    CUBLASLT_EPILOGUE_DEFAULT,       CUBLASLT_EPILOGUE_RELU,          CUBLASLT_EPILOGUE_BIAS,
    CUBLASLT_EPILOGUE_RELU_BIAS,     CUBLASLT_EPILOGUE_GELU,          CUBLASLT_EPILOGUE_GELU_BIAS,
    CUBLASLT_EPILOGUE_GELU_AUX,      CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_RELU_AUX,
    CUBLASLT_EPILOGUE_RELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU,         CUBLASLT_EPILOGUE_DGELU_BGRAD,
    CUBLASLT_EPILOGUE_DRELU,         CUBLASLT_EPILOGUE_DRELU_BGRAD,   CUBLASLT_EPILOGUE_BGRADA,
    CUBLASLT_EPILOGUE_BGRADB};

constexpr float root = 0.7978845608f, cubic = 0.044715f;  // of the approximation by tanh

float gelu_of(float x) {
    return 0.5f * x * (1 + std::tanh(root * (x + cubic * x * x * x)));
}

float gelu_slope(float x) {
    const float t = std::tanh(root * (x + cubic * x * x * x));
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * root * (1 + 3 * cubic * x * x);
}

int epilogue_of(const Product& p) {
    return p.how.epilogue == CUBLASLT_EPILOGUE_DEFAULT ? 0 : static_cast<int>(p.how.epilogue);
}

bool uses_bias(int epilogue) {
    return (epilogue & (bias | bgrad | bgrad_a | bgrad_b)) != 0;
}

Matrix bias_of(const Product& p, std::int64_t batch) {
    const std::int64_t size = epilogue_of(p) == bgrad_b ? p.d.cols : p.d.rows;
    const auto type = p.how.bias_type < 0 ? p.d.type : static_cast<cudaDataType>(p.how.bias_type);
    Matrix m = vector(p.how.bias, type, size);
    m.stride = p.how.bias_stride;
    return m.of_batch(batch);
}

// Of a GELU: its argument, as a matrix of the result's shape.
Matrix aux_of(const Product& p, std::int64_t batch) {
    const auto type = p.how.aux_type < 0 ? p.d.type : static_cast<cudaDataType>(p.how.aux_type);
    return Matrix{p.how.aux, type, p.d.rows, p.d.cols, p.how.aux_ld, p.how.aux_stride}.of_batch(batch);
}

// Of a ReLU: a bit for each element that is kept; the leading dimension counts bits.
unsigned char* mask_of(const Product& p, std::int64_t batch) {
    return static_cast<unsigned char*>(p.how.aux) + batch * p.how.aux_stride / 8;
}

std::size_t aux_bytes(const Product& p) {
    const bool bits = (epilogue_of(p) & (relu | drelu)) != 0;
    if (!bits) return aux_of(p, 0).bytes();
    return p.d.cols == 0 ? 0
                         : static_cast<std::size_t>((p.d.cols - 1) * p.how.aux_ld / 8 + (p.d.rows + 7) / 8);
}

void add_bias(Dense& sum, const Dense& values) {
    for (std::int64_t j = 0; j < sum.cols; ++j) {
        for (std::int64_t i = 0; i < sum.rows; ++i) sum.at(i, j) += values.at(i, 0);
    }
}

// Column sums of m's rows.
Dense row_sums(const Dense& m) {
    Dense sums(m.rows, 1);
    for (std::int64_t j = 0; j < m.cols; ++j) {
        for (std::int64_t i = 0; i < m.rows; ++i) sums.at(i, 0) += m.at(i, j);
    }
    return sums;
}

// With the mask: keeps what is positive and notes it, or keeps what was.
void rectify(Dense& sum, unsigned char* mask, std::int64_t ld, bool backward) {
    for (std::int64_t j = 0; j < sum.cols; ++j) {
        for (std::int64_t i = 0; i < sum.rows; ++i) {
            float& v = sum.at(i, j);
            unsigned char* byte = mask != nullptr ? mask + (j * ld + i) / 8 : nullptr;
            const auto bit = static_cast<unsigned char>(1u << (i % 8));
            const bool keep = backward ? (*byte & bit) != 0 : v > 0 || std::isnan(v);
            if (!keep) v = 0;
            if (byte == nullptr || backward) continue;
            *byte = static_cast<unsigned char>(keep ? *byte | bit : *byte & ~bit);
        }
    }
}

void finish(const Product& p, std::int64_t batch, Dense& sum) {
    const int e = epilogue_of(p);
    if ((e & bias) != 0) add_bias(sum, bias_of(p, batch).read());
    if ((e & (relu | drelu)) != 0) {
        unsigned char* mask = (e & aux) != 0 ? mask_of(p, batch) : nullptr;
        if ((e & aux) != 0 && (e & drelu) != 0) san::reads(mask, aux_bytes(p));
        if ((e & aux) != 0 && (e & relu) != 0) san::writes(mask, aux_bytes(p));
        rectify(sum, mask, p.how.aux_ld, (e & drelu) != 0);
    }
    if ((e & gelu) != 0) {
        if ((e & aux) != 0) aux_of(p, batch).write(sum);
        for (float& v : sum.values) v = gelu_of(v);
    }
    if ((e & dgelu) != 0) {
        const Dense before = aux_of(p, batch).read();
        for (std::size_t i = 0; i < sum.values.size(); ++i) sum.values[i] *= gelu_slope(before.values[i]);
    }
    if ((e & bgrad) != 0) bias_of(p, batch).write(row_sums(sum));
}

bool aligned(const void* p, std::size_t to) {
    return to == 0 || reinterpret_cast<std::uintptr_t>(p) % to == 0;
}

bool inside_device(const Matrix& m, int device, std::int64_t batches) {
    if (m.bytes() == 0 || batches == 0) return true;
    return device_of(m.of_batch(0).data, m.bytes()) == device &&
           device_of(m.of_batch(batches - 1).data, m.bytes()) == device;
}

const char* shape_fault(const Product& p) {
    const bool ta = p.how.a != CUBLAS_OP_N, tb = p.how.b != CUBLAS_OP_N;
    const std::int64_t m = ta ? p.a.cols : p.a.rows, k = ta ? p.a.rows : p.a.cols;
    const std::int64_t n = tb ? p.b.rows : p.b.cols, l = tb ? p.b.cols : p.b.rows;
    for (const Matrix* x : {&p.a, &p.b, &p.c, &p.d}) {
        if (!x->well_formed())
            return "a layout has an unknown type, or a leading dimension that is too small";
    }
    if (m != p.d.rows || n != p.d.cols || k != l || p.c.rows != m || p.c.cols != n)
        return "the shapes do not fit";
    return nullptr;
}

const char* type_fault(const Product& p) {
    if (p.how.compute != CUBLAS_COMPUTE_32F && p.how.compute != CUBLAS_COMPUTE_32F_FAST_TF32) {
        return "only CUBLAS_COMPUTE_32F and CUBLAS_COMPUTE_32F_FAST_TF32 are emulated";
    }
    if (p.how.scale_type != CUDA_R_32F || p.how.pointer_mode != CUBLASLT_POINTER_MODE_HOST) {
        return "alpha and beta must be floats of the host";
    }
    if (p.a.type != p.b.type || p.c.type != p.d.type) return "A and B, or C and D, differ in type";
    if (p.d.type != p.a.type && p.d.type != CUDA_R_32F) return "the result is neither of A's type nor float";
    return nullptr;
}

const char* epilogue_fault(const Product& p, int device) {
    const int e = epilogue_of(p);
    if (std::ranges::find(all_known, static_cast<int>(p.how.epilogue)) == std::end(all_known)) {
        return "the epilogue is not emulated";
    }
    if (uses_bias(e)) {
        const Matrix first = bias_of(p, 0);
        if (first.type != p.d.type) return "the bias has another type than the result";
        if (!aligned(first.data, width(first.type))) return "the bias is not aligned";
        if (!inside_device(bias_of(p, 0), device, 1) ||
            !inside_device(bias_of(p, p.batches - 1), device, 1)) {
            return "the bias is not in the device's memory";
        }
    }
    if ((e & aux) != 0) {
        const bool bits = (e & (relu | drelu)) != 0;
        if (p.how.aux_ld < p.d.rows || p.how.aux_ld % (bits ? 128 : 8) != 0) {
            return "the auxiliary matrix has a bad leading dimension";
        }
        if (!aligned(p.how.aux, 16)) return "the auxiliary matrix is not aligned";
        if (device_of(p.how.aux, aux_bytes(p)) != device)
            return "the auxiliary matrix is not in the device's memory";
    }
    return nullptr;
}

}  // namespace

const char* fault(const Product& p, int device, const Alignments& alignment) {
    if (const char* f = type_fault(p); f != nullptr) return f;
    if (const char* f = shape_fault(p); f != nullptr) return f;
    const Matrix* operands[] = {&p.a, &p.b, &p.c, &p.d};
    for (std::size_t i = 0; i < 4; ++i) {
        const Matrix& m = *operands[i];
        if (i == 2 && p.beta == 0) continue;  // C is not looked at
        if (!aligned(m.data, width(m.type))) return "a matrix is not aligned to its elements";
        if (!aligned(m.data, alignment[i]))
            return "a matrix is less aligned than the algorithm was chosen for";
        if (!inside_device(m, device, p.batches)) return "a matrix is not in the device's memory";
    }
    if (p.beta != 0 && p.c.data == p.d.data && (p.c.ld != p.d.ld || p.c.by_rows != p.d.by_rows)) {
        return "C and D are one matrix in two layouts";
    }
    return epilogue_fault(p, device);
}

void run(const Product& p, std::int64_t batch) {
    Dense a = p.a.of_batch(batch).read(), b = p.b.of_batch(batch).read();
    if (p.how.a != CUBLAS_OP_N) a = a.transposed();
    if (p.how.b != CUBLAS_OP_N) b = b.transposed();
    if (epilogue_of(p) == bgrad_a) bias_of(p, batch).write(row_sums(a));
    if (epilogue_of(p) == bgrad_b) bias_of(p, batch).write(row_sums(b.transposed()));
    if (p.how.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && p.a.type == CUDA_R_32F) {
        round_to_tf32(a);
        round_to_tf32(b);
    }
    Dense sum(p.d.rows, p.d.cols);
    if (p.beta != 0) {
        sum = p.c.of_batch(batch).read();
        for (float& v : sum.values) v *= p.beta;
    }
    multiply(a, b, p.alpha, sum);
    finish(p, batch, sum);
    p.d.of_batch(batch).write(sum);
}

}  // namespace trireme::cudaemu
