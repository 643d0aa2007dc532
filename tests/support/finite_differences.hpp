#pragma once
// Gradients of the oracle by central finite differences, in double.

#include <functional>

#include "support/tensors.hpp"

namespace trireme::testing {

/// dL/dx_i = (L(x + h e_i) - L(x - h e_i)) / 2h.
inline Values finite_differences(Values x, const std::function<double(const Values&)>& loss) {
    constexpr double h = 1e-5;
    Values gradient(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double at = x[i];
        x[i] = at + h;
        const double above = loss(x);
        x[i] = at - h;
        gradient[i] = (above - loss(x)) / (2 * h);
        x[i] = at;
    }
    return gradient;
}

inline double inner_product(const Values& a, const Values& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

}  // namespace trireme::testing
