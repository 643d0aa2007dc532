// The one list of what a device computes. Layers, losses and optimizers are written in these verbs; a backend
// implements all of them. Verbs act on views, keep no state between calls that a caller could see, and add in
// an order that depends on the shapes and the thread count only, so equal calls give equal bits.
//
// Layout: a batch of images has the logical shape [N, C, H, W] and lies in memory as N, H, W, C
// (channels-last). Kernels are stored [O, C/groups, KH, KW], contiguous as written. Everything else is
// contiguous, outermost first.
//
// Types: activations, their gradients and the operands of products may each be float32, bfloat16 or float16,
// as the views say; 16-bit results are rounded to nearest, ties to even, once. Everything else is float32:
// biases, norms and their statistics, gradients of parameters, weights and moments of optimizers, targets.
// Arithmetic is float32 throughout; products of 16-bit operands add in float32, sums of losses and norms in
// double.
//
// An Ops object belongs to one thread at a time (it caches plans and scratch); lanes that run side by side
// have one each. `accumulate` means C += result instead of C = result. Views of zero elements are ordinary:
// nothing happens, except that a result without accumulate is set to zero where there are elements but no
// summands.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

#include "trireme/base/philox.hpp"
#include "trireme/tensor/device.hpp"
#include "trireme/tensor/view.hpp"

namespace trireme {

/// gelu is the exact form x·Φ(x); gelu_tanh its usual approximation (Hendrycks and Gimpel 2016).
enum class Activation { none, relu, gelu, gelu_tanh, silu, tanh, sigmoid };

/// True where the derivative can be told from the output alone; only those can be epilogues of matmul and
/// conv.
constexpr bool derivative_from_output(Activation a) {
    return a == Activation::none || a == Activation::relu || a == Activation::tanh ||
           a == Activation::sigmoid;
}

/// C[m, n] (+)= act(op(A) · op(B) + bias). A is [m, k] or, transposed, [k, m]; B is [k, n] or, transposed,
/// [n, k]. A and B have one type; C has that or float32, with accumulate float32.
struct Matmul {
    View a, b, c;
    bool transpose_a = false, transpose_b = false;
    bool accumulate = false;                   ///< not together with bias or activation
    View bias{};                               ///< [n] or absent
    Activation activation = Activation::none;  ///< one with derivative_from_output
};

/// Extents of a 2-D convolution or pooling; height first where there are two.
struct Window {
    std::int64_t n = 0, c = 0, h = 0, w = 0;  ///< input
    std::int64_t out = 0;                     ///< output channels (pooling: c)
    std::int64_t kernel_h = 1, kernel_w = 1;
    std::int64_t stride_h = 1, stride_w = 1;
    std::int64_t padding_h = 0, padding_w = 0;  ///< on both sides
    std::int64_t dilation_h = 1, dilation_w = 1;
    std::int64_t groups = 1;

