#include "app/commands.hpp"
#include "trireme/base/error.hpp"
#include "trireme/train/trainer.hpp"

namespace trireme::app {
namespace {

int run(Runtime& runtime, const CommandLine& line, const Config& given) {
    Config config = given;
    if (config.run.dir.empty())
        config.run.dir = default_run_dir(line.arguments.empty() ? "" : line.arguments.front());
    const TrainOutcome outcome = run_training(runtime, config);
    return static_cast<int>(outcome.to_be_continued ? Status::stopped : Status::done);
}

}  // namespace

Command train_command() {
    return {
        .name = "train",
        .arguments = "[run.ini] [--section.key=value ...]",
        .summary = "trains; validates; saves; resumes",
        .help =
            "Trains the model that the file and the flags describe, from the newest whole checkpoint of its "
            "run directory where there is one. The run directory gets config.ini, metrics.jsonl and "
            "checkpoints. On SIGTERM, SIGUSR1 or Ctrl-C to any rank all ranks stop at the same step, save "
            "and exit "
            "with status 75; the same command then goes on, on any number of ranks.",
        .most_arguments = 1,
        .takes_keys = true,
        .reads_ini = true,
        .heeds_signals = true,
        .run = run,
    };
}

}  // namespace trireme::app
