#pragma once
// Optimizers as their papers state them, on one whole parameter in doubles. The oracle of the tests; no part
// of the program. Gradients come unscaled.

#include <cstdint>

#include "reference/reference.hpp"

namespace trireme::reference {

/// Σ x².
double squares(const Values& x);

/// Adam: Kingma and Ba 2015, algorithm 1, with the decay added to the gradient. Decoupled: AdamW, Loshchilov
/// and Hutter 2019, algorithm 2. v_max, where given: AMSGrad, Reddi, Kale and Kumar 2018, algorithm 2, with
/// the bias corrections of PyTorch.
struct Adam {
    double lr, beta1, beta2, eps, weight_decay;
    bool decoupled;
};
void adam(const Adam& settings, std::int64_t step, const Values& gradient, Values& weight, Values& m,
          Values& v, Values* v_max = nullptr);

/// Polyak 1964; Nesterov's form as in Sutskever et al. 2013; dampening and first step as PyTorch documents
/// them.
struct Sgd {
    double lr, momentum, dampening, weight_decay;
    bool nesterov, first;
};
void sgd(const Sgd& settings, const Values& gradient, Values& weight, Values& momentum);

/// Chen et al. 2023, algorithm 2.
struct Lion {
    double lr, beta1, beta2, weight_decay;
};
void lion(const Lion& settings, const Values& gradient, Values& weight, Values& m);

/// You et al. 2020, algorithm 2, φ the identity. Returns its r + λx, the direction before the trust ratio.
struct Lamb {
    double lr, beta1, beta2, eps, weight_decay;
    bool layerwise;  ///< the trust ratio is |w| / |direction|, otherwise 1
};
Values lamb_direction(const Lamb& settings, std::int64_t step, const Values& gradient, const Values& weight,
                      Values& m, Values& v);
void lamb(const Lamb& settings, std::int64_t step, const Values& gradient, Values& weight, Values& m,
          Values& v);

/// You, Gitman and Ginsburg 2017, algorithm 1.
struct Lars {
    double lr, momentum, trust, weight_decay;
    bool layerwise;  ///< otherwise the local rate is 1
};
void lars(const Lars& settings, const Values& gradient, Values& weight, Values& momentum);

}  // namespace trireme::reference
