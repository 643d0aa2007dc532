#include "app/bench_kernels.hpp"
#include "app/bench_rates.hpp"
#include "app/bench_step.hpp"
#include "app/commands.hpp"
#include "app/text.hpp"
#include "train/experiment.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/nn/model.hpp"

namespace trireme::app {
namespace {

/// `size`: of one square product; 0: the usual ones, and those of some models.
void bench_gemm(Runtime& runtime, Ops& ops, DType compute, std::int64_t size) {
    const std::vector<std::int64_t> sizes =
        size > 0 ? std::vector<std::int64_t>{size} : std::vector<std::int64_t>{512, 1024, 2048};
    std::vector<Work::Gemm> gemms;
    for (const std::int64_t n : sizes)
        gemms.push_back({.m = n, .n = n, .k = n, .transpose_a = false, .transpose_b = false});
    std::vector<Work::Conv> convs;
    const std::vector<StepBench> models = {{.model = "mlp:784-512-512-10"},
                                           {.model = "mlp:1024-4096-4096-1000", .samples = 128},
                                           {.model = "cnn"}};
    for (const StepBench& bench : models) {
        if (size > 0) break;
        const BenchModel shape = bench_model(bench, {});
        const Model model(ModelDescription{shape.layers, "", "zeros"}, {}, shape.sample, shape.classes,
                          {.max_samples = bench.samples});
        const Work work = model.work(bench.samples);
        gemms.insert(gemms.end(), work.gemms.begin(), work.gemms.end());
        convs.insert(convs.end(), work.convs.begin(), work.convs.end());
    }
    Table table("<>>>>>");
    table.add({"product", "m", "n", "k", "time", "GFLOP/s"});
    const auto add = [&](const std::string& name, std::int64_t m, std::int64_t n, std::int64_t k,
                         double seconds, double flops) {
        table.add({name, std::to_string(m), std::to_string(n), std::to_string(k),
                   fixed(1e6 * seconds, 1) + " us", fixed(flops / seconds / 1e9, 1)});
    };
    for (const Work::Gemm& gemm : gemms)
        add(std::string(gemm.transpose_a ? "A'" : "A") + (gemm.transpose_b ? " B'" : " B"), gemm.m, gemm.n,
            gemm.k, product_seconds(runtime.mesh.world(), runtime, ops, gemm, compute), gemm.flops());
    for (const Work::Conv& conv : convs) {
        const Window& w = conv.window;
        const char* pass = conv.pass == Work::ConvPass::forward         ? "conv"
                           : conv.pass == Work::ConvPass::backward_data ? "conv, to its input"
                                                                        : "conv, to its kernel";
        add(pass, w.n * w.out_h() * w.out_w(), w.out, w.c / w.groups * w.kernel_h * w.kernel_w,
            product_seconds(runtime.mesh.world(), runtime, ops, conv, compute), conv.flops());
    }
    if (runtime.session.rank() == 0)
        print(std::string(name_of(compute)) + ", " + ops.description() + ", every rank at once\n" +
              table.text());
}

void bench_copy(Runtime& runtime, Ops& ops) {
    const double rate = copy_rate(runtime, ops);
    if (runtime.session.rank() == 0)
        print("copy of 128 MB: " + fixed(rate / 1e9, 1) + " GB/s read and written on every rank at once\n");
}

void bench_reduce(Runtime& runtime) {
    const int ranks = runtime.session.size();
    Table table(">>>>");
    table.add({"bytes", "time", "GB/s", "bus GB/s"});
    for (std::int64_t elements = 1; elements <= 32 << 20; elements *= 8) {
        const double seconds = reduce_seconds(runtime.mesh.world(), runtime, elements);
        const double rate = 4.0 * static_cast<double>(elements) / seconds;
        // Every rank must send and receive 2 (n-1)/n of the buffer, whatever the algorithm.
        table.add({grouped(4 * elements), fixed(1e6 * seconds, 1) + " us", fixed(rate / 1e9, 2),
                   fixed(rate * 2 * (ranks - 1) / ranks / 1e9, 2)});
    }
    if (runtime.session.rank() == 0)
        print("all-reduce (sum, float32) over " + std::to_string(ranks) + " ranks\n" + table.text());
}

std::int64_t number_option(const CommandLine& line, const std::string& name, std::int64_t fallback) {
    if (!line.has(name)) return fallback;
    const auto value = parse_int(line.option(name));
    if (!value || *value < 1)
        throw usage_error("--" + name + "=" + line.option(name) + ": expected a whole number of at least 1");
    return *value;
}

Shape shape_option(const CommandLine& line, Shape fallback) {
    if (!line.has("input")) return fallback;
    Shape shape;
    for (const std::string& part : split(line.option("input"), ',')) {
        const auto extent = parse_int(part);
        if (!extent || *extent < 1 || shape.rank() == Shape::max_rank)
            throw usage_error("--input=" + line.option("input") + ": expected extents as in 1,28,28");
        shape.push_back(*extent);
    }
    return shape;
}

int run(Runtime& runtime, const CommandLine& line, const Config& config) {
    const auto ops = make_ops(runtime.device, runtime.threads);
    const std::string& what = line.arguments.front();
    if (what == "gemm") {
        bench_gemm(runtime, *ops, compute_type(config), number_option(line, "size", 0));
    } else if (what == "kernels") {
        bench_kernels(runtime, *ops, compute_type(config));
    } else if (what == "copy") {
        bench_copy(runtime, *ops);
    } else if (what == "reduce") {
        bench_reduce(runtime);
    } else if (what == "step") {
        StepBench bench;
        bench.model = line.option("model", bench.model);
        bench.input = shape_option(line, bench.input);
        bench.classes = number_option(line, "classes", bench.classes);
        bench.samples = number_option(line, "samples", bench.samples);
        bench.lanes = number_option(line, "lanes", bench.lanes);
        bench_step(runtime, config, bench);
    } else {
        throw usage_error("bench " + what + ": expected gemm, kernels, copy, reduce or step");
    }
    return 0;
}

}  // namespace

Command bench_command() {
    return {
        .name = "bench",
        .arguments =
            "gemm|kernels|copy|reduce|step [--model=... --samples=N --lanes=N] [--section.key=value ...]",
        .summary =
            "measures products, kernels, copies, reductions and the training step, beside their limits",
        .help =
            "Times are medians, of the slowest rank; all ranks work at once. `step` trains on data in memory "
            "and "
            "holds the time against its roofline: each product and convolution alone, what the optimizer and "
            "the "
            "other layers move at the rate of a copy, and the gradients at the rate of an all-reduce. "
            "`kernels` holds "
            "what memory limits against a copy.",
        .options = {{"size", "N",
                     "gemm: one product of N x N x N. Default: several, and those of some models."},
                    {"model", "MODEL",
                     "step: mlp:784-512-512-10, cnn, resnet18, or gpt (with the keys of [model])."},
                    {"input", "C,H,W", "step: extents of an image for cnn and resnet18. Default: 1,28,28."},
                    {"classes", "N", "step: classes for cnn and resnet18. Default: 10."},
                    {"samples", "N", "step: samples in each lane. Default: 32."},
                    {"lanes", "N", "step: lanes on each rank. Default: 1."}},
        .least_arguments = 1,
        .most_arguments = 1,
        .takes_keys = true,
        .run = run,
    };
}

}  // namespace trireme::app
