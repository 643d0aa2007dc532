// The operations of the meta device: none has anything to work on.
#include "ops/backends.hpp"

namespace trireme {
namespace {

class MetaOps final : public Ops {
public:
    std::string description() const override { return "none"; }
    bool native(DType) const override { return true; }

    void matmul(const Matmul&) override {}
    void sum_rows(View, View, bool) override {}
    void activation_forward(Activation, View, View) override {}
    void activation_backward(Activation, View, View, View, View) override {}
    void conv_forward(const Window&, View, View, View, Activation, View) override {}
    void conv_backward_data(const Window&, View, View, View) override {}
    void conv_backward_weights(const Window&, View, View, View, bool) override {}
    void pool_forward(Pool, const Window&, View, View, View) override {}
    void pool_backward(Pool, const Window&, View, View, View) override {}
    void batchnorm_forward(const BatchNorm&, View, View, float, bool) override {}
    void batchnorm_apply(const BatchNorm&, View, View) override {}
    void batchnorm_backward(const BatchNorm&, View, View, View, View, bool) override {}
    void layernorm_forward(const LayerNorm&) override {}
    void layernorm_backward(const LayerNorm&, View, View, View, View, bool) override {}
    void rmsnorm_forward(const RmsNorm&) override {}
    void rmsnorm_backward(const RmsNorm&, View, View, View, bool) override {}
    void embedding_forward(View, View, std::int64_t, View) override {}
    void embedding_backward(View, View, std::int64_t, View, bool) override {}
    void add_row(View, View, View) override {}
    void attention_forward(const Attention&) override {}
    void attention_backward(const Attention&, View, View, View, View) override {}
    void rotate(View, std::int64_t, float, bool, View) override {}
    void gate_forward(View, View, View) override {}
    void gate_backward(View, View, View, View, View) override {}
    void dropout(const RandomStream&, std::int64_t, std::int64_t, float, View, View) override {}
    void cross_entropy(const CrossEntropy&) override {}
    void split_cross_entropy_maximum(const SplitCrossEntropy&) override {}
    void split_cross_entropy_sums(const SplitCrossEntropy&) override {}
    void split_cross_entropy_finish(const SplitCrossEntropy&) override {}
    void mean_squared_error(const Regression&) override {}
    void binary_cross_entropy(const Regression&) override {}
    void add_scaled(View, float, View) override {}
    void add(View, View, Activation, View) override {}
    void fill(View, float) override {}
    void copy(View, View) override {}
    void take_columns(View, std::int64_t, View) override {}
    void put_columns(View, std::int64_t, View) override {}
    void to_channels_first(View, View) override {}
    void to_channels_last(View, View) override {}
    void fill_normal(const RandomStream&, std::int64_t, float, float, View) override {}
    void fill_uniform(const RandomStream&, std::int64_t, float, float, View) override {}
    using Ops::sum_squares;
    void sum_squares(View, double*, float) override {}
    void adam_update(const AdamUpdate&, double*) override {}
    void sgd_update(const SgdUpdate&, double*) override {}
    void lion_update(const LionUpdate&, double*) override {}
    void lamb_moments(const LambUpdate&, double*) override {}
    void lamb_update(const LambUpdate&, double*) override {}
    void running_average(View, View, float) override {}
};

}  // namespace

std::unique_ptr<Ops> make_meta_ops() {
    return std::make_unique<MetaOps>();
}

}  // namespace trireme
