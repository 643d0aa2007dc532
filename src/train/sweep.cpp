#include "trireme/train/sweep.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <thread>

#include "train/run_directory.hpp"
#include "train/sweep_directory.hpp"
#include "trireme/base/clock.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/comm/agree.hpp"
#include "trireme/train/trainer.hpp"

namespace trireme {
namespace {

/// Everything that can be known to be wrong, before any trial has begun.
void check_sweep(const Config& config, const SweepSpace& space, int each, int ranks) {
    if (each > ranks)
        throw usage_error("sweep.ranks_per_trial=" + std::to_string(each) + ": there are only " +
                          count_text(ranks, "rank"));
    if (config.data.valid.empty()) throw usage_error("a sweep compares validations: data.valid is missing");
    if (config.train.eval_every == Every{})
        throw usage_error("a sweep compares validations, but train.eval_every=never");
    if (config.sweep.halving == 1) throw usage_error("sweep.halving=1: expected 0 (off), or at least 2");
    if (config.sweep.halving > 1 && config.train.epochs == 0)
        throw usage_error("sweep.halving=" + std::to_string(config.sweep.halving) +
                          " compares after epochs: it needs train.epochs");
    for (std::int64_t trial = 0; trial < space.trials(); ++trial) {
        const Config one = space.trial(config, trial);
        check_config(one);
        if (each % (one.parallel.tensor * one.parallel.pipeline) != 0)
            throw usage_error("sweep.ranks_per_trial=" + std::to_string(each) +
                              " must be a multiple of parallel.tensor times parallel.pipeline");
    }
}

/// The ranks that train one trial after the other together.
class Group {
public:
    Group(Runtime& runtime, const Config& config, const SweepSpace& space, const Halving& halving,
          const SweepDirectory& directory, Communicator& ranks)
        : config_(config),
          space_(space),
          halving_(halving),
          directory_(directory),
          ranks_(ranks),
          log_(runtime.log),
          quiet_(ranks.rank(), std::max(LogLevel::warning, runtime.log.level())),
          known_(static_cast<std::size_t>(space.trials())),
          runtime_(runtime) {}

    /// Until nothing is left, or a signal has come; then true.
    bool work() {
        while (const std::optional<TrialJob> job = next())
            if (train(*job)) return true;
        return false;
    }
    bool work_on(std::int64_t trial) {
        agreed_by_one(ranks_, [&] { claim_ = directory_.claim(halving_, trial); });
        const std::optional<TrialJob> job = agree();
        return job && train(*job);
    }

private:
    /// The first rank asks the directory for all.
    std::optional<TrialJob> next() {
        agreed_by_one(ranks_, [&] {
            claim_.reset();
            for (bool wait = true; !claim_ && wait && !runtime_.stop_requested();) {
                claim_ = directory_.claim(halving_, known_, wait);
                if (!claim_ && wait) std::this_thread::sleep_for(std::chrono::milliseconds(200));
            }
        });
        return agree();
    }
    std::optional<TrialJob> agree() {
        std::array<std::int64_t, 2> found = {-1, 0};
        if (claim_) found = {claim_->job.trial, claim_->job.rung};
        ranks_.broadcast(view_of(found.data(), Shape{2}), 0);
        if (found[0] < 0) return std::nullopt;
        return TrialJob{found[0], static_cast<int>(found[1])};
    }

    bool train(const TrialJob& job) {
        Config config = space_.trial(config_, job.trial);
        config.run.dir = directory_.trial_path(job.trial);
        config.run.progress = "off";
        config.run.resume = "auto";
        const Stopwatch watch;
        std::optional<TrainOutcome> outcome;
        std::string failure;
        try {
            Mesh mesh(ranks_, static_cast<int>(config.parallel.tensor),
                      static_cast<int>(config.parallel.pipeline));
            Runtime here{.session = runtime_.session,
                         .mesh = mesh,
                         .device = runtime_.device,
                         .log = quiet_,
                         .threads = runtime_.threads,
                         .stop_requested = runtime_.stop_requested};
            outcome = run_training(here, config, halving_.epochs(job.rung));
        } catch (const Error& error) {
            if (error.scope() == Scope::one_rank && ranks_.size() > 1) throw;
            failure = error.what();
        }
        const bool stopped = outcome && outcome->to_be_continued;
        if (!stopped) agreed_by_one(ranks_, [&] { note(job, outcome, failure, watch.seconds()); });
        claim_.reset();
        return stopped;
    }

    /// What came of it, into the directory; by the group's first rank.
    void note(const TrialJob& job, const std::optional<TrainOutcome>& outcome, const std::string& failure,
              double seconds) {
        SweepTrial trial = directory_.read(job.trial).value_or(SweepTrial{.number = job.trial});
        trial.seconds += seconds;
        trial.failure = failure;
        if (outcome) {
            trial.epochs = outcome->position.epoch;
            trial.steps = outcome->position.attempts();
            trial.done = outcome->reason != "paused";
            if (outcome->position.has_best)
                trial.metrics.resize(static_cast<std::size_t>(job.rung) + 1, outcome->position.best);
            else
                trial.failure = "no validation has counted a sample";
        }
        directory_.write(trial);
        std::string text = "trial " + std::to_string(job.trial) + " (";
        for (const auto& [key, value] : space_.values(job.trial))
            text += (text.ends_with('(') ? "" : ", ") + key + "=" + value;
        text += "): ";
        Log(0, log_.level())
            .info(text +
                  (trial.failure.empty()
                       ? std::string(best_is_accuracy(config_) ? "accuracy " : "loss ") +
                             to_text(trial.metrics.back()) + " after " + count_text(trial.steps, "step")
                       : "failed: " + trial.failure));
    }

