#include "trireme/train/step.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "trireme/base/clock.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/comm/agree.hpp"

namespace trireme {
namespace {

// What the extras of LaneSums are: the wishes of StepRequest::flags, then whether a gradient is not finite.
constexpr int wishes = 2, verdict = 2;

void require_finite(const char* what, double value) {
    if (!std::isfinite(value))
        throw Error(Status::failed,
                    std::string("the ") + what + " is " + to_text(value) +
                        ": training has diverged and nothing of this step is saved; a lower optim.lr, a "
                        "schedule.warmup_steps or train.clip_norm may help",
                    Scope::all_ranks);
}

}  // namespace

LaneRunner::LaneRunner(Device& device, const Model& model, const Arena& arena, int workers,
                       int threads_per_lane, const Wrap& wrap)
    : model_(model), arena_(arena), weights_(&arena.weights), crew_(workers) {
    for (int w = 0; w < workers; ++w) {
        auto ops = make_ops(device, threads_per_lane);
        workers_.push_back(
            {wrap ? wrap(std::move(ops)) : std::move(ops), Buffer(device, model.workspace().bytes())});
    }
}

void LaneRunner::use(const Column& weights) {
    weights_ = &weights;
    if (arena_.low) ops().copy(weights.whole(), arena_.low->whole());
}

LaneContext LaneRunner::context(int worker, const LaneBatch& batch) {
    Worker& w = workers_[static_cast<std::size_t>(worker)];
    LaneContext lane;
    lane.ops = w.ops.get();
    lane.table = &model_.table();
    lane.plan = &model_.workspace();
    lane.weights = weights_;
    lane.group = model_.group();
    lane.operands = arena_.low ? &*arena_.low : weights_;
    lane.workspace = w.workspace.as<std::byte>();
    lane.samples = batch.samples();
    lane.first_in_batch = batch.first_in_batch;
    lane.batch_samples = batch.batch_samples;
    return lane;
}

void LaneSums::clear() {
    std::fill(values_.begin(), values_.end(), 0.0);
}

void LaneSums::drop() {
    std::fill(values_.begin(), values_.end() - extras, 0.0);
}

LossSums LaneSums::of_lane(std::int64_t lane) {
    double* slot = values_.data() + 3 * lane;
    return {.loss = slot, .count = slot + 1, .correct = slot + 2};
}

void LaneSums::reduce(Communicator& comm) {
    all_reduce_values(comm, std::span<double>(values_));
}

double LaneSums::total(int which) const {
    double sum = 0;
    for (std::int64_t lane = 0; lane < lanes_; ++lane)
        sum += values_[static_cast<std::size_t>(3 * lane + which)];
    return sum;
}

TrainStep::TrainStep(Communicator& world, Communicator& model, LaneRunner& runner, Arena& arena,
                     UpdatePass& update, GradientReducer& reducer, std::int64_t lanes, StepOptions options)
    : world_(world),
      model_(model),
      runner_(runner),
      arena_(arena),
      reducer_(reducer),
      update_(update),
      options_(options),
      sums_(lanes) {}

StepResult TrainStep::run(std::span<const LaneBatch> lanes, const StepRequest& request) {
    StepResult result;
    Ops& ops = runner_.ops();
    sums_.clear();
    for (int i = 0; i < wishes; ++i) sums_.extra(i) = request.flags[i] ? 1 : 0;

    reducer_.begin_step();
    run_lanes(lanes, request);

    Stopwatch waiting;
    reducer_.finish_step(ops);
    result.exposed_seconds = waiting.seconds();

    // Where the update depends on the norm, it is taken first, and the verdict rides along with the sums: an
    // overflow on one rank is everybody's.
    const bool norm_first = options_.clip_norm > 0 || options_.may_skip;
    const double squares =
        norm_first ? over_model(update_.gradient_norm_squared(ops, arena_, gradient_limit())) : 0;
    sums_.extra(verdict) = std::isfinite(squares) ? 0 : 1;
    waiting.restart();
    if (!options_.reports) sums_.drop();
    sums_.reduce(world_);
    result.exposed_seconds = world_.size() > 1 ? result.exposed_seconds + waiting.seconds() : 0;

    result.count = sums_.count();
    result.correct = sums_.correct();
    result.loss = result.count > 0 ? sums_.loss() / result.count : 0;
    for (int i = 0; i < wishes; ++i) result.flags[i] = sums_.extra(i) > 0;
    result.skipped = options_.may_skip && (sums_.extra(verdict) > 0 || !std::isfinite(result.loss));
    if (result.skipped) {
        result.gradient_norm = std::numeric_limits<double>::quiet_NaN();
        result.culprit = update_.first_not_finite(ops, arena_, gradient_limit());
        return result;
    }
    require_finite("loss", result.loss);

    // Lanes scale their gradients by 1 / samples; where some samples do not count, the mean is over those
    // that do.
    const double to_mean = result.count > 0 ? static_cast<double>(request.batch_samples) / result.count : 1;
    UpdateInfo info{.lr = request.lr,
                    .step = request.updates + 1,
                    .gradient_scale = to_mean / request.scale,
                    .average_decay = options_.average_decay};
    if (norm_first) {
        result.gradient_norm = info.gradient_scale * std::sqrt(squares);
        require_finite("gradient norm", result.gradient_norm);
        if (options_.clip_norm > 0)
            info.gradient_scale *= std::min(1.0, options_.clip_norm / (result.gradient_norm + 1e-6));
        update_.apply(ops, arena_, info, false);
    } else {
        // Nothing depends on the norm before the update: one pass does both.
        result.gradient_norm = std::sqrt(over_model(update_.apply(ops, arena_, info, true)));
        require_finite("gradient norm", result.gradient_norm);
    }
    return result;
}

/// What counts as an overflow. Scaled gradients are float32, but beyond the range of float16 (where a GPU
/// would keep them) the scale is too high all the same; so it behaves alike however many samples and lanes
/// share a sum.
float TrainStep::gradient_limit() const {
    return options_.may_skip ? 65504.0F : UpdatePass::no_limit;
}

/// The ranks of a replica hold different parameters: what each has found of a norm, added up.
double TrainStep::over_model(double share) {
    return model_.size() > 1 ? all_reduce_value(model_, share, Reduce::sum) : share;
}

void TrainStep::run_lanes(std::span<const LaneBatch> lanes, const StepRequest& request) {
    const LaneBatch* last = nullptr;
    for (const LaneBatch& batch : lanes)
        if (batch.samples() > 0) last = &batch;
    if (lanes.empty()) return;
    const std::int64_t first_lane = lanes.front().lane;
    const auto work = [&](int worker) {
        const Range mine = reducer_.lanes_of(worker);
        for (std::int64_t lane = mine.begin; lane < mine.end; ++lane) {
            const LaneBatch& batch = lanes[static_cast<std::size_t>(lane - first_lane)];
            run_lane(worker, batch, request, &batch == last);
        }
    };
    runner_.run(std::cref(work));  // a reference: a copy would be allocated in every step
}

void TrainStep::run_lane(int worker, const LaneBatch& batch, const StepRequest& request, bool last) {
    const GradientReducer::Target target = reducer_.begin_lane(worker, batch.lane);
    if (batch.samples() > 0) {
        LaneContext lane = runner_.context(worker, batch);
        lane.gradients = target.gradients;
        lane.accumulate = target.accumulate;
        lane.seed = options_.seed;
        lane.step = request.attempt;
        lane.last = last;
        if (last) lane.finished = [this](std::int64_t offset) { reducer_.finished_below(offset); };
        const Model& model = runner_.model();
        const View output = model.forward(lane, batch.x);
        const double scale = request.scale / static_cast<double>(request.batch_samples);
        model.loss_and_backward(lane, batch.x, output, batch.y, static_cast<float>(scale),
                                sums_.of_lane(batch.lane));
    }
    reducer_.end_lane(runner_.ops(worker), worker, batch.lane, batch.samples() == 0);
}

void evaluate_lanes(LaneRunner& runner, std::span<const LaneBatch> lanes, LaneSums& sums) {
    const auto work = [&](int worker) {
        const Range mine = part_of({0, static_cast<std::int64_t>(lanes.size())}, runner.workers(), worker);
        for (std::int64_t i = mine.begin; i < mine.end; ++i) {
            const LaneBatch& batch = lanes[static_cast<std::size_t>(i)];
            if (batch.samples() == 0) continue;
            LaneContext lane = runner.context(worker, batch);
            lane.training = false;
            runner.model().loss(lane, runner.model().forward(lane, batch.x), batch.y,
                                sums.of_lane(batch.lane));
        }
    };
    runner.run(std::cref(work));
}

}  // namespace trireme
