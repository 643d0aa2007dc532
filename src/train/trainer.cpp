#include "trireme/train/trainer.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "train/assembly.hpp"
#include "train/deadline.hpp"
#include "train/evaluate_set.hpp"
#include "train/lockstep_guard.hpp"
#include "train/mesh_report.hpp"
#include "train/progress.hpp"
#include "train/run_directory.hpp"
#include "train/run_words.hpp"
#include "train/sample_trace.hpp"
#include "trireme/base/build_info.hpp"
#include "trireme/base/clock.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/checkpoint/writer.hpp"
#include "trireme/comm/agree.hpp"
#include "trireme/train/metrics.hpp"
#include "trireme/train/profile.hpp"

namespace trireme {
namespace {

/// The flags that ride along with every step's sums: one rank's wish is everybody's.
enum Flag { stop_flag, save_flag, failed_flag };

class Trainer {
public:
    Trainer(Runtime& runtime, Config config, std::int64_t pause_after)
        : runtime_(runtime), config_(std::move(config)), pause_after_(pause_after) {}
    TrainOutcome run();

private:
    void take_directory();
    void clear_directory();
    void open_outputs();
    bool best_by_accuracy() const { return best_is_accuracy(config_); }
    bool finished() const;
    bool due(const Every& every, bool timer) const;
    void train_one_step();
    void take_step(const StepResult& result);
    void validate();
    void take_validation(const EvalResult& result);
    void save();
    void save_to(const std::string& path, std::int64_t keep = 0);
    void finish_saving();
    void note_saved();
    void require_finite_weights();
    void close_profile(EndEvent& end);
    CheckpointMeta meta() const;

    bool staged() const { return parts_.pipeline->shape().stages() > 1; }
    bool root() const { return runtime_.mesh.world().rank() == 0; }
    Communicator& world() { return runtime_.mesh.world(); }
    std::int64_t epoch_number() const { return position_.epoch + (position_.step_in_epoch > 0 ? 1 : 0); }

    Runtime& runtime_;
    Config config_;
    std::int64_t pause_after_;
    Stopwatch watch_;
    std::unique_ptr<RunDirectoryLock> lock_;
    std::optional<ResumePoint> resume_;

    Assembly parts_;
    Position position_;
    std::unique_ptr<MetricsFile> metrics_;
    std::unique_ptr<SampleTrace> trace_;
    std::unique_ptr<Progress> progress_;

