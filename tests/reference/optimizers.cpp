#include "reference/optimizers.hpp"

#include <algorithm>
#include <cmath>

namespace trireme::reference {

double squares(const Values& x) {
    double sum = 0;
    for (const double value : x) sum += value * value;
    return sum;
}

void adam(const Adam& s, std::int64_t step, const Values& gradient, Values& weight, Values& m, Values& v,
          Values* v_max) {
    const double t = static_cast<double>(step);
    for (size_t i = 0; i < weight.size(); ++i) {
        double g = gradient[i];
        if (s.decoupled)
            weight[i] *= 1 - s.lr * s.weight_decay;
        else
            g += s.weight_decay * weight[i];
        m[i] = s.beta1 * m[i] + (1 - s.beta1) * g;
        v[i] = s.beta2 * v[i] + (1 - s.beta2) * g * g;
        double second = v[i];
        if (v_max != nullptr) second = (*v_max)[i] = std::max((*v_max)[i], v[i]);
        const double m_hat = m[i] / (1 - std::pow(s.beta1, t)), v_hat = second / (1 - std::pow(s.beta2, t));
        weight[i] -= s.lr * m_hat / (std::sqrt(v_hat) + s.eps);
    }
}

void sgd(const Sgd& s, const Values& gradient, Values& weight, Values& momentum) {
    for (size_t i = 0; i < weight.size(); ++i) {
        double g = gradient[i] + s.weight_decay * weight[i];
        if (s.momentum != 0) {
            momentum[i] = s.first ? g : s.momentum * momentum[i] + (1 - s.dampening) * g;
            g = s.nesterov ? g + s.momentum * momentum[i] : momentum[i];
        }
        weight[i] -= s.lr * g;
    }
}

void lion(const Lion& s, const Values& gradient, Values& weight, Values& m) {
    for (size_t i = 0; i < weight.size(); ++i) {
        const double c = s.beta1 * m[i] + (1 - s.beta1) * gradient[i];
        const double sign = c > 0 ? 1 : c < 0 ? -1 : 0;
        weight[i] -= s.lr * (sign + s.weight_decay * weight[i]);
        m[i] = s.beta2 * m[i] + (1 - s.beta2) * gradient[i];
    }
}

Values lamb_direction(const Lamb& s, std::int64_t step, const Values& gradient, const Values& weight,
                      Values& m, Values& v) {
    const double t = static_cast<double>(step);
    Values direction(weight.size());
    for (size_t i = 0; i < weight.size(); ++i) {
        m[i] = s.beta1 * m[i] + (1 - s.beta1) * gradient[i];
        v[i] = s.beta2 * v[i] + (1 - s.beta2) * gradient[i] * gradient[i];
        const double m_hat = m[i] / (1 - std::pow(s.beta1, t)), v_hat = v[i] / (1 - std::pow(s.beta2, t));
        direction[i] = m_hat / (std::sqrt(v_hat) + s.eps) + s.weight_decay * weight[i];
    }
    return direction;
}

void lamb(const Lamb& s, std::int64_t step, const Values& gradient, Values& weight, Values& m, Values& v) {
    const Values direction = lamb_direction(s, step, gradient, weight, m, v);
    const double of_weight = std::sqrt(squares(weight)), of_direction = std::sqrt(squares(direction));
    const double trust = s.layerwise && of_weight > 0 && of_direction > 0 ? of_weight / of_direction : 1;
    for (size_t i = 0; i < weight.size(); ++i) weight[i] -= s.lr * trust * direction[i];
}

void lars(const Lars& s, const Values& gradient, Values& weight, Values& momentum) {
    const double of_weight = std::sqrt(squares(weight)), of_gradient = std::sqrt(squares(gradient));
    const double local = s.layerwise && of_weight > 0 && of_gradient > 0
                             ? s.trust * of_weight / (of_gradient + s.weight_decay * of_weight)
                             : 1;
    for (size_t i = 0; i < weight.size(); ++i) {
        momentum[i] = s.momentum * momentum[i] + s.lr * local * (gradient[i] + s.weight_decay * weight[i]);
        weight[i] -= momentum[i];
    }
}

}  // namespace trireme::reference