    std::int64_t out_h() const {
        return (h + 2 * padding_h - dilation_h * (kernel_h - 1) - 1) / stride_h + 1;
    }
    std::int64_t out_w() const {
        return (w + 2 * padding_w - dilation_w * (kernel_w - 1) - 1) / stride_w + 1;
    }
    friend bool operator==(const Window&, const Window&) = default;
};

enum class Pool { max, average };  ///< average counts the padding, as PyTorch's default does

/// What a loss reports: three doubles in device memory, added to (not set).
struct LossSums {
    double* loss = nullptr;   ///< sum over the samples that count
    double* count = nullptr;  ///< how many those are
    double* correct =
        nullptr;  ///< classification: predictions that hit the label; regression: |error|, mean over K
};

struct CrossEntropy {
    View logits;                ///< [N, C]
    View labels;                ///< [N] i32
    float label_smoothing = 0;  ///< ε: the target is (1-ε)·onehot + ε/C
    std::int32_t ignore_index = -100;
    float gradient_scale =
        1;          ///< factor on every gradient (1 / samples of the global batch, times loss scale)
    View d_logits;  ///< [N, C] or absent; may be the logits themselves
    LossSums sums;
};

/// Cross-entropy over classes that are split over ranks: this rank has the logits of classes [first, first +
/// C). Three steps, with a reduction over the ranks after the first (maximum, by max) and the second (sums,
/// by sum; winner, by min), so that no rank ever holds the whole rows.
struct SplitCrossEntropy {
    View logits;               ///< [N, C]
    View labels;               ///< [N] i32, of all classes
    std::int64_t first = 0;    ///< this rank's first class
    std::int64_t classes = 0;  ///< of all ranks
    float label_smoothing = 0;
    std::int32_t ignore_index = -100;
    float gradient_scale = 1;
    View d_logits;  ///< [N, C] or absent; may be the logits themselves
    LossSums sums;  ///< of whole rows: the same on every rank
    View maximum;   ///< [N] f32: the rows' maxima
    View row_sums;  ///< [N, 3] f32: Σ exp(x - maximum), the label's logit (0 on other ranks), Σ x
    View winner;    ///< [N] i32: the first class that has the maximum; the largest i32 where none here has it
};

/// Per sample the mean over its k outputs; the sum over samples goes to sums.loss.
struct Regression {
    View prediction;  ///< [N, K]
    View target;      ///< [N, K] f32
    float gradient_scale = 1;
    View d_prediction;  ///< [N, K] or absent; may be the prediction itself
    LossSums sums;
};

/// x is [rows, C]: for images rows = N·H·W.
struct BatchNorm {
    View x, y;         ///< [rows, C]; y may not be x
    View gamma, beta;  ///< [C]
    float eps = 1e-5F;
    View mean, inv_std;                        ///< [C] f32: set by the training forward, read by backward
    Activation activation = Activation::none;  ///< none or relu, applied to y
};

struct LayerNorm {
    View x, y;         ///< [rows, C]
    View gamma, beta;  ///< [C]
    float eps = 1e-5F;
    View mean, inv_std;  ///< [rows] f32: set by forward, read by backward
};

/// RMSNorm (Zhang and Sennrich 2019): y = gamma·x / √(mean(x²) + eps), row by row.
struct RmsNorm {
    View x, y;   ///< [rows, C]
    View gamma;  ///< [C]
    float eps = 1e-5F;
    View inv_rms;  ///< [rows] f32: set by forward, read by backward
};

/// Scaled dot-product attention (Vaswani et al. 2017) of n sequences of t positions, each query head with its
/// share of the key heads (grouped queries, Ainslie et al. 2023): head h reads key head h / (heads /
/// kv_heads). Computed in tiles with a running softmax (Milakov and Gimelshein 2018; Dao et al. 2022): no
/// matrix of t x t is ever held.
struct Attention {
    std::int64_t n = 0, t = 0, heads = 1, kv_heads = 1, d = 1;
    bool causal = true;  ///< position i sees positions 0 ... i
    float scale = 1;     ///< on q·k, usually 1/√d
    View q;              ///< [n, t, heads, d]
    View k, v;           ///< [n, t, kv_heads, d], of q's type
    View y;              ///< [n, t, heads, d], of q's type
    View log_sums;  ///< [n, heads, t] f32: log Σ exp of the scaled scores; set by forward where it is there,
                    ///< read by backward
};

/// What every optimizer pass is about: an interval of the arena. All views have the same count.
struct Update {
    View weight, gradient;     ///< the gradient is only read
    View low{};                ///< bfloat16 or float16: receives the new weights, rounded; or absent
    View average{};            ///< moving average of the weights, or absent
    double average_decay = 0;  ///< average = d·average + (1 - d)·new weight
    double lr = 0, weight_decay = 0;
    double gradient_scale = 1;  ///< unscaling and clipping, applied on the way
};

struct AdamUpdate {
    Update common{};
    View m{}, v{};
    View v_max{};  ///< AMSGrad (Reddi, Kale and Kumar 2018): the largest v so far; or absent
    double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
    bool decoupled = true;  ///< AdamW (Loshchilov and Hutter 2019) or L2 in the gradient (Kingma and Ba 2015)
    std::int64_t step = 1;  ///< applied updates, this one included: for the bias corrections
};

/// b = momentum·b + fresh·(g + weight_decay·w); w -= lr·b, or lr·(g + weight_decay·w + momentum·b)
/// (Nesterov).
struct SgdUpdate {
    Update common{};
    View momentum{};  ///< absent when momentum_factor is 0
    double momentum_factor = 0;
    double fresh = 1;  ///< 1 - dampening; LARS puts its local rate here
    bool nesterov = false;
    bool first = false;  ///< sets the momentum to the gradient (as PyTorch does), whatever it held
};

/// Lion (Chen et al. 2023): w -= lr·(sign(beta1·m + (1 - beta1)·g) + weight_decay·w); m = beta2·m + (1 -
/// beta2)·g.
struct LionUpdate {
    Update common{};
    View m{};
    double beta1 = 0.9, beta2 = 0.99;
};

/// LAMB (You et al. 2020) on one parameter: u = m̂/(√v̂ + eps) + weight_decay·w; w -= lr·trust·u.
struct LambUpdate {
    Update common{};
    View m{}, v{};
    double beta1 = 0.9, beta2 = 0.999, eps = 1e-6;
    std::int64_t step = 1;
    double trust = 1;  ///< |w| / |u|, told by the caller from what lamb_moments found
};

class Ops {
public:
    virtual ~Ops() = default;

