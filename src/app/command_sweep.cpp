#include <algorithm>

#include "app/commands.hpp"
#include "app/text.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/train/sweep.hpp"

namespace trireme::app {
namespace {

std::string state_of(const SweepTrial& trial) {
    return !trial.failure.empty() ? "failed" : trial.done ? "done" : "stopped early";
}

void print_table(const SweepOutcome& outcome, const std::string& dir) {
    constexpr std::size_t most_rows = 20;
    if (outcome.trials.empty()) return;
    std::vector<std::string> head = {"trial"};
    for (const auto& [key, value] : outcome.trials.front().values) head.push_back(key);
    for (const char* name : {outcome.by_accuracy ? "accuracy" : "loss", "epochs", "seconds"})
        head.emplace_back(name);
    Table table("<" + std::string(head.size() - 1, '>') + "<");
    head.emplace_back("");
    table.add(head);
    for (std::size_t i = 0; i < std::min(most_rows, outcome.trials.size()); ++i) {
        const SweepTrial& trial = outcome.trials[i];
        std::vector<std::string> row = {std::to_string(trial.number)};
        for (const auto& [key, value] : trial.values) row.push_back(value);
        const double metric = trial.metrics.empty() ? 0 : trial.metrics.back();
        row.push_back(trial.metrics.empty() ? "-" : outcome.by_accuracy ? percent(metric) : fixed(metric, 4));
        row.push_back(std::to_string(trial.epochs));
        row.push_back(fixed(trial.seconds, 1));
        row.push_back(state_of(trial));
        table.add(row);
    }
    print(table.text());
    const std::size_t more = outcome.trials.size() - std::min(most_rows, outcome.trials.size());
    if (more > 0) print("  ... and " + std::to_string(more) + " more\n");
    print("all trials: " + dir + "/results.csv; the best configuration: " + dir + "/best.ini\n");
}

int run(Runtime& runtime, const CommandLine& line, const Config& given) {
    Config config = given;
    if (config.run.dir.empty()) config.run.dir = default_run_dir(line.arguments.front());
    std::optional<std::int64_t> index;
    if (line.has("index")) {
        index = parse_int(line.option("index"));
        if (!index) throw usage_error("--index=" + line.option("index") + ": expected the number of a trial");
    }
    const SweepOutcome outcome = run_sweep(runtime, config, index);
    if (runtime.session.rank() == 0) print_table(outcome, config.run.dir);
    if (outcome.to_be_continued) return static_cast<int>(Status::stopped);
    return static_cast<int>(outcome.any_good ? Status::done : Status::failed);
}

}  // namespace

Command sweep_command() {
    return {
        .name = "sweep",
        .arguments = "sweep.ini [--index=N] [--section.key=value ...]",
        .summary = "many trainings inside one allocation, on parts of the communicator",
        .help =
            "Trains the configuration of the file with other values of the keys that its sweep.param lines "
            "name: every combination (sweep.method=grid) or drawn ones (random). Groups of "
            "sweep.ranks_per_trial ranks take trials as they become free; sweep.halving stops trials early "
            "that others are ahead of. Every trial is an ordinary run directory under run.dir/trials. A "
            "sweep that was stopped goes on with what is left, and several jobs may work on one: in a "
            "Slurm array, each with --index=$SLURM_ARRAY_TASK_ID.",
        .options = {{"index", "N", "Train trial N alone, on all ranks, to its end."}},
        .least_arguments = 1,
        .most_arguments = 1,
        .takes_keys = true,
        .reads_ini = true,
        .heeds_signals = true,
        .run = run,
    };
}

}  // namespace trireme::app
