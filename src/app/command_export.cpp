#include "trireme/train/export.hpp"

#include "app/saved_model.hpp"
#include "app/text.hpp"
#include "train/safetensors.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"

namespace trireme::app {
namespace {

DType dtype_of(const std::string& name) {
    if (name == "fp32") return DType::f32;
    if (name == "bf16") return DType::bf16;
    throw usage_error("--dtype=" + name + ": expected fp32 or bf16");
}

int run(Runtime& runtime, const CommandLine& line, const Config&) {
    const std::string output = line.option("output");
    if (output.empty()) throw usage_error("`trireme export` needs --output=FILE.safetensors");
    if (!is_safetensors(output))
        throw usage_error("--output=" + output + ": expected a name that ends with .safetensors");
    const ExportOptions options{.dtype = dtype_of(line.option("dtype", "fp32")),
                                .average = line.has("average")};
    const std::string checkpoint = find_checkpoint(runtime, line.arguments.front());
    const ExportedWeights exported = export_weights(runtime.session.world(), checkpoint, output, options);
    if (runtime.session.rank() == 0)
        print(count_text(exported.tensors, "tensor") + ", " + grouped(exported.elements) + " elements, " +
              bytes_text(static_cast<double>(exported.bytes)) + " written to " + output + "  (" +
              (options.average ? "the average of " : "") + checkpoint + ")\n");
    return 0;
}

}  // namespace

Command export_command() {
    return {
        .name = "export",
        .arguments =
            "CHECKPOINT.h5|RUN.ini|RUN_DIR --output=FILE.safetensors [--dtype=fp32|bf16] [--average]",
        .summary = "the weights of a checkpoint as safetensors, for PyTorch and others",
        .help =
            "Names and shapes are those of PyTorch's modules. A run directory, or the configuration file of "
            "a "
            "run, stands for its best checkpoint, or the newest one where there is no best. Such files come "
            "back by run.init_from, and by `trireme eval` and `predict`.",
        .options = {{"output", "FILE.safetensors", "The file to write."},
                    {"dtype", "TYPE", "fp32 (the same bits; the default) or bf16 (rounded)."},
                    {"average", "", "The moving average of the weights (train.ema)."}},
        .least_arguments = 1,
        .most_arguments = 1,
        .across_ranks = false,
        .own_mesh = false,
        .run = run,
    };
}

}  // namespace trireme::app
