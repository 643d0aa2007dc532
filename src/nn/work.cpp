#include <numeric>

#include "trireme/nn/layer.hpp"

namespace trireme {
namespace {

template <class Pass>
double sum_of(const std::vector<Pass>& passes) {
    return std::accumulate(passes.begin(), passes.end(), 0.0,
                           [](double sum, const Pass& pass) { return sum + pass.flops(); });
}

}  // namespace

double Work::Gemm::flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

double Work::Conv::flops() const {
    const Window& w = window;
    const std::int64_t products =
        w.n * w.out * w.out_h() * w.out_w() * (w.c / w.groups) * w.kernel_h * w.kernel_w;
    return 2.0 * static_cast<double>(products);
}

/// Two products of all scores forward; backward makes the scores again and has four gradients.
double Work::AttentionPass::flops() const {
    const double scores = static_cast<double>(shape.n * shape.heads) * static_cast<double>(shape.t) *
                          static_cast<double>(shape.t) * (shape.causal ? 0.5 : 1.0);
    return (backward ? 5.0 : 2.0) * 2.0 * scores * static_cast<double>(shape.d);
}

double Work::flops() const {
    return sum_of(gemms) + sum_of(convs) + sum_of(attentions);
}

}  // namespace trireme
