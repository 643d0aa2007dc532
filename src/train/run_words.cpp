#include "train/run_words.hpp"

#include <cmath>

#include "train/mesh_report.hpp"
#include "train/run_directory.hpp"
#include "trireme/base/clock.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/optim/rules.hpp"

namespace trireme {
namespace {

std::string percent_text(double part) {
    return to_text(std::round(1000 * part) / 10) + " %";
}

}  // namespace

void say_start(Runtime& runtime, const Config& config, const Assembly& parts) {
    const std::int64_t steps = parts.plan.steps();
    const Log& log = runtime.log;
    log.info("training " + std::to_string(parts.model->table().weight_count()) + " parameters on " +
             std::to_string(parts.plan.samples) + " samples of " + parts.train_set.sample.text() + ": " +
             count_text(runtime.mesh.world().size(), "rank") + " x " + count_text(runtime.threads, "thread") +
             ", " + count_text(parts.plan.lanes, "lane") + ", batch " + std::to_string(parts.plan.batch) +
             ", " + count_text(steps, "step") + " an epoch, " + config.train.reduction + " reduction, " +
             config.train.precision + " on " + runtime.device.name());
    if (runtime.mesh.model().size() > 1)
        for (const std::string& line : mesh_table(runtime, parts)) log.info(line);
    if (config.parallel.sequence)
        log.info(runtime.mesh.tensor().size() > 1
                     ? "sequence parallelism: each rank of a tensor group has its part of the positions"
                     : "parallel.sequence=true changes nothing where parallel.tensor=1");
    if (parts.state->sharding.stage() > 0) log.info(state_text(*parts.state));
    if (parts.pipeline->shape().stages() > 1)
        log.info("pipeline: " + config.parallel.schedule + ", " +
                 count_text(parts.pipeline->shape().lanes, "lane") + " for each replica; " +
                 percent_text(Bubble::expected(parts)) +
                 " of the ranks' time is expected to go into waiting");
    if (config.optim.weight_decay > 0 || !config.optim.rules.empty())
        log.info(groups_text(parts.model->table(), {.lr = config.optim.lr,
                                                    .weight_decay = config.optim.weight_decay,
                                                    .rules = optimizer_options(config).rules}));
    if (!parts.runner->ops().native(parts.model->compute()))
        log.warning("train.precision=" + config.train.precision + ": this processor has no " +
                    std::string(name_of(parts.model->compute())) +
                    " products of its own; they go by way of float32: right, but slower than fp32");
}

std::string bubble_text(std::optional<double> measured, double expected) {
    const std::string of_time = " of the ranks' time ";
    if (!measured)
        return "pipeline: " + percent_text(expected) + of_time +
               "was expected to go into waiting for other stages; devices wait by themselves, unmeasured";
    return "pipeline: " + percent_text(*measured) + of_time + "went into waiting for other stages, " +
           percent_text(expected) + " expected";
}

std::string end_text(const Config& config, const Position& position, const std::string& reason,
                     double seconds) {
    const std::string& dir = config.run.dir;
    const bool by_accuracy = best_is_accuracy(config);
    std::string text = reason == "signal"       ? "stopped by a signal, start again to go on"
                       : reason == "time_limit" ? "stopped before the time was up, start again to go on"
                       : reason == "early_stop" ? "stopped early, validation no longer improves"
                                                : "done";
    text += ": " + count_text(position.attempts(), "step");
    if (position.skipped > 0) text += " (" + std::to_string(position.skipped) + " of them skipped)";
    text += " in " + duration_text(seconds);
    if (position.has_best)
        text +=
            "; best validation " + std::string(by_accuracy ? "accuracy " : "loss ") +
            (by_accuracy ? to_text(std::round(1e4 * position.best) / 100) + " %" : to_text(position.best)) +
            " at step " + std::to_string(position.best_step) + ", saved as " + best_checkpoint_path(dir);
    return text + "; last state in " + step_checkpoint_path(dir, position.attempts()) + ", metrics in " +
           dir + "/metrics.jsonl";
}

}  // namespace trireme