    virtual std::string description() const = 0;
    /// True where products of this type run as fast as the device can, not by way of float32.
    virtual bool native(DType type) const = 0;

    virtual void matmul(const Matmul& args) = 0;
    /// sum[c] (+)= Σ_rows x[rows, c]: the gradient of a bias.
    virtual void sum_rows(View x, View sum, bool accumulate) = 0;

    /// y = act(x); y may be x where derivative_from_output.
    virtual void activation_forward(Activation kind, View x, View y) = 0;
    /// dx = dy · act'(x). x is needed unless derivative_from_output, then y is. dx may be dy.
    virtual void activation_backward(Activation kind, View x, View y, View dy, View dx) = 0;

    /// y = act(conv(x, kernel) + bias); bias may be absent.
    virtual void conv_forward(const Window& window, View x, View kernel, View bias, Activation activation,
                              View y) = 0;
    virtual void conv_backward_data(const Window& window, View dy, View kernel, View dx) = 0;
    virtual void conv_backward_weights(const Window& window, View x, View dy, View d_kernel,
                                       bool accumulate) = 0;

    /// `index` (i32, shaped as y, max pooling only) receives the winning input position; absent outside
    /// training.
    virtual void pool_forward(Pool kind, const Window& window, View x, View y, View index) = 0;
    virtual void pool_backward(Pool kind, const Window& window, View dy, View index, View dx) = 0;

    /// Statistics over all rows. `running_mean` and `running_var` [C] (absent: none) receive
    /// (+)= share · mean and share · unbiased variance (biased for a single row).
    virtual void batchnorm_forward(const BatchNorm& args, View running_mean, View running_var, float share,
                                   bool accumulate) = 0;
    /// y = gamma·(x - mean)/sqrt(var + eps) + beta with given statistics [C]; y may be x.
    virtual void batchnorm_apply(const BatchNorm& args, View mean, View var) = 0;
    /// args.y is needed when there is an activation. dx may be dy.
    virtual void batchnorm_backward(const BatchNorm& args, View dy, View dx, View d_gamma, View d_beta,
                                    bool accumulate) = 0;
    virtual void layernorm_forward(const LayerNorm& args) = 0;
    /// dx may be dy.
    virtual void layernorm_backward(const LayerNorm& args, View dy, View dx, View d_gamma, View d_beta,
                                    bool accumulate) = 0;

    virtual void rmsnorm_forward(const RmsNorm& args) = 0;
    /// dx may be dy.
    virtual void rmsnorm_backward(const RmsNorm& args, View dy, View dx, View d_gamma, bool accumulate) = 0;

    /// y[i, :] = table[ids[i] - first, :], zeros where that is no row of the table (another rank has it).
    /// ids [n] i32, table [rows, C], y [n, C].
    virtual void embedding_forward(View ids, View table, std::int64_t first, View y) = 0;
    /// d_table[ids[i] - first, :] (+)= dy[i, :], added in the order of i. d_table [rows, C] f32.
    virtual void embedding_backward(View ids, View dy, std::int64_t first, View d_table, bool accumulate) = 0;
    /// y[r, :] = x[r, :] + row. x, y [rows, C], row [C]; y may be x. (The gradient of row is sum_rows of dy.)
    virtual void add_row(View x, View row, View y) = 0;

    virtual void attention_forward(const Attention& args) = 0;
    /// With args as they were in forward, y and log_sums filled. dq as q, dk and dv as k; dq may be dy.
    virtual void attention_backward(const Attention& args, View dy, View dq, View dk, View dv) = 0;
    /// Rotary positions (Su et al. 2021): in each head of x [n, t, heads, d] the pair (i, i + d/2) turns by
    /// the angle position·base^(-2i/d); `back` turns the other way (the backward pass). Position of row r:
    /// first + r mod t. y may be x.
    virtual void rotate(View x, std::int64_t first, float base, bool back, View y) = 0;

