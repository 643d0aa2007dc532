// The verbs of the CPU: oneDNN for matmul, convolution and the costly activations, OpenMP loops for the rest.
// Sources are grouped by verb; this header is private to them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "ops/cpu/plan.hpp"
#include "ops/cpu/scratch.hpp"
#include "ops/cpu/wide.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme::cpu {

enum class Verb : std::int64_t {
    matmul,
    conv_forward,
    conv_backward_data,
    conv_backward_weights,
    eltwise,
    eltwise_backward
};

/// What a cached plan was made for. Element-wise plans keep their element count in window.n, matmuls their m,
/// k and n in window.n, window.c and window.out.
struct PlanKey {
    Verb verb{};
    Window window;
    Activation activation = Activation::none;
    bool bias = false;
    bool accumulate = false;
    bool transpose_a = false, transpose_b = false;
    DType operands = DType::f32, result = DType::f32;
    friend bool operator==(const PlanKey&, const PlanKey&) = default;
};

struct PlanKeyHash {
    std::size_t operator()(const PlanKey& key) const;
};

/// How bfloat16 is multiplied: by the library's primitives for it, or as float16 always is, converted to
/// float32.
enum class Bf16Products { primitives, float32 };

class CpuOps final : public Ops {
public:
    explicit CpuOps(int threads) : CpuOps(threads, fastest_bf16_products()) {}
    CpuOps(int threads, Bf16Products bf16) : threads_(threads < 1 ? 1 : threads), bf16_(bf16) {}

    /// What this processor is faster with.
    static Bf16Products fastest_bf16_products();

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

    void rmsnorm_forward(const RmsNorm& args) override;
    void rmsnorm_backward(const RmsNorm& args, View dy, View dx, View d_gamma, bool accumulate) override;

    void embedding_forward(View ids, View table, std::int64_t first, View y) override;
    void embedding_backward(View ids, View dy, std::int64_t first, View d_table, bool accumulate) override;
    void add_row(View x, View row, View y) override;

    void attention_forward(const Attention& args) override;
    void attention_backward(const Attention& args, View dy, View dq, View dk, View dv) override;
    void rotate(View x, std::int64_t first, float base, bool back, View y) override;
    void gate_forward(View a, View b, View y) override;
    void gate_backward(View a, View b, View dy, View da, View db) override;

    void dropout(const RandomStream& stream, std::int64_t first, std::int64_t stride, float p, View x,
                 View y) override;

    void cross_entropy(const CrossEntropy& args) override;
    void split_cross_entropy_maximum(const SplitCrossEntropy& args) override;
    void split_cross_entropy_sums(const SplitCrossEntropy& args) override;
    void split_cross_entropy_finish(const SplitCrossEntropy& args) override;
    void mean_squared_error(const Regression& args) override;
    void binary_cross_entropy(const Regression& args) override;

    void add_scaled(View x, float a, View y) override;
    void add(View a, View b, Activation activation, View y) override;
    void fill(View y, float value) override;
    void copy(View x, View y) override;
    void take_columns(View x, std::int64_t first, View y) override;
    void put_columns(View x, std::int64_t first, View y) override;
    void to_channels_first(View x, View y) override;
    void to_channels_last(View x, View y) override;

    void fill_normal(const RandomStream& stream, std::int64_t first, float mean, float std, View y) override;
    void fill_uniform(const RandomStream& stream, std::int64_t first, float low, float high, View y) override;

    using Ops::sum_squares;
    void sum_squares(View x, double* sum, float limit) override;
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
    /// The cached plan of bfloat16 primitives for `key`; null where float32 is to be used instead: for other
    /// types, by choice, or because the library has no code of its own for the processor.
    template <class Build>
    Plan* bf16_plan(const PlanKey& key, const Build& build);
    /// Tells the library how many threads the calling thread's calls may use.
    void set_library_threads() const;

    /// C (+)= act(op(A)·op(B) + bias) in float32; m, n, k and the rest as `key` says.
    void multiply_floats(const PlanKey& key, const float* a, const float* b, float* c, const float* bias);
    /// result = left ∗ right, as `key` says, by the plan that `build` makes: its slots are left, right,
    /// result and bias.
    void convolve(PlanKey key, Plan (*build)(const OneDnn&, const PlanKey&), Wide left, Wide right,
                  Wide result, float* bias);
    /// act over n elements in place or not, through the library.
    void eltwise(Activation kind, std::int64_t n, float* x, float* y);
    void eltwise_backward(Activation kind, std::int64_t n, float* x, float* dy, float* dx);
    /// The same for elements of any real type.
    void eltwise(Activation kind, std::int64_t n, const Reals& x, const Reals& y);
    void eltwise_backward(Activation kind, std::int64_t n, const Reals& x, const Reals& dy, const Reals& dx);

    int threads_;
    Bf16Products bf16_;
    OneDnn library_;
    std::unordered_map<PlanKey, Plan, PlanKeyHash> plans_;
    Scratch plan_scratch_;  ///< for the library's primitives
    Scratch scratch_;       ///< for partial sums of our own loops; holds nothing between verbs
    Scratch lane_scratch_;  ///< for what is needed beside the former: per-channel factors, buffers of threads
    Scratch wide_scratch_;  ///< for 16-bit tensors as float32, beside a plan's scratch
};

template <class Build>
Plan& CpuOps::plan(const PlanKey& key, const char* what, const Build& build) {
    set_library_threads();
    const auto found = plans_.find(key);
    if (found != plans_.end()) return found->second;
    return plans_.emplace(key, make_plan(what, build)).first->second;
}

template <class Build>
Plan* CpuOps::bf16_plan(const PlanKey& key, const Build& build) {
    if (key.operands != DType::bf16 || bf16_ == Bf16Products::float32) return nullptr;
    Plan& found = plan(key, "product of bfloat16", [&]() -> Plan {
        try {
            return build();
        } catch (const dnnl::error&) {
            return {};  // cached as well, so that the library is asked once
        }
    });
    return found.empty() ? nullptr : &found;
}

}  // namespace trireme::cpu
