#include "trireme/train/trainer.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "train/evaluate_set.hpp"
#include "train/experiment.hpp"
#include "train/progress.hpp"
#include "train/resume.hpp"
#include "train/run_directory.hpp"
#include "train/sample_trace.hpp"
#include "trireme/base/build_info.hpp"
#include "trireme/base/clock.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/checkpoint/checkpoint.hpp"
#include "trireme/comm/agree.hpp"
#include "trireme/parallel/reducer.hpp"
#include "trireme/train/metrics.hpp"
#include "trireme/train/step.hpp"

namespace trireme {
namespace {

/// The flags that ride along with every step's sums: one rank's wish is everybody's.
enum Flag { stop_flag, eval_flag, save_flag };

class Trainer {
public:
    Trainer(Runtime& runtime, Config config) : runtime_(runtime), config_(std::move(config)) {}
    TrainOutcome run();

private:
    void take_directory();
    void open_data();
    void build();
    void clear_directory();
    void say_what_starts();
    bool finished() const;
    bool due(const Every& every, bool timer) const;
    void train_one_step();
    void after_step(const StepResult& result);
    void validate();
    void take_validation(const EvalResult& result);
    void save();
    SavedCheckpoint save_to(const std::string& path);
    void require_finite_weights();
    CheckpointMeta meta() const;

    bool root() const { return runtime_.session.rank() == 0; }
    Communicator& world() { return runtime_.mesh.world(); }
    Communicator& data_ranks() { return runtime_.mesh.data(); }
    std::int64_t epoch_number() const { return position_.epoch + (position_.step_in_epoch > 0 ? 1 : 0); }

    Runtime& runtime_;
    Config config_;
    Stopwatch watch_;
    std::unique_ptr<RunDirectoryLock> lock_;
    std::optional<ResumePoint> resume_;

    DatasetLayout train_set_, valid_set_;
    std::int64_t outputs_ = 0;
    Normalization normalization_;
    EpochPlan plan_;
    Range my_lanes_;

    std::unique_ptr<Model> model_;
    std::unique_ptr<Optimizer> optimizer_;
    std::unique_ptr<Arena> arena_;
    std::unique_ptr<LaneRunner> runner_;
    std::unique_ptr<GradientReducer> reducer_;
    std::unique_ptr<TrainStep> step_;
    std::optional<Schedule> schedule_;
    std::unique_ptr<Loader> train_loader_, valid_loader_;
    std::unique_ptr<MetricsFile> metrics_;
    std::unique_ptr<SampleTrace> trace_;
    std::unique_ptr<Progress> progress_;

