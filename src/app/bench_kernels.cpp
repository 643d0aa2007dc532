#include "app/bench_kernels.hpp"

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "app/bench_rates.hpp"
#include "app/text.hpp"

namespace trireme::app {
namespace {

constexpr std::int64_t rows = 8192, columns = 2048, elements = rows * columns;

/// Tensors of [rows, columns], each with memory of its own, so that no verb finds in cache what another has
/// left there.
class Tensors {
public:
    Tensors(Runtime& runtime, Ops& ops) : device_(runtime.device), ops_(ops) {}

    View of(DType type, std::int64_t count = elements) {
        buffers_.emplace_back(device_, static_cast<std::size_t>(count) * size_of(type));
        const View view{buffers_.back().data(), type,
                        count == elements ? Shape{rows, columns} : Shape{count}};
        if (type == DType::i32)
            device_.clear(view.data, view.bytes());
        else
            fill(view);
        return view;
    }

private:
    void fill(View view) {
        if (view.dtype == DType::f32) return ops_.fill_uniform(stream_, 0, 0.1F, 1, view);
        const View wide = of(DType::f32, view.count());
        ops_.copy(wide, {view.data, view.dtype, Shape{view.count()}});
        device_.synchronize();
        buffers_.pop_back();
    }

    Device& device_;
    Ops& ops_;
    RandomStream stream_{1, Purpose::init, 0};
    std::deque<Buffer> buffers_;
};

struct Kernel {
    std::string name;
    double bytes;  ///< that it has to read and to write
    std::function<void()> run;
};

double bytes_of(std::initializer_list<View> views) {
    double bytes = 0;
    for (const View& view : views) bytes += static_cast<double>(view.bytes());
    return bytes;
}

std::vector<Kernel> activations(Ops& ops, Tensors& tensors, DType type) {
    const View x = tensors.of(type), y = tensors.of(type), dy = tensors.of(type), dx = tensors.of(type);
    const RandomStream stream(1, Purpose::dropout, 0);
    const double two = bytes_of({x, y}), three = bytes_of({x, dy, dx});
    return {{"copy", two, [=, &ops] { ops.copy(x, y); }},
            {"gelu", two, [=, &ops] { ops.activation_forward(Activation::gelu, x, y); }},
            {"gelu, backward", three, [=, &ops] { ops.activation_backward(Activation::gelu, x, y, dy, dx); }},
            {"silu gate", bytes_of({x, dy, y}), [=, &ops] { ops.gate_forward(x, dy, y); }},
            {"residual add", bytes_of({x, dy, y}), [=, &ops] { ops.add(x, dy, Activation::none, y); }},
            {"dropout", two, [=, &ops] { ops.dropout(stream, 0, 0, 0.1F, x, y); }}};
}

std::vector<Kernel> norms(Ops& ops, Tensors& tensors, DType type) {
    const View x = tensors.of(type), y = tensors.of(type), dy = tensors.of(type), dx = tensors.of(type);
    const auto vector = [&](std::int64_t count) { return tensors.of(DType::f32, count); };
    const View gamma = vector(columns), beta = vector(columns), d_gamma = vector(columns),
               d_beta = vector(columns), running_mean = vector(columns), running_var = vector(columns);
    const LayerNorm layer{
        .x = x, .y = y, .gamma = gamma, .beta = beta, .mean = vector(rows), .inv_std = vector(rows)};
    const BatchNorm batch{
        .x = x, .y = y, .gamma = gamma, .beta = beta, .mean = vector(columns), .inv_std = vector(columns)};
    const RmsNorm rms{.x = x, .y = y, .gamma = gamma, .inv_rms = vector(rows)};
    const double two = bytes_of({x, y}), three = bytes_of({x, dy, dx});
    return {{"layernorm", two, [=, &ops] { ops.layernorm_forward(layer); }},
            {"layernorm, backward", three,
             [=, &ops] { ops.layernorm_backward(layer, dy, dx, d_gamma, d_beta, false); }},
            {"rmsnorm", two, [=, &ops] { ops.rmsnorm_forward(rms); }},
            // x has to be read twice: its statistics come before its values.
            {"batchnorm", two + bytes_of({x}),
             [=, &ops] { ops.batchnorm_forward(batch, running_mean, running_var, 1, false); }},
            {"batchnorm, backward", three + bytes_of({x, dy}),
             [=, &ops] { ops.batchnorm_backward(batch, dy, dx, d_gamma, d_beta, false); }},
            {"sum of rows", bytes_of({dy}), [=, &ops] { ops.sum_rows(dy, d_beta, false); }}};
}

std::vector<Kernel> losses_and_updates(Ops& ops, Tensors& tensors, DType type) {
    const View logits = tensors.of(type), d_logits = tensors.of(type), labels = tensors.of(DType::i32, rows);
    const View sums = tensors.of(DType::f32, 8);  // zeros or not: nobody reads them
    auto* numbers = static_cast<double*>(sums.data);
    const CrossEntropy loss{.logits = logits,
                            .labels = labels,
                            .d_logits = d_logits,
                            .sums = {.loss = numbers, .count = numbers + 1, .correct = numbers + 2}};
    const View weight = tensors.of(DType::f32), gradient = tensors.of(DType::f32), m = tensors.of(DType::f32),
               v = tensors.of(DType::f32);
    const auto flat = [](View view) { return View{view.data, view.dtype, Shape{view.count()}}; };
    AdamUpdate adam{.common = {.weight = flat(weight), .gradient = flat(gradient), .lr = 1e-6},
                    .m = flat(m),
                    .v = flat(v)};
    if (type != DType::f32) adam.common.low = flat(d_logits);
    double* norm = numbers + 3;
    return {
        {"softmax and cross-entropy", bytes_of({logits, d_logits}), [=, &ops] { ops.cross_entropy(loss); }},
        {"adamw update",
         2 * bytes_of({weight, m, v}) + bytes_of({gradient}) +
             (type != DType::f32 ? bytes_of({d_logits}) : 0),
         [=, &ops] { ops.adam_update(adam, nullptr); }},
        {"norm of gradients", bytes_of({gradient}), [=, &ops] { ops.sum_squares(gradient, norm); }}};
}

}  // namespace

void bench_kernels(Runtime& runtime, Ops& ops, DType compute) {
    Communicator& world = runtime.mesh.world();
    const double copy = copy_rate(runtime, ops);
    Table table("<>>>");
    table.add({"kernel", "time", "GB/s", "of a copy"});
    for (const auto& group : {activations, norms, losses_and_updates}) {
        Tensors tensors(runtime, ops);
        for (const Kernel& kernel : group(ops, tensors, compute)) {
            const double seconds = seconds_of(world, runtime.device, kernel.run);
            table.add({kernel.name, fixed(1e6 * seconds, 1) + " us", fixed(kernel.bytes / seconds / 1e9, 1),
                       percent(kernel.bytes / seconds / copy)});
        }
    }
    if (world.rank() == 0)
        print(grouped(rows) + " x " + grouped(columns) + " of " + std::string(name_of(compute)) + ", " +
              ops.description() + ", every rank at once; copy of 128 MB at " + fixed(copy / 1e9, 1) +
              " GB/s\n" + table.text());
}

}  // namespace trireme::app
