// The verbs of the CPU: oneDNN for matmul, convolution and the costly activations, OpenMP loops for the rest.
// float32 only. Sources are grouped by verb; this header is private to them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "ops/cpu/plan.hpp"
#include "ops/cpu/scratch.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme::cpu {

enum class Verb : std::int64_t {
    conv_forward,
    conv_backward_data,
    conv_backward_weights,
    eltwise,
    eltwise_backward
};

/// What a cached plan was made for. Element-wise plans keep their element count in window.n.
struct PlanKey {
    Verb verb{};
    Window window;
    Activation activation = Activation::none;
    bool bias = false;
    bool accumulate = false;
    friend bool operator==(const PlanKey&, const PlanKey&) = default;
};

struct PlanKeyHash {
    std::size_t operator()(const PlanKey& key) const;
};

class CpuOps final : public Ops {
public:
    explicit CpuOps(int threads) : threads_(threads < 1 ? 1 : threads) {}

    std::string description() const override;
    bool native(DType type) const override;

    void matmul(const Matmul& args) override;
    void sum_rows(View x, View sum, bool accumulate) override;

    void activation_forward(Activation kind, View x, View y) override;
    void activation_backward(Activation kind, View x, View y, View dy, View dx) override;

    void conv_forward(const Window& window, View x, View kernel, View bias, Activation activation,
                      View y) override;
    void conv_backward_data(const Window& window, View dy, View kernel, View dx) override;
    void conv_backward_weights(const Window& window, View x, View dy, View d_kernel,
                               bool accumulate) override;

    void pool_forward(Pool kind, const Window& window, View x, View y, View index) override;
    void pool_backward(Pool kind, const Window& window, View dy, View index, View dx) override;

    void batchnorm_forward(const BatchNorm& args, View running_mean, View running_var, float share,
                           bool accumulate) override;
    void batchnorm_apply(const BatchNorm& args, View mean, View var) override;
    void batchnorm_backward(const BatchNorm& args, View dy, View dx, View d_gamma, View d_beta,
                            bool accumulate) override;
    void layernorm_forward(const LayerNorm& args) override;
    void layernorm_backward(const LayerNorm& args, View dy, View dx, View d_gamma, View d_beta,
                            bool accumulate) override;

    void dropout(const RandomStream& stream, std::int64_t first, float p, View x, View y) override;

    void cross_entropy(const CrossEntropy& args) override;
    void mean_squared_error(const Regression& args) override;
    void binary_cross_entropy(const Regression& args) override;

    void add_scaled(View x, float a, View y) override;
    void add(View a, View b, Activation activation, View y) override;
    void fill(View y, float value) override;
    void copy(View x, View y) override;
    void to_channels_first(View x, View y) override;
    void to_channels_last(View x, View y) override;

    void fill_normal(const RandomStream& stream, std::int64_t first, float mean, float std, View y) override;
    void fill_uniform(const RandomStream& stream, std::int64_t first, float low, float high, View y) override;

    void sum_squares(View x, double* sum) override;
    void adam_update(const AdamUpdate& args, double* norm_squared) override;
    void sgd_update(const SgdUpdate& args, double* norm_squared) override;
    void lion_update(const LionUpdate& args, double* norm_squared) override;
    void lamb_moments(const LambUpdate& args, double* norms) override;
    void lamb_update(const LambUpdate& args, double* norm_squared) override;
    void running_average(View average, View value, float momentum) override;

private:
    /// The cached plan for `key`, built where there is none yet.
    template <class Build>
    Plan& plan(const PlanKey& key, const char* what, const Build& build);
    void run(Plan& plan, std::initializer_list<void*> pointers);
    /// Tells the library how many threads the calling thread's calls may use.
    void set_library_threads() const;

    /// act over n elements in place or not, through the library.
    void eltwise(Activation kind, std::int64_t n, float* x, float* y);
    void eltwise_backward(Activation kind, std::int64_t n, float* x, float* dy, float* dx);

    int threads_;
    OneDnn library_;
    std::unordered_map<PlanKey, Plan, PlanKeyHash> plans_;
    Scratch plan_scratch_;  ///< for the library's primitives
    Scratch scratch_;       ///< for partial sums of our own loops; holds nothing between verbs
    Scratch lane_scratch_;  ///< for what is needed beside the former: per-channel factors, buffers of threads
};

template <class Build>
Plan& CpuOps::plan(const PlanKey& key, const char* what, const Build& build) {
    set_library_threads();
    const auto found = plans_.find(key);
    if (found != plans_.end()) return found->second;
    return plans_.emplace(key, make_plan(what, build)).first->second;
}

}  // namespace trireme::cpu
