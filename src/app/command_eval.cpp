#include <nlohmann/json.hpp>

#include "app/saved_model.hpp"
#include "app/text.hpp"
#include "trireme/train/evaluate.hpp"

namespace trireme::app {
namespace {

std::string line_of(const EvalResult& result, const SavedModel& model) {
    const std::string quality =
        result.has_accuracy ? "accuracy " + percent(result.accuracy) : "error " + fixed(result.error, 4);
    return "loss " + fixed(result.loss, 4) + "  " + quality + "  " + std::to_string(result.count) +
           " samples  (" + model.checkpoint + " on " + model.data + ")\n";
}

std::string json_of(const EvalResult& result, const SavedModel& model) {
    nlohmann::ordered_json object = {
        {"checkpoint", model.checkpoint}, {"data", model.data}, {"loss", result.loss}};
    if (result.has_accuracy)
        object["accuracy"] = result.accuracy;
    else
        object["error"] = result.error;
    object["count"] = result.count;
    return object.dump() + "\n";
}

int run(Runtime& runtime, const CommandLine& line, const Config& given) {
    const SavedModel model = find_saved_model(runtime, line, given);
    const EvalResult result = evaluate_checkpoint(runtime, model.config, model.checkpoint, model.data);
    if (runtime.session.rank() == 0)
        print(line.has("json") ? json_of(result, model) : line_of(result, model));
    return 0;
}

}  // namespace

Command eval_command() {
    return {
        .name = "eval",
        .arguments =
            "CHECKPOINT.h5|RUN.ini|RUN_DIR|FILE.safetensors RUN.ini [--data=PATTERN] [--json] "
            "[--section.key=value ...]",
        .summary = "one checkpoint on one data set: loss, accuracy or error, count",
        .help =
            "Counts every sample exactly once, on any number of ranks. A run directory, or the configuration "
            "file of a run, stands for its best checkpoint, or the newest one where there is no best. Model "
            "and normalisation come from the checkpoint; keys of the configuration may be changed. Weights "
            "from a "
            "safetensors file need a second argument: a configuration that describes their model, or a run "
            "directory with one.",
        .options = {data_option(), {"json", "", "Print one JSON object."}},
        .least_arguments = 1,
        .most_arguments = 2,
        .takes_keys = true,
        .run = run,
    };
}

}  // namespace trireme::app
