#include "app/saved_model.hpp"
#include "app/text.hpp"
#include "trireme/base/error.hpp"
#include "trireme/train/evaluate.hpp"

namespace trireme::app {
namespace {

int run(Runtime& runtime, const CommandLine& line, const Config& given) {
    const std::string output = line.option("output");
    if (output.empty()) throw usage_error("`trireme predict` needs --output=FILE.h5");
    const SavedModel model = find_saved_model(runtime, line, given);
    const std::int64_t rows = predict_checkpoint(runtime, model.config, model.checkpoint, model.data, output);
    if (runtime.session.rank() == 0)
        print(std::to_string(rows) + " rows written to " + output + "  (" + model.checkpoint + " on " +
              model.data + ")\n");
    return 0;
}

}  // namespace

Command predict_command() {
    return {
        .name = "predict",
        .arguments =
            "CHECKPOINT.h5|RUN.ini|RUN_DIR|FILE.safetensors RUN.ini --output=FILE.h5 [--data=PATTERN] "
            "[--section.key=value ...]",
        .summary = "model outputs for a data set, as HDF5, in the order of the input",
        .help =
            "Writes /output [n, outputs] and, for classification, /prediction [n], in the order of the "
            "input (for tokens [n, context, outputs] and [n, context]). A run directory, or the "
            "configuration file of a run, stands for its best checkpoint, or "
            "the newest one where there is no best. Weights from a safetensors file need a second argument: "
            "a "
            "configuration that describes their model, or a run directory with one.",
        .options = {data_option(), {"output", "FILE.h5", "The file to write."}},
        .least_arguments = 1,
        .most_arguments = 2,
        .takes_keys = true,
        .run = run,
    };
}

}  // namespace trireme::app