    bool first_step_done_ = false;
    bool stop_ = false, eval_due_ = false, save_due_ = false;
    std::int64_t saved_at_ = -1;
    std::string culprit_;            ///< of the first of the steps skipped in a row
    std::int64_t culprit_step_ = 0;  ///< and when that was
    Bubble bubble_;
    Profile profile_;
    std::optional<LockstepGuard> guard_;
    std::unique_ptr<CheckpointWriter> writer_;
    Deadline deadline_{config_.run.time_limit};
    Stopwatch since_step_;
    bool out_of_time_ = false;  ///< known to rank 0
    std::optional<EvalResult> last_valid_;
    bool last_valid_best_ = false;
    Stopwatch since_save_, since_log_;
    std::int64_t samples_logged_ = 0;
};

TrainOutcome Trainer::run() {
    take_directory();
    parts_ = assemble(runtime_, config_, resume_);
    position_ = parts_.position;
    if (finished()) {
        runtime_.log.info("nothing to do: " + config_.run.dir + " has finished at step " +
                          std::to_string(position_.attempts()));
        return {"nothing_to_do", position_, false};
    }
    guard_.emplace(runtime_, config_);
    guard_->check_weights(*parts_.state, 0);
    clear_directory();
    writer_ = std::make_unique<CheckpointWriter>(world(), parts_.model->table(), parts_.state->arena,
                                                 config_.checkpoint.async);
    open_outputs();
    profile_.start(!config_.profile.trace.empty(), config_.profile.steps);
    parts_.train_loader->start(position_.epoch, position_.step_in_epoch);
    samples_logged_ = position_.samples;
    since_log_.restart();
    while (!finished() && !stop_) {
        train_one_step();
        if ((eval_due_ || finished()) && parts_.valid_loader) validate();
        if (position_.step_in_epoch == 0)
            progress_->epoch_end(position_.epoch, last_valid_ ? &*last_valid_ : nullptr, last_valid_best_);
        if (position_.step_in_epoch == 0) last_valid_.reset();
        if (save_due_) save();
    }
    const bool early = config_.train.early_stop > 0 && position_.bad_evals >= config_.train.early_stop;
    const bool interrupted = stop_ && !finished();
    if (!interrupted && last_valid_) progress_->epoch_end(epoch_number(), &*last_valid_, last_valid_best_);
    if (saved_at_ != position_.attempts()) save();
    finish_saving();
    const std::string reason = interrupted ? (out_of_time_ ? "time_limit" : "signal")
                               : early     ? "early_stop"
                               : config_.train.epochs > 0 && position_.epoch >= config_.train.epochs
                                   ? "completed"
                               : pause_after_ > 0 && position_.epoch >= pause_after_ ? "paused"
                                                                                     : "max_steps";
    EndEvent end{.reason = reason, .steps = position_.attempts(), .seconds = watch_.seconds()};
    if (position_.has_best) end.best = position_.best;
    if (staged()) {
        Communicator& stages = runtime_.mesh.pipeline();
        // On streams the devices wait for messages, not the ranks.
        if (!stages.on_streams()) end.pipeline_bubble = bubble_.measured(stages);
        runtime_.log.info(bubble_text(end.pipeline_bubble, Bubble::expected(parts_)));
    }
    close_profile(end);
    metrics_->end(end);
    runtime_.log.info(end_text(config_, position_, reason, end.seconds));
    return {reason, position_, interrupted};
}

/// Says where the time has gone; the ranks' traces become one.
void Trainer::close_profile(EndEvent& end) {
    const std::vector<RankTimes> ranks = gather_times(world(), profile_.times());
    const auto mean = [&](auto seconds) {
        double sum = 0;
        for (const RankTimes& times : ranks) sum += seconds(times);
        return sum / static_cast<double>(ranks.size());
    };
    end.communication_s = mean([](const RankTimes& times) { return times.exposed(); });
    end.input_wait_s = mean([](const RankTimes& times) { return at(times.activities, Activity::input); });
    runtime_.log.info("where the time went: " + verdict_text(ranks));
    if (config_.profile.enable) {
        for (const std::string& line : profile_table(ranks)) runtime_.log.info(line);
        metrics_->profile(ranks);
    }
    if (config_.profile.trace.empty()) return;
    write_trace(world(), config_.profile.trace, profile_.take_events());
    runtime_.log.info("trace of " + count_text(profile_.traced_steps(), "step") + ": " +
                      config_.profile.trace);
}

void Trainer::take_directory() {
    agreed_by_one(world(), [&] { lock_ = std::make_unique<RunDirectoryLock>(config_.run.dir); });
    resume_ = find_resume_point(runtime_, config_);
}

/// Only once everything fits: a start that is refused leaves the earlier run as it was.
void Trainer::clear_directory() {
    agreed_by_one(world(), [&] {
        const std::string& dir = config_.run.dir;
        if (resume_ && resume_->own) {
            rewind_run(dir, resume_->meta.position.attempts());
        } else {
            const std::string aside = set_earlier_run_aside(dir);
            if (!aside.empty()) runtime_.log.info("the earlier run in " + dir + " is kept in " + aside);
        }
    });
}

void Trainer::open_outputs() {
    const std::string& dir = config_.run.dir;
    agreed_by_one(world(), [&] {
        write_whole(dir + "/config.ini", config_text(config_));
        metrics_ = std::make_unique<MetricsFile>(dir);
    });
    if (!metrics_) metrics_ = std::make_unique<MetricsFile>("");
    if (config_.run.trace_samples && runtime_.mesh.model().rank() == 0)  // the others take the same samples
        trace_ = std::make_unique<SampleTrace>(dir + "/samples-" + std::to_string(world().rank()) + ".csv");
    const std::int64_t steps = parts_.plan.steps();
    const std::int64_t total = config_.train.max_steps > 0 && config_.train.epochs > 0
                                   ? std::min(config_.train.max_steps, config_.train.epochs * steps)
                                   : std::max(config_.train.max_steps, config_.train.epochs * steps);
    progress_ =
        std::make_unique<Progress>(world().rank(), config_.run.progress,
                                   runtime_.log.level() > LogLevel::info, config_.train.epochs, total);
    metrics_->start({.version = std::string(build_info().version),
                     .resumed_from = resume_ ? resume_->source : "",
                     .ranks = world().size(),
                     .threads = runtime_.threads,
                     .lanes = parts_.plan.lanes,
                     .parameters = parts_.model->table().weight_count(),
                     .samples = parts_.plan.samples,
                     .steps_per_epoch = steps,
                     .step = position_.attempts()});
    say_start(runtime_, config_, parts_);
    if (resume_)
        runtime_.log.info("resumed from " + resume_->source + " at step " +
                          std::to_string(position_.attempts()));
}

bool Trainer::finished() const {
    const auto& train = config_.train;
    return (pause_after_ > 0 && position_.epoch >= pause_after_) ||
           (train.epochs > 0 && position_.epoch >= train.epochs) ||
           (train.max_steps > 0 && position_.attempts() >= train.max_steps) ||
           (train.early_stop > 0 && position_.bad_evals >= train.early_stop);
}

/// `timer`: the agreed answer on minutes.
bool Trainer::due(const Every& every, bool timer) const {
    const bool at_epoch = position_.step_in_epoch == 0;
    return (every.epochs > 0 && at_epoch && position_.epoch % every.epochs == 0) ||
           (every.steps > 0 && position_.attempts() % every.steps == 0) || (every.minutes > 0 && timer);
}

void Trainer::train_one_step() {
    StepRequest request{.lr = parts_.schedule->rate(position_.updates, position_.plateau.drops),
                        .updates = position_.updates,
                        .attempt = position_.attempts(),
                        .batch_samples = parts_.plan.step(position_.step_in_epoch).size(),
                        .scale = position_.scaler.scale};
    if (first_step_done_) deadline_.took_step(since_step_.seconds());  // validation and saves included
    since_step_.restart();
    out_of_time_ = root() && deadline_.near(writer_->pending());
    request.flags[stop_flag] = runtime_.stop_requested() || out_of_time_;
    const double minutes = config_.checkpoint.every.minutes;
    request.flags[save_flag] = root() && minutes > 0 && since_save_.seconds() >= 60 * minutes;
    request.flags[failed_flag] = writer_->failed();

    request.fingerprint = guard_->fingerprint(position_);
    request.in_words = [this] { return guard_->in_words(position_); };
    const RankTimes before = profile_.begin_step(position_.attempts() + 1);

    const std::span<const LaneBatch> lanes = parts_.train_loader->next_step();
    const StepResult result = parts_.step->run(lanes, request);
    const RankTimes now = profile_.times();
    const std::int64_t epoch = position_.epoch + 1;

    bubble_.add(result);
    take_step(result);
    position_.samples += request.batch_samples;
    if (++position_.step_in_epoch == parts_.plan.steps()) {
        ++position_.epoch;
        position_.step_in_epoch = 0;
    }
    if (!first_step_done_) {
        first_step_done_ = true;
        runtime_.log.info("time to first step: " + duration_text(seconds_since_process_start()));
    }
    if (trace_) trace_->write(position_.attempts(), lanes);

    const std::int64_t step = position_.attempts();
    if (step % config_.train.log_every == 0 && root()) {
        const double seconds = std::max(1e-9, since_log_.seconds());
        const double rate = static_cast<double>(position_.samples - samples_logged_) / seconds;
        metrics_->step(
            {.step = step,
             .epoch = epoch,
             .loss = result.loss,
             .lr = request.lr,
             .gradient_norm = result.gradient_norm,
             .scale = position_.scaler.scale,
             .skipped = position_.skipped,
             .samples = position_.samples,
             .samples_per_s = rate,
             .communication_s = now.exposed() - before.exposed(),
             .input_wait_s = at(now.activities, Activity::input) - at(before.activities, Activity::input)});
        samples_logged_ = position_.samples;
        since_log_.restart();
    }
    const bool counts = !result.skipped;
    progress_->step(epoch, step, counts ? result.loss * result.count : 0, counts ? result.count : 0,
                    counts ? result.correct : 0, parts_.model->loss().kind != LossKind::mse,
                    request.batch_samples);
    stop_ = result.flags[stop_flag];
    eval_due_ = due(config_.train.eval_every, false);
    save_due_ = due(config_.checkpoint.every, result.flags[save_flag]);
    guard_->check_weights(*parts_.state, step);
    if (result.flags[failed_flag]) finish_saving();
    note_saved();
}

/// Schedule and optimizer count applied updates alone; a skipped step moves the scale.
void Trainer::take_step(const StepResult& result) {
    if (!result.skipped) {
        ++position_.updates;
        parts_.scaler->applied(position_.scaler);
        return;
    }
    ++position_.skipped;
    const std::int64_t step = position_.attempts();
    if (culprit_.empty() || position_.scaler.skips == 0) {
        culprit_ = result.culprit.empty() ? "the loss" : result.culprit;
        culprit_step_ = step;
    }
    const double before = position_.scaler.scale;
    parts_.scaler->skipped(position_.scaler, culprit_, culprit_step_);
    runtime_.log.info(
        "step " + std::to_string(step) +
        " is skipped: " + (result.culprit.empty() ? "the loss" : "the gradient of " + result.culprit) +
        " is not finite; loss scale " + to_text(before) + " -> " + to_text(position_.scaler.scale));
}

void Trainer::validate() {
    const Span span(Activity::validation, "validation");
    if (config_.train.eval_ema) parts_.runner->use(WeightKind::average);
    const EvalResult result =
        evaluate_set({world(), *parts_.runner, *parts_.pipeline, runtime_.mesh.tensor().rank() == 0},
                     *parts_.valid_loader, parts_.valid_plan);
    if (config_.train.eval_ema) parts_.runner->use(WeightKind::current);
    take_validation(result);
    since_log_.restart();
}

void Trainer::take_validation(const EvalResult& result) {
    metrics_->valid(position_.attempts(), epoch_number(), result);
    const bool by_accuracy = best_by_accuracy();
    const double metric = by_accuracy ? result.accuracy : result.loss;
    if (result.count == 0) {
        runtime_.log.warning(
            "no sample of data.valid counts: all labels are train.ignore_index; not taken as a result");
        return;
    }
    const bool better =
        !position_.has_best || (by_accuracy ? metric > position_.best : metric < position_.best);
    position_.bad_evals = better ? 0 : position_.bad_evals + 1;
    if (parts_.schedule->take_validation(position_.plateau, metric, by_accuracy))
        runtime_.log.info("schedule: no better validation for " +
                          count_text(config_.schedule.patience, "validation") + ", the rate drops to " +
                          to_text(parts_.schedule->rate(position_.updates, position_.plateau.drops)));
    if (better) {
        position_.has_best = true;
        position_.best = metric;
        position_.best_step = position_.attempts();
        save_to(best_checkpoint_path(config_.run.dir));
    }
    last_valid_ = result;
    last_valid_best_ = better;
}

CheckpointMeta Trainer::meta() const {
    CheckpointMeta meta;
    meta.position = position_;
    meta.config = config_text(config_);
    meta.input_shift = parts_.normalization.shift;
    meta.input_scale = parts_.normalization.scale;
    meta.sample = parts_.train_set.sample;
    meta.samples = parts_.plan.samples;
    meta.outputs = parts_.model->outputs();
    meta.optimizer = config_.optim.name;
    meta.state_names = parts_.optimizer->state_names();
    return meta;
}

/// Loss and gradient are checked in each step, but the update itself can overflow as well.
void Trainer::require_finite_weights() {
    double squares = 0;
    parts_.runner->ops().sum_squares(parts_.state->arena.weights.whole(), &squares);
    runtime_.device.synchronize();
    if (!std::isfinite(all_reduce_value(world(), squares)))  // ranks may hold different weights
        throw Error(Status::failed,
                    "step " + std::to_string(position_.attempts()) +
                        " has left weights that are not finite: training has diverged and they are not "
                        "saved; a lower "
                        "optim.lr, a schedule.warmup_steps or train.clip_norm may help",
                    Scope::all_ranks);
}

/// `keep`: so many step checkpoints stay; 0: all.
void Trainer::save_to(const std::string& path, std::int64_t keep) {
    const Span span(Activity::checkpoint, "saving");
    require_finite_weights();
    writer_->save({.path = path, .meta = meta(), .run_dir = config_.run.dir, .keep = keep});
    note_saved();
    since_log_.restart();
}

/// What was written since the last call.
void Trainer::note_saved() {
    for (const SavedCheckpoint& saved : writer_->take_saved()) {
        metrics_->checkpoint(saved);
        deadline_.took_save(saved.seconds);
    }
}

void Trainer::finish_saving() {
    const Span span(Activity::checkpoint, "waiting until checkpoints are written");
    writer_->finish();
    note_saved();
}

void Trainer::save() {
    save_to(step_checkpoint_path(config_.run.dir, position_.attempts()), config_.checkpoint.keep);
    saved_at_ = position_.attempts();
    since_save_.restart();
}

}  // namespace

TrainOutcome run_training(Runtime& runtime, Config config, std::int64_t pause_after) {
    check_config(config);
    return Trainer(runtime, std::move(config), pause_after).run();
}

}  // namespace trireme
