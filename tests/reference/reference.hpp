#pragma once
// What the operations mean, in naive loops over doubles. The oracle of the tests; no part of the program.
// Layouts are those of the contract: images channels-last, kernels [O, C/groups, KH, KW].

#include <cstdint>
#include <vector>

#include "trireme/base/philox.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme::reference {

using Values = std::vector<double>;

double activate(Activation kind, double x);
double derivative(Activation kind, double x);
Values activate(Activation kind, const Values& x);

/// op(A) op(B) + bias; bias may be empty.
Values matmul(const Values& a, const Values& b, const Values& bias, std::int64_t m, std::int64_t n,
              std::int64_t k, bool transpose_a, bool transpose_b);
Values sum_rows(const Values& x, std::int64_t columns);

/// bias may be empty.
Values conv(const Window& window, const Values& x, const Values& kernel, const Values& bias);
Values conv_backward_data(const Window& window, const Values& dy, const Values& kernel);
Values conv_backward_weights(const Window& window, const Values& x, const Values& dy);

struct Pooled {
    Values y;
    std::vector<std::int32_t> index;  ///< max: h·W + w of the first largest
};
Pooled pool(Pool kind, const Window& window, const Values& x);
Values pool_backward(Pool kind, const Window& window, const Values& dy,
                     const std::vector<std::int32_t>& index);

struct Normalized {
    Values y, mean, variance;  ///< variance biased
};
Normalized batchnorm(const Values& x, const Values& gamma, const Values& beta, double eps);
Normalized layernorm(const Values& x, const Values& gamma, const Values& beta, double eps);

struct Loss {
    double loss = 0, count = 0, correct = 0;
    Values gradient;
};
Loss cross_entropy(const Values& logits, const std::vector<std::int32_t>& labels, double smoothing,
                   std::int32_t ignored, double scale);
Loss squared_error(const Values& x, const Values& target, std::int64_t outputs, double scale);
Loss binary_cross_entropy(const Values& x, const Values& target, std::int64_t outputs, double scale);

Values dropout(const RandomStream& stream, std::int64_t first, float p, const Values& x);

}  // namespace trireme::reference
