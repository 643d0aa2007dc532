#include "trireme/train/step.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "train/step_graphs.hpp"
#include "trireme/base/clock.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/base/recorder.hpp"
#include "trireme/comm/agree.hpp"
#include "trireme/comm/lockstep.hpp"

namespace trireme {
namespace {

// What the extras of LaneSums are: the wishes of StepRequest::flags, whether a gradient is not finite, and
// the ranks' fingerprints.
constexpr int verdict = wishes, fingerprints = wishes + 1;

/// What a rank has when it takes part in a pass only for others.
const LaneBatch no_lane{};

void require_finite(const char* what, double value) {
    if (!std::isfinite(value))
        throw Error(Status::failed,
                    std::string("the ") + what + " is " + to_text(value) +
                        ": training has diverged and nothing of this step is saved; a lower optim.lr, a "
                        "schedule.warmup_steps or train.clip_norm may help",
                    Scope::all_ranks);
}

/// One chunk of a lane, with the messages before and after it.
void pass_forward(const Model& model, Pipeline& pipeline, LaneContext& lane, const LaneBatch& batch,
                  int chunk, int slot) {
    pipeline.settle(slot);
    if (!pipeline.first(chunk)) pipeline.receive_activation(chunk, model.inlet(lane, chunk));
    const View y = model.forward(lane, batch.x, chunk);
    if (!pipeline.last(chunk)) pipeline.send_activation(chunk, slot, y);
}

}  // namespace

LaneRunner::LaneRunner(Device& device, const Model& model, LaneWeights& weights, int workers,
                       int threads_per_lane, int slots, const Wrap& wrap)
    : device_(device), model_(model), weights_(weights), crew_(workers) {
    for (int w = 0; w < workers; ++w) {
        auto ops = make_ops(device, threads_per_lane);
        Worker worker{wrap ? wrap(std::move(ops)) : std::move(ops), {}};
        for (int slot = 0; slot < slots; ++slot)
            worker.workspaces.emplace_back(device, model.workspace().bytes());
        workers_.push_back(std::move(worker));
    }
}

LaneContext LaneRunner::context(int worker, const LaneBatch& batch, int slot) {
    Worker& w = workers_[static_cast<std::size_t>(worker)];
    LaneContext lane;
    lane.ops = w.ops.get();
    lane.table = &model_.table();
    lane.plan = &model_.workspace();
    lane.weights = &weights_.weights();
    lane.operands = &weights_.operands();
    lane.weight_storage = weights_.storage();
    lane.group = model_.group();
    lane.workspace = w.workspaces[static_cast<std::size_t>(slot)].as<std::byte>();
    lane.samples = batch.samples();
    lane.first_in_batch = batch.first_in_batch;
    lane.batch_samples = batch.batch_samples;
    return lane;
}

LaneSums::LaneSums(Device& device, std::int64_t lanes)
    : device_(device),
      lanes_(lanes),
      sums_(device, static_cast<std::size_t>(3 * lanes + 1) * sizeof(double)),
      fetched_(static_cast<std::size_t>(3 * lanes + 1)),
      values_(static_cast<std::size_t>(3 * lanes + extras)) {}

void LaneSums::clear() {
    device_.clear(sums_.data(), sums_.bytes());
    std::fill(values_.begin(), values_.end(), 0.0);
}

double LaneSums::fetch() {
    const Span span = !device_.has_streams() ? Span() : Span(Activity::compute, "waiting for the device");
    device_.copy_to_host(fetched_.data(), sums_.data(), sums_.bytes());
    std::copy(fetched_.begin(), fetched_.end() - 1, values_.begin());
    return fetched_.back();
}

void LaneSums::drop() {
    std::fill(values_.begin(), values_.end() - extras, 0.0);
}

LossSums LaneSums::of_lane(std::int64_t lane) {
    double* slot = sums_.as<double>() + 3 * lane;
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

TrainStep::TrainStep(const StepParts& parts, std::int64_t lanes, StepOptions options)
    : parts_(parts),
      options_(options),
      sums_(parts.runner.device(), lanes),
      filled_(static_cast<std::size_t>(2 * parts.runner.workers() * parts.pipeline.chunks())) {
    for (int worker = 0; worker < parts_.runner.workers(); ++worker)
        actions_.push_back(parts_.pipeline.actions_of(parts_.state.reducer->turns(worker)));
    if (options.graphs) graphs_ = std::make_unique<StepGraphs>(parts.runner.device());
}

TrainStep::~TrainStep() = default;

StepResult TrainStep::run(std::span<const LaneBatch> lanes, const StepRequest& request) {
    StepResult result;
    Ops& ops = parts_.runner.ops();
    sums_.clear();
    attempt_ = request.attempt;
    for (int i = 0; i < wishes; ++i) sums_.extra(i) = request.flags[i] ? 1 : 0;

    samples_.clear();
    for (const LaneBatch& lane : lanes) samples_.push_back(lane.samples());
    parts_.pipeline.begin(true, samples_);
    if (graphs_) {
        const Span span(Activity::compute, "lanes");
        graphs_->run(lanes, request.scale, [&] { compute_gradients(lanes, request); });
    } else {
        result.lanes_seconds = compute_gradients(lanes, request);
        result.pipeline_seconds = parts_.pipeline.take_waited_seconds();
    }
    const Span updating(Activity::optimizer, "update");
    // Where the update depends on the norm, it is taken first, and the verdict rides along with the sums: an
    // overflow on one rank is everybody's.
    const bool norm_first = options_.clip_norm > 0 || options_.may_skip;
    if (norm_first) parts_.update.add_gradient_norm(ops, parts_.state.arena, gradient_limit(), sums_.norm());
    const double share = sums_.fetch();
    const double squares = norm_first ? summed(share) : 0;
    sums_.extra(verdict) = std::isfinite(squares) ? 0 : 1;
    if (!options_.reports) sums_.drop();
    sums_.extra(fingerprints) = request.fingerprint;
    sums_.reduce(parts_.world);
    require_lockstep(parts_.world, request.fingerprint, sums_.extra(fingerprints), request.in_words);

    result.count = sums_.count();
    result.correct = sums_.correct();
    result.loss = result.count > 0 ? sums_.loss() / result.count : 0;
    for (int i = 0; i < wishes; ++i) result.flags[i] = sums_.extra(i) > 0;
    result.skipped = options_.may_skip && (sums_.extra(verdict) > 0 || !std::isfinite(result.loss));
    if (result.skipped) {
        result.gradient_norm = std::numeric_limits<double>::quiet_NaN();
        result.culprit = culprit();
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
        parts_.update.apply(ops, parts_.state.arena, info);
    } else {
        // Nothing depends on the norm before the update: one pass does both.
        parts_.update.apply(ops, parts_.state.arena, info, sums_.norm());
        result.gradient_norm = std::sqrt(summed(sums_.fetch()));
        require_finite("gradient norm", result.gradient_norm);
    }
    parts_.runner.weights().updated(ops);
    return result;
}

/// Of all lanes of all ranks, where this rank updates them. Returns the seconds of the lanes.
double TrainStep::compute_gradients(std::span<const LaneBatch> lanes, const StepRequest& request) {
    parts_.state.weights->begin_step();
    parts_.state.reducer->begin_step();
    const Stopwatch running;
    run_lanes(lanes, request);
    const double seconds = running.seconds();
    const Span span(Activity::compute, "sums of the lanes");
    parts_.state.reducer->finish_step(parts_.runner.ops());
    parts_.sums.run(parts_.state.arena.gradients);
    parts_.state.queue.wait_all();
    return seconds;
}

/// What counts as an overflow. Scaled gradients are float32, but beyond the range of float16 (where a GPU
/// would keep them) the scale is too high all the same; so it behaves alike however many samples and lanes
/// share a sum.
float TrainStep::gradient_limit() const {
    return options_.may_skip ? 65504.0F : UpdatePass::no_limit;
}

/// The first parameter in the order of backward, of all ranks' parameters, whose gradient is not finite.
std::string TrainStep::culprit() {
    const ParameterTable& table = parts_.runner.model().table();
    const std::vector<ParameterId>& order = table.order();
    const std::string mine =
        parts_.update.first_not_finite(parts_.runner.ops(), parts_.state.arena, gradient_limit());
    const auto found = std::find_if(order.begin(), order.end(),
                                    [&](ParameterId id) { return !mine.empty() && table[id].name == mine; });
    const auto first =
        all_reduce_value(parts_.world, static_cast<std::int64_t>(found - order.begin()), Reduce::min);
    return first < table.count() ? table[order[static_cast<std::size_t>(first)]].name : "";
}

/// Ranks hold, or update, different parameters: what each has found of a norm, added up.
double TrainStep::summed(double share) {
    return parts_.norms.size() > 1 ? all_reduce_value(parts_.norms, share, Reduce::sum) : share;
}

void TrainStep::run_lanes(std::span<const LaneBatch> lanes, const StepRequest& request) {
    const LaneBatch* last = nullptr;
    for (const LaneBatch& batch : lanes)
        if (batch.samples() > 0) last = &batch;
    std::fill(filled_.begin(), filled_.end(), std::uint8_t{0});
    const Span span(Activity::compute, "lanes");
    const std::int64_t first_lane = lanes.empty() ? 0 : lanes.front().lane;
    const auto work = [&](int worker) {
        const Range mine = parts_.state.reducer->lanes_of(worker);
        for (const PipelineAction& action : actions_[static_cast<std::size_t>(worker)]) {
            const bool idle = action.lane >= mine.size();  // other ranks have more lanes
            const LaneBatch& batch =
                idle ? no_lane : lanes[static_cast<std::size_t>(mine.begin + action.lane - first_lane)];
            if (batch.samples() == 0) visit(worker, batch, action);
            if (action.backward)
                backward(worker, batch, action, request, &batch == last);
            else if (batch.samples() > 0)
                forward(worker, batch, action);
        }
    };
    parts_.runner.run(std::cref(work));  // a reference: a copy would be allocated in every step
    parts_.pipeline.settle_all();
}

LaneContext TrainStep::context(int worker, const LaneBatch& batch, const PipelineAction& action) {
    const GradientReducer::Target target = parts_.state.reducer->begin_lane(worker, batch.lane);
    const int chunk = worker * parts_.pipeline.chunks() + action.chunk;
    std::uint8_t& filled = filled_[static_cast<std::size_t>(2 * chunk + (action.backward ? 1 : 0))];
    LaneContext lane = parts_.runner.context(worker, batch, slot_of(action));
    lane.gradients = target.gradients;
    lane.gradient_storage = parts_.state.reducer->storage();
    lane.accumulate = target.adds_up && std::exchange(filled, 1) != 0;
    lane.seed = options_.seed;
    lane.step = attempt_;
    return lane;
}

void TrainStep::forward(int worker, const LaneBatch& batch, const PipelineAction& action) {
    const Span span(Activity::compute, "forward of lane", batch.lane);
    LaneContext lane = context(worker, batch, action);
    pass_forward(parts_.runner.model(), parts_.pipeline, lane, batch, action.chunk, slot_of(action));
}

void TrainStep::backward(int worker, const LaneBatch& batch, const PipelineAction& action,
                         const StepRequest& request, bool last) {
    const bool empty = batch.samples() == 0;
    const Span span(Activity::compute, "backward of lane", batch.lane);
    if (!empty) {
        const Model& model = parts_.runner.model();
        Pipeline& pipeline = parts_.pipeline;
        const int chunk = action.chunk;
        pipeline.settle(slot_of(action));
        LaneContext lane = context(worker, batch, action);
        // Where gradients are sharded, what a lane leaves is summed on its own: each is the last one.
        lane.last = last || lane.gradient_storage != nullptr;
        if (lane.last)
            lane.finished = [this](std::int64_t offset) { parts_.state.reducer->finished_below(offset); };
        if (pipeline.last(chunk)) {
            const double scale = request.scale / static_cast<double>(request.batch_samples);
            model.start_backward(lane, batch.y, static_cast<float>(scale), sums_.of_lane(batch.lane));
        } else {
            pipeline.receive_gradient(chunk, model.outlet_gradient(lane, chunk));
        }
        model.backward(lane, batch.x, chunk);
        if (!pipeline.first(chunk))
            pipeline.send_gradient(chunk, slot_of(action), model.inlet_gradient(lane, chunk));
    }
    parts_.state.reducer->end_lane(parts_.runner.ops(worker), worker, batch.lane, empty);
}

/// In place of a pass without samples: other ranks' lanes want what this rank has of their weights, and a
/// share, zero, of their sums.
void TrainStep::visit(int worker, const LaneBatch& batch, const PipelineAction& action) {
    LaneContext lane = parts_.runner.context(worker, batch, slot_of(action));
    lane.gradient_storage = parts_.state.reducer->storage();
    parts_.runner.model().visit(lane, action.chunk, action.backward);
}

void evaluate_lanes(LaneRunner& runner, Pipeline& pipeline, std::span<const LaneBatch> lanes,
                    LaneSums& sums) {
    std::vector<std::int64_t> samples;
    for (const LaneBatch& lane : lanes) samples.push_back(lane.samples());
    pipeline.begin(false, samples);
    const auto work = [&](int worker) {
        const Range mine = part_of({0, static_cast<std::int64_t>(lanes.size())}, runner.workers(), worker);
        const std::int64_t turns = std::max(mine.size(), runner.weights().turns(sums.lanes()));
        std::int64_t turn = 0;
        for (const PipelineAction& action : pipeline.forward_actions_of(turns)) {
            const bool idle = action.lane >= mine.size();
            const LaneBatch& batch =
                idle ? no_lane : lanes[static_cast<std::size_t>(mine.begin + action.lane)];
            const int slot = static_cast<int>(turn++ % runner.slots());
            LaneContext lane = runner.context(worker, batch, slot);
            lane.training = false;
            if (batch.samples() == 0) {
                runner.model().visit(lane, action.chunk, false);
                continue;
            }
            pass_forward(runner.model(), pipeline, lane, batch, action.chunk, slot);
            if (pipeline.last(action.chunk)) runner.model().loss(lane, batch.y, sums.of_lane(batch.lane));
        }
    };
    runner.run(std::cref(work));
    pipeline.settle_all();
}

}  // namespace trireme