    Position position_;
    bool first_step_done_ = false;
    bool stop_ = false, eval_due_ = false, save_due_ = false;
    std::int64_t saved_at_ = -1;
    std::optional<EvalResult> last_valid_;
    bool last_valid_best_ = false;
    Stopwatch since_eval_, since_save_, since_log_;
    std::int64_t samples_logged_ = 0;
};

TrainOutcome Trainer::run() {
    take_directory();
    open_data();
    build();
    if (finished()) {
        runtime_.log.info("nothing to do: " + config_.run.dir + " has finished at step " +
                          std::to_string(position_.attempts()));
        return {"nothing_to_do", position_, false};
    }
    clear_directory();
    say_what_starts();
    train_loader_->start(position_.epoch, position_.step_in_epoch);
    since_log_.restart();
    while (!finished() && !stop_) {
        train_one_step();
        if ((eval_due_ || finished()) && valid_loader_) validate();
        if (position_.step_in_epoch == 0)
            progress_->epoch_end(position_.epoch, last_valid_ ? &*last_valid_ : nullptr, last_valid_best_);
        if (position_.step_in_epoch == 0) last_valid_.reset();
        if (save_due_) save();
    }
    const bool early = config_.train.early_stop > 0 && position_.bad_evals >= config_.train.early_stop;
    const bool interrupted = stop_ && !finished();
    if (!interrupted && last_valid_) progress_->epoch_end(epoch_number(), &*last_valid_, last_valid_best_);
    if (saved_at_ != position_.attempts()) save();
    const std::string reason = interrupted ? "signal"
                               : early     ? "early_stop"
                               : config_.train.epochs > 0 && position_.epoch >= config_.train.epochs
                                   ? "completed"
                                   : "max_steps";
    metrics_->end(reason, position_.attempts(), position_, watch_.seconds());
    return {reason, position_, interrupted};
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

void Trainer::open_data() {
    train_set_ = open_dataset(world(), config_.data.train, config_.data.x, config_.data.y);
    check_compatible(train_set_, train_set_.sample, "data.train=" + config_.data.train);
    outputs_ = count_outputs(world(), config_, train_set_);
    if (resume_) {
        check_compatible(train_set_, resume_->meta.sample, "data.train=" + config_.data.train);
        outputs_ = std::max(outputs_, resume_->meta.outputs);
        check_targets(config_, train_set_, outputs_);
        normalization_ = {resume_->meta.input_shift, resume_->meta.input_scale};
    } else {
        normalization_ = make_normalization(world(), train_set_, config_.data.normalize);
    }
    if (!config_.data.valid.empty()) {
        valid_set_ = open_dataset(world(), config_.data.valid, config_.data.x, config_.data.y);
        check_compatible(valid_set_, train_set_.sample, "data.valid=" + config_.data.valid);
        check_targets(config_, valid_set_, outputs_);
        const std::int64_t found = count_outputs(world(), config_, valid_set_);
        if (found > outputs_)
            throw Error(Status::bad_data,
                        "data.valid=" + config_.data.valid + ": label " + std::to_string(found - 1) +
                            " does not occur in the training set, which has " + std::to_string(outputs_) +
                            " classes",
                        Scope::all_ranks);
    }
}

void Trainer::build() {
    const int ranks = data_ranks().size();
    config_.train.lanes = choose_lanes(config_, ranks);
    plan_ = {train_set_.rows(), config_.train.batch, config_.train.lanes, config_.data.drop_last};
    if (plan_.steps() == 0)
        throw usage_error("data.drop_last=true leaves no step: the " + std::to_string(plan_.samples) +
                          " samples of data.train are fewer than train.batch=" + std::to_string(plan_.batch));
    if (resume_ && resume_->meta.position.step_in_epoch >= plan_.steps())
        throw Error(Status::bad_data,
                    "data.train=" + config_.data.train + ": the checkpoint stands after step " +
                        std::to_string(resume_->meta.position.step_in_epoch) +
                        " of an epoch, but here an epoch has only " + std::to_string(plan_.steps()) +
                        ": these are not the samples that it was begun with",
                    Scope::all_ranks);
    my_lanes_ = part_of({0, plan_.lanes}, ranks, data_ranks().rank());
    if (plan_.lanes < ranks)
        runtime_.log.warning(std::to_string(ranks - plan_.lanes) + " of " + std::to_string(ranks) +
                             " ranks are idle: train.lanes=" + std::to_string(plan_.lanes));

    EpochPlan valid_plan{valid_set_.rows(), plan_.batch, plan_.lanes, false};
    const std::int64_t largest = std::max(plan_.largest_lane(), valid_plan.largest_lane());
    model_ = std::make_unique<Model>(model_description(config_, train_set_.sample), loss_options(config_),
                                     train_set_.sample, outputs_, largest);
    optimizer_ = make_optimizer(optimizer_options(config_));
    schedule_ = make_schedule(config_, plan_.steps());
    arena_ = std::make_unique<Arena>(runtime_.device, model_->table(), optimizer_->state_names());

    const LaneThreads threads = choose_threads(config_, runtime_.threads, my_lanes_);
    runner_ = std::make_unique<LaneRunner>(runtime_.device, *model_, arena_->weights, threads.workers,
                                           threads.threads);
    const bool spare_core = runtime_.threads > 1;
    reducer_ = make_reducer(
        data_ranks(), runtime_.device, model_->table(), *arena_,
        {.lanes = plan_.lanes,
         .my_lanes = my_lanes_,
         .workers = threads.workers,
         .reproducible = config_.train.reduction == "reproducible",
         .overlap = config_.parallel.overlap == "on" || (config_.parallel.overlap == "auto" && spare_core),
         .bucket_bytes = static_cast<std::int64_t>(config_.parallel.bucket_mb * (1 << 20))});
    step_ = std::make_unique<TrainStep>(data_ranks(), *runner_, *arena_, *optimizer_, *reducer_, plan_.lanes,
                                        StepOptions{config_.train.clip_norm, config_.run.seed});
    if (resume_) {
        load_checkpoint(world(), resume_->source, model_->table(), *arena_, true);
        position_ = resume_->meta.position;
    } else {
        model_->initialize(runner_->ops(), arena_->weights, config_.run.seed);
    }

    const int node_ranks = runtime_.session.local_size();
    LoaderOptions options = loader_options(config_, plan_, normalization_, my_lanes_, outputs_, node_ranks);
    set_augmentation(options, config_);
    train_loader_ = std::make_unique<Loader>(train_set_, options);
    if (valid_set_.rows() > 0) {
        options = loader_options(config_, valid_plan, normalization_, my_lanes_, outputs_, node_ranks);
        options.shuffle = Shuffle::none;
        valid_loader_ = std::make_unique<Loader>(valid_set_, options);
    }
}

void Trainer::say_what_starts() {
    const std::string& dir = config_.run.dir;
    agreed_by_one(world(), [&] {
        write_whole(dir + "/config.ini", config_text(config_));
        metrics_ = std::make_unique<MetricsFile>(dir);
    });
    if (!metrics_) metrics_ = std::make_unique<MetricsFile>("");
    if (config_.run.trace_samples)
        trace_ = std::make_unique<SampleTrace>(dir + "/samples-" + std::to_string(world().rank()) + ".csv");
    const std::int64_t steps = plan_.steps();
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
                     .lanes = plan_.lanes,
                     .parameters = model_->table().weight_count(),
                     .samples = plan_.samples,
                     .steps_per_epoch = steps,
                     .step = position_.attempts()});
    const Log& log = runtime_.log;
    log.info("training " + std::to_string(model_->table().weight_count()) + " parameters on " +
             std::to_string(plan_.samples) + " samples of " + train_set_.sample.text() + ": " +
             std::to_string(world().size()) + " ranks x " + std::to_string(runtime_.threads) + " threads, " +
             std::to_string(plan_.lanes) + " lanes, batch " + std::to_string(plan_.batch) + ", " +
             std::to_string(steps) + " steps an epoch, " + config_.train.reduction + " reduction on " +
             runtime_.device.name());
    if (config_.optim.weight_decay > 0) log.info(model_->groups_text());
    if (resume_)
        log.info("resumed from " + resume_->source + " at step " + std::to_string(position_.attempts()));
}

bool Trainer::finished() const {
    const auto& train = config_.train;
    return (train.epochs > 0 && position_.epoch >= train.epochs) ||
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
    const auto over = [](const Every& every, const Stopwatch& watch) {
        return every.minutes > 0 && watch.seconds() >= 60 * every.minutes;
    };
    StepRequest request{.lr = schedule_->rate(position_.updates),
                        .updates = position_.updates,
                        .attempt = position_.attempts(),
                        .batch_samples = plan_.step(position_.step_in_epoch).size()};
    request.flags[stop_flag] = runtime_.stop_requested();
    request.flags[eval_flag] = root() && over(config_.train.eval_every, since_eval_);
    request.flags[save_flag] = root() && over(config_.checkpoint.every, since_save_);

    const std::span<const LaneBatch> lanes = train_loader_->next_step();
    const StepResult result = step_->run(lanes, request);
    const std::int64_t epoch = position_.epoch + 1;

    ++position_.updates;
    position_.samples += request.batch_samples;
    if (++position_.step_in_epoch == plan_.steps()) {
        ++position_.epoch;
        position_.step_in_epoch = 0;
    }
    if (!first_step_done_) {
        first_step_done_ = true;
        runtime_.log.info("time to first step: " + duration_text(seconds_since_process_start()));
    }
    if (trace_) trace_->write(position_.attempts(), lanes);

    const double input_wait = train_loader_->take_waited_seconds();
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
             .scale = position_.scale,
             .skipped = position_.skipped,
             .samples = position_.samples,
             .samples_per_s = samples_logged_ > 0 || position_.samples == request.batch_samples ? rate : 0,
             .communication_s = result.exposed_seconds,
             .input_wait_s = input_wait});
        samples_logged_ = position_.samples;
        since_log_.restart();
    }
    progress_->step(epoch, step, result.loss * result.count, result.count, result.correct,
                    model_->loss().kind != LossKind::mse, request.batch_samples);
    stop_ = result.flags[stop_flag];
    eval_due_ = due(config_.train.eval_every, result.flags[eval_flag]);
    save_due_ = due(config_.checkpoint.every, result.flags[save_flag]);
}