    const Config& config_;
    const SweepSpace& space_;
    const Halving& halving_;
    const SweepDirectory& directory_;
    Communicator& ranks_;
    const Log& log_;
    Log quiet_;
    std::vector<TrialRecord> known_;  ///< on the first rank, as is
    std::optional<Claim> claim_;
    Runtime& runtime_;
};

/// The furthest first, among those the best.
std::vector<SweepTrial> ranked(const SweepSpace& space, const SweepDirectory& directory, bool higher) {
    std::vector<SweepTrial> trials;
    for (std::int64_t number = 0; number < space.trials(); ++number)
        if (std::optional<SweepTrial> trial = directory.read(number)) {
            trial->values = space.values(number);
            trials.push_back(std::move(*trial));
        }
    std::stable_sort(trials.begin(), trials.end(), [higher](const SweepTrial& a, const SweepTrial& b) {
        const auto rungs = [](const SweepTrial& t) { return t.failure.empty() ? t.metrics.size() : 0; };
        if (rungs(a) != rungs(b)) return rungs(a) > rungs(b);
        if (rungs(a) == 0) return false;
        return higher ? a.metrics.back() > b.metrics.back() : a.metrics.back() < b.metrics.back();
    });
    return trials;
}

std::string csv_cell(const std::string& text) {
    if (text.find_first_of(",\"\n") == std::string::npos) return text;
    std::string quoted = "\"";
    for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
    return quoted + "\"";
}

void write_results(const SweepDirectory& directory, const Config& config, const SweepSpace& space,
                   const SweepOutcome& outcome) {
    std::string csv = "trial";
    for (const SweepParameter& parameter : space.parameters()) csv += "," + csv_cell(parameter.key);
    csv += std::string(",") + (outcome.by_accuracy ? "accuracy" : "loss") + ",epochs,steps,seconds,state\n";
    for (const SweepTrial& trial : outcome.trials) {
        csv += std::to_string(trial.number);
        for (const auto& [key, value] : trial.values) csv += "," + csv_cell(value);
        csv += "," + (trial.metrics.empty() ? "" : to_text(trial.metrics.back())) + "," +
               std::to_string(trial.epochs) + "," + std::to_string(trial.steps) + "," +
               to_text(trial.seconds) + "," +
               csv_cell(!trial.failure.empty() ? "failed: " + trial.failure
                        : trial.done           ? "done"
                                               : "stopped early") +
               "\n";
    }
    write_whole(directory.path() + "/results.csv", csv);
    if (outcome.trials.empty() || !outcome.trials.front().failure.empty()) return;
    Config best = space.trial(config, outcome.trials.front().number);
    best.run.dir = directory.path() + "/best";
    write_whole(directory.path() + "/best.ini", config_text(best));
}

}  // namespace

SweepOutcome run_sweep(Runtime& runtime, const Config& config, std::optional<std::int64_t> index) {
    Communicator& world = runtime.mesh.world();
    const SweepSpace space(config);
    const auto each = static_cast<int>(index ? world.size() : config.sweep.ranks_per_trial);
    check_sweep(config, space, each, world.size());
    if (index && (*index < 0 || *index >= space.trials()))
        throw usage_error("--index=" + std::to_string(*index) + ": expected a trial from 0 to " +
                          std::to_string(space.trials() - 1));
    const bool higher = best_is_accuracy(config);
    const Halving halving(config.sweep.halving, config.sweep.min_epochs, config.train.epochs, higher);
    std::optional<SweepDirectory> directory;
    agreed_by_one(world, [&] { directory.emplace(config.run.dir, config); });
    if (!directory) directory.emplace(config.run.dir, config);

    const int groups = world.size() / each, mine = world.rank() / each;
    if (world.size() % each != 0)
        runtime.log.warning(std::to_string(world.size() - groups * each) + " of " +
                            std::to_string(world.size()) +
                            " ranks are idle: sweep.ranks_per_trial=" + std::to_string(each));
    const std::unique_ptr<Communicator> ranks = world.split(mine, world.rank());
    bool stopped = false;
    if (mine < groups) {
        Group group(runtime, config, space, halving, *directory, *ranks);
        stopped = index ? group.work_on(*index) : group.work();
    }
    SweepOutcome outcome{.by_accuracy = higher, .planned = space.trials()};
    outcome.to_be_continued = all_reduce_value(world, stopped ? 1 : 0, Reduce::max) != 0;
    agreed_by_one(world, [&] {
        const FileLock one_at_a_time(directory->path() + "/.lock", true);
        outcome.trials = ranked(space, *directory, higher);
        write_results(*directory, config, space, outcome);
    });
    const bool good = !outcome.trials.empty() && outcome.trials.front().failure.empty();
    outcome.any_good = broadcast_value(world, good ? 1 : 0) != 0;
    return outcome;
}

}  // namespace trireme
