#include "trireme/ops/timed_ops.hpp"

#include <utility>

#include "trireme/base/clock.hpp"

namespace trireme {
namespace {

class TimedOps final : public Ops {
public:
    TimedOps(std::unique_ptr<Ops> ops, OpTimes& times) : ops_(std::move(ops)), times_(times) {}

    std::string description() const override { return ops_->description(); }
    bool native(DType type) const override { return ops_->native(type); }

    void matmul(const Matmul& args) override {
        const Timer timer(times_.products);
        ops_->matmul(args);
    }
    void sum_rows(View x, View sum, bool accumulate) override {
        const Timer timer(times_.others);
        ops_->sum_rows(x, sum, accumulate);
    }
    void activation_forward(Activation kind, View x, View y) override {
        const Timer timer(times_.others);
        ops_->activation_forward(kind, x, y);
    }
    void activation_backward(Activation kind, View x, View y, View dy, View dx) override {
        const Timer timer(times_.others);
        ops_->activation_backward(kind, x, y, dy, dx);
    }
    void conv_forward(const Window& window, View x, View kernel, View bias, Activation activation,
                      View y) override {
        const Timer timer(times_.products);
        ops_->conv_forward(window, x, kernel, bias, activation, y);
    }
    void conv_backward_data(const Window& window, View dy, View kernel, View dx) override {
        const Timer timer(times_.products);
        ops_->conv_backward_data(window, dy, kernel, dx);
    }
    void conv_backward_weights(const Window& window, View x, View dy, View d_kernel,
                               bool accumulate) override {
        const Timer timer(times_.products);
        ops_->conv_backward_weights(window, x, dy, d_kernel, accumulate);
    }
    void pool_forward(Pool kind, const Window& window, View x, View y, View index) override {
        const Timer timer(times_.others);
        ops_->pool_forward(kind, window, x, y, index);
    }
    void pool_backward(Pool kind, const Window& window, View dy, View index, View dx) override {
        const Timer timer(times_.others);
        ops_->pool_backward(kind, window, dy, index, dx);
    }
    void batchnorm_forward(const BatchNorm& args, View running_mean, View running_var, float share,
                           bool accumulate) override {
        const Timer timer(times_.others);
        ops_->batchnorm_forward(args, running_mean, running_var, share, accumulate);
    }
    void batchnorm_apply(const BatchNorm& args, View mean, View var) override {
        const Timer timer(times_.others);
        ops_->batchnorm_apply(args, mean, var);
    }
    void batchnorm_backward(const BatchNorm& args, View dy, View dx, View d_gamma, View d_beta,
                            bool accumulate) override {
        const Timer timer(times_.others);
        ops_->batchnorm_backward(args, dy, dx, d_gamma, d_beta, accumulate);
    }
    void layernorm_forward(const LayerNorm& args) override {
        const Timer timer(times_.others);
        ops_->layernorm_forward(args);
    }
    void layernorm_backward(const LayerNorm& args, View dy, View dx, View d_gamma, View d_beta,
                            bool accumulate) override {
        const Timer timer(times_.others);
        ops_->layernorm_backward(args, dy, dx, d_gamma, d_beta, accumulate);
    }
    void rmsnorm_forward(const RmsNorm& args) override {
        const Timer timer(times_.others);
        ops_->rmsnorm_forward(args);
    }
    void rmsnorm_backward(const RmsNorm& args, View dy, View dx, View d_gamma, bool accumulate) override {
        const Timer timer(times_.others);
        ops_->rmsnorm_backward(args, dy, dx, d_gamma, accumulate);
    }
    void embedding_forward(View ids, View table, std::int64_t first, View y) override {
        const Timer timer(times_.others);
        ops_->embedding_forward(ids, table, first, y);
    }
    void embedding_backward(View ids, View dy, std::int64_t first, View d_table, bool accumulate) override {
        const Timer timer(times_.others);
        ops_->embedding_backward(ids, dy, first, d_table, accumulate);
    }
    void add_row(View x, View row, View y) override {
        const Timer timer(times_.others);
        ops_->add_row(x, row, y);
    }
    void attention_forward(const Attention& args) override {
        const Timer timer(times_.products);
        ops_->attention_forward(args);
    }
    void attention_backward(const Attention& args, View dy, View dq, View dk, View dv) override {
        const Timer timer(times_.products);
        ops_->attention_backward(args, dy, dq, dk, dv);
    }
    void rotate(View x, std::int64_t first, float base, bool back, View y) override {
        const Timer timer(times_.others);
        ops_->rotate(x, first, base, back, y);
    }
    void gate_forward(View a, View b, View y) override {
        const Timer timer(times_.others);
        ops_->gate_forward(a, b, y);
    }
    void gate_backward(View a, View b, View dy, View da, View db) override {
        const Timer timer(times_.others);
        ops_->gate_backward(a, b, dy, da, db);
    }
    void dropout(const RandomStream& stream, std::int64_t first, std::int64_t stride, float p, View x,
                 View y) override {
        const Timer timer(times_.others);
        ops_->dropout(stream, first, stride, p, x, y);
    }
    void cross_entropy(const CrossEntropy& args) override {
        const Timer timer(times_.others);
        ops_->cross_entropy(args);
    }
    void split_cross_entropy_maximum(const SplitCrossEntropy& args) override {
        const Timer timer(times_.others);
        ops_->split_cross_entropy_maximum(args);
    }
    void split_cross_entropy_sums(const SplitCrossEntropy& args) override {
        const Timer timer(times_.others);
        ops_->split_cross_entropy_sums(args);
    }
    void split_cross_entropy_finish(const SplitCrossEntropy& args) override {
        const Timer timer(times_.others);
        ops_->split_cross_entropy_finish(args);
    }
    void mean_squared_error(const Regression& args) override {
        const Timer timer(times_.others);
        ops_->mean_squared_error(args);
    }
    void binary_cross_entropy(const Regression& args) override {
        const Timer timer(times_.others);
        ops_->binary_cross_entropy(args);
    }
    void add_scaled(View x, float a, View y) override {
        const Timer timer(times_.others);
        ops_->add_scaled(x, a, y);
    }
    void add(View a, View b, Activation activation, View y) override {
        const Timer timer(times_.others);
        ops_->add(a, b, activation, y);
    }
    void fill(View y, float value) override {
        const Timer timer(times_.others);
        ops_->fill(y, value);
    }
    void copy(View x, View y) override {
        const Timer timer(times_.others);
        ops_->copy(x, y);
    }
    void take_columns(View x, std::int64_t first, View y) override {
        const Timer timer(times_.others);
        ops_->take_columns(x, first, y);
    }
    void put_columns(View x, std::int64_t first, View y) override {
        const Timer timer(times_.others);
        ops_->put_columns(x, first, y);
    }
    void to_channels_first(View x, View y) override {
        const Timer timer(times_.others);
        ops_->to_channels_first(x, y);
    }
    void to_channels_last(View x, View y) override {
        const Timer timer(times_.others);
        ops_->to_channels_last(x, y);
    }
    void fill_normal(const RandomStream& stream, std::int64_t first, float mean, float std, View y) override {
        const Timer timer(times_.others);
        ops_->fill_normal(stream, first, mean, std, y);
    }
    void fill_uniform(const RandomStream& stream, std::int64_t first, float low, float high,
                      View y) override {
        const Timer timer(times_.others);
        ops_->fill_uniform(stream, first, low, high, y);
    }
    using Ops::sum_squares;
    void sum_squares(View x, double* sum, float limit) override {
        const Timer timer(times_.others);
        ops_->sum_squares(x, sum, limit);
    }
    void adam_update(const AdamUpdate& args, double* norm_squared) override {
        const Timer timer(times_.updates);
        ops_->adam_update(args, norm_squared);
    }
    void sgd_update(const SgdUpdate& args, double* norm_squared) override {
        const Timer timer(times_.updates);
        ops_->sgd_update(args, norm_squared);
    }
    void lion_update(const LionUpdate& args, double* norm_squared) override {
        const Timer timer(times_.updates);
        ops_->lion_update(args, norm_squared);
    }
    void lamb_moments(const LambUpdate& args, double* norms) override {
        const Timer timer(times_.updates);
        ops_->lamb_moments(args, norms);
    }
    void lamb_update(const LambUpdate& args, double* norm_squared) override {
        const Timer timer(times_.updates);
        ops_->lamb_update(args, norm_squared);
    }
    void running_average(View average, View value, float momentum) override {
        const Timer timer(times_.updates);
        ops_->running_average(average, value, momentum);
    }

private:
    class Timer {
    public:
        explicit Timer(double& sum) : sum_(sum) {}
        ~Timer() { sum_ += watch_.seconds(); }
        Timer(const Timer&) = delete;
        Timer& operator=(const Timer&) = delete;

    private:
        double& sum_;
        Stopwatch watch_;
    };

    std::unique_ptr<Ops> ops_;
    OpTimes& times_;
};

}  // namespace

std::unique_ptr<Ops> make_timed_ops(std::unique_ptr<Ops> ops, OpTimes& times) {
    return std::make_unique<TimedOps>(std::move(ops), times);
}

}  // namespace trireme