void Trainer::validate() {
    const EpochPlan plan{valid_set_.rows(), plan_.batch, plan_.lanes, false};
    take_validation(evaluate_set(data_ranks(), *runner_, *valid_loader_, plan));
    since_eval_.restart();
    since_log_.restart();
}

void Trainer::take_validation(const EvalResult& result) {
    metrics_->valid(position_.attempts(), epoch_number(), result);
    const std::string& choice = config_.checkpoint.best;
    const bool by_accuracy = choice == "accuracy" || (choice == "auto" && result.has_accuracy);
    const double metric = by_accuracy ? result.accuracy : result.loss;
    const bool better =
        !position_.has_best || (by_accuracy ? metric > position_.best : metric < position_.best);
    position_.bad_evals = better ? 0 : position_.bad_evals + 1;
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
    meta.input_shift = normalization_.shift;
    meta.input_scale = normalization_.scale;
    meta.sample = train_set_.sample;
    meta.outputs = model_->output()[0];
    meta.optimizer = config_.optim.name;
    meta.state_names = optimizer_->state_names();
    return meta;
}

/// Loss and gradient are checked in each step, but the update itself can overflow as well.
void Trainer::require_finite_weights() {
    double squares = 0;
    runner_->ops().sum_squares(arena_->weights.whole(), &squares);
    runtime_.device.synchronize();
    if (!std::isfinite(squares))
        throw Error(Status::failed,
                    "step " + std::to_string(position_.attempts()) +
                        " has left weights that are not finite: training has diverged and they are not "
                        "saved; a lower "
                        "optim.lr, a schedule.warmup_steps or train.clip_norm may help",
                    Scope::all_ranks);
}

SavedCheckpoint Trainer::save_to(const std::string& path) {
    require_finite_weights();
    const SavedCheckpoint saved = save_checkpoint(world(), path, model_->table(), *arena_, meta());
    metrics_->checkpoint(saved);
    since_log_.restart();
    return saved;
}

void Trainer::save() {
    save_to(step_checkpoint_path(config_.run.dir, position_.attempts()));
    retain_checkpoints(world(), config_.run.dir, config_.checkpoint.keep);
    saved_at_ = position_.attempts();
    since_save_.restart();
}

}  // namespace

TrainOutcome run_training(Runtime& runtime, Config config) {
    check_config(config);
    return Trainer(runtime, std::move(config)).run();
}

}  // namespace trireme