    /// y = silu(a)·b (SwiGLU's gate, Shazeer 2020). y may be a or b.
    virtual void gate_forward(View a, View b, View y) = 0;
    /// da = dy·b·silu'(a), db = dy·silu(a). da or db may be dy, and either may be a or b.
    virtual void gate_backward(View a, View b, View dy, View da, View db) = 0;

    /// y_i = x_i / (1-p) where word(first + i) says keep, else 0. The same call with dy, dx is its backward.
    /// y may be x. Element i of the view is element `first + i` of the stream; where x is [rows, c] out of
    /// rows of `stride` elements (> 0), element (r, j) is `first + r·stride + j`.
    virtual void dropout(const RandomStream& stream, std::int64_t first, std::int64_t stride, float p, View x,
                         View y) = 0;

    /// @throws Error (bad data) naming a label that is none and not to be ignored; where the sums lie on a
    /// device, nobody waits to be told, and the loss becomes NaN instead.
    virtual void cross_entropy(const CrossEntropy& args) = 0;
    virtual void split_cross_entropy_maximum(const SplitCrossEntropy& args) = 0;  ///< sets maximum
    virtual void split_cross_entropy_sums(const SplitCrossEntropy& args) = 0;    ///< sets row_sums and winner
    virtual void split_cross_entropy_finish(const SplitCrossEntropy& args) = 0;  ///< adds sums, sets d_logits
    /// Squared error. correct receives the mean |error| over K, summed over samples.
    virtual void mean_squared_error(const Regression& args) = 0;
    /// Binary cross-entropy on logits; targets in [0, 1]. correct receives the outputs on the right side of
    /// 0.5, averaged over K.
    virtual void binary_cross_entropy(const Regression& args) = 0;

    /// y (+)= a·x.
    virtual void add_scaled(View x, float a, View y) = 0;
    /// y = a + b, y may be either; for relu the sum goes through it (residual connections).
    virtual void add(View a, View b, Activation activation, View y) = 0;
    virtual void fill(View y, float value) = 0;
    /// y = x, converted where the types (real ones) differ.
    virtual void copy(View x, View y) = 0;
    /// y = columns [first, first + c) of x. x [rows, C], y [rows, c]; converts.
    virtual void take_columns(View x, std::int64_t first, View y) = 0;
    /// Columns [first, first + c) of y = x. x [rows, c], y [rows, C]; the other columns of y stay. Converts.
    virtual void put_columns(View x, std::int64_t first, View y) = 0;
    /// From channels-last memory to channels-first and back; x and y have the logical shape [N, C, H, W].
    virtual void to_channels_first(View x, View y) = 0;
    virtual void to_channels_last(View x, View y) = 0;

    /// Element i depends on its index first + i alone: normal by Box-Muller from block first + i, uniform in
    /// [low, high) from word first + i.
    virtual void fill_normal(const RandomStream& stream, std::int64_t first, float mean, float std,
                             View y) = 0;
    virtual void fill_uniform(const RandomStream& stream, std::int64_t first, float low, float high,
                              View y) = 0;

    /// *sum += Σ x², in double, in blocks of fixed size. Not finite where x is not.
    /// An element beyond `limit` in magnitude counts as inf.
    virtual void sum_squares(View x, double* sum, float limit) = 0;
    void sum_squares(View x, double* sum) { sum_squares(x, sum, std::numeric_limits<float>::infinity()); }
    /// The pass over an interval of the arena; *norm_squared (absent: none) += Σ (unscaled gradient)², as in
    /// sum_squares.
    virtual void adam_update(const AdamUpdate& args, double* norm_squared) = 0;
    virtual void sgd_update(const SgdUpdate& args, double* norm_squared) = 0;
    virtual void lion_update(const LionUpdate& args, double* norm_squared) = 0;
    /// The first half of LAMB: advances m and v, and adds Σ w² to norms[0] and Σ u² to norms[1].
    virtual void lamb_moments(const LambUpdate& args, double* norms) = 0;
    /// The second half, after lamb_moments with the same arguments: moves the weights. m and v are only read.
    virtual void lamb_update(const LambUpdate& args, double* norm_squared) = 0;
    /// average = (1 - momentum)·average + momentum·value: running statistics.
    virtual void running_average(View average, View value, float momentum) = 0;
};

/// The verbs of a device; `threads` is how many compute threads one call may use.
std::unique_ptr<Ops> make_ops(Device& device, int threads);

/// "oneDNN 2.6.3" or the like, for --version.
std::string math_library_version();

std::string_view name_of(Activation activation);

}  // namespace trireme
