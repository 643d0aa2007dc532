// The verbs of a GPU: cuBLASLt for products, kernels of our own for the rest. Everything goes to the device's
// one stream, and only verbs that tell the host something wait for it. Sources are grouped by verb; this
// header is private to them.
#pragma once

#include "ops/cuda/checks.hpp"
#include "ops/cuda/gemm.hpp"
#include "ops/cuda/scalars.hpp"
#include "ops/cuda/scratch.hpp"
#include "tensor/cuda/device.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme::cuda {

class CudaOps final : public Ops {
public:
    explicit CudaOps(CudaDevice& device);

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
    /// y = act(sums + bias) for rows of `columns` elements; sums may be y where that is float32, or of y's
    /// type where there is neither bias nor an activation that rounds.
    void finish_product(Real sums, const float* bias, Activation activation, std::int64_t count,
                        std::int64_t columns, Real y);
    /// Sets n float32 to zero.
    void zero(float* data, std::int64_t n);

    CudaDevice& device_;
    Gemm gemm_;
    Scalars scalars_;
    Scratch scratch_;         ///< parts of sums
    Scratch wide_scratch_;    ///< results of products before they are rounded
    Scratch patch_scratch_;   ///< the patches of a convolution
    Scratch kernel_scratch_;  ///< its kernels in the patches' order
};

}  // namespace trireme::cuda
