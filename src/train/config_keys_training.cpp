// The table of keys, second half: how the model is trained, and what is done along the way.
#include <limits>

#include "train/config_fields.hpp"
#include "trireme/optim/rules.hpp"

namespace trireme {
namespace {

using namespace fields;
using Rows = std::vector<ConfigRow>;

constexpr std::int64_t any_integer = std::numeric_limits<std::int64_t>::min();

Rows train_rows() {
    return {
        integer(
            "train.epochs", [](auto& c) -> auto& { return c.train.epochs; }, 0,
            "Passes over the training set. This or train.max_steps must be given."),
        integer(
            "train.max_steps", [](auto& c) -> auto& { return c.train.max_steps; }, 0,
            "Updates after which the run ends, whatever the epoch; 0: no such bound."),
        integer(
            "train.batch", [](auto& c) -> auto& { return c.train.batch; }, 1,
            "Samples of one update, over all ranks (the global batch)."),
        integer(
            "train.lanes", [](auto& c) -> auto& { return c.train.lanes; }, 0,
            "Slices of the batch: auto (the data-parallel ranks, times four for each stage of a pipeline, "
            "more "
            "where train.lane_batch asks for it; 8 in the reproducible mode) or a number. Kept when a run is "
            "resumed.",
            "auto"),
        integer(
            "train.lane_batch", [](auto& c) -> auto& { return c.train.lane_batch; }, 0,
            "Most samples in a lane; 0: no bound."),
        integer(
            "train.lane_threads", [](auto& c) -> auto& { return c.train.lane_threads; }, 0,
            "Threads that compute one lane: auto (run.threads; 1 in the reproducible mode) or a number.",
            "auto"),
        choice(
            "train.precision", [](auto& c) -> auto& { return c.train.precision; }, {"fp32", "bf16", "fp16"},
            "Type that layers compute in: fp32, bf16, fp16 (with a loss scale, see scaler). Weights, "
            "moments, "
            "norms and losses are float32 in each."),
        real(
            "train.ema", [](auto& c) -> auto& { return c.train.ema; }, below_one,
            "Keep an exponential moving average of the weights with this decay, such as 0.999; 0: none."),
        flag(
            "train.eval_ema", [](auto& c) -> auto& { return c.train.eval_ema; },
            "Validate, evaluate and predict with the averaged weights: true, false."),
        real(
            "train.clip_norm", [](auto& c) -> auto& { return c.train.clip_norm; }, not_negative,
            "Largest global norm of the gradient; 0: not clipped."),
        real(
            "train.label_smoothing", [](auto& c) -> auto& { return c.train.label_smoothing; }, below_one,
            "Share of the target that is spread over all classes, in [0, 1); with cross_entropy only."),
        integer(
            "train.ignore_index", [](auto& c) -> auto& { return c.train.ignore_index; }, any_integer,
            "Label of samples that do not count in cross_entropy."),
        choice(
            "train.reduction", [](auto& c) -> auto& { return c.train.reduction; }, {"fast", "reproducible"},
            "How gradients are summed: fast, or reproducible (the same bits on 1, 2, 4, ... ranks)."),
        every(
            "train.eval_every", [](auto& c) -> auto& { return c.train.eval_every; }, false,
            "When to validate: N epochs, N steps, never; at the end in any case."),
        integer(
            "train.early_stop", [](auto& c) -> auto& { return c.train.early_stop; }, 0,
            "Validations without a better result after which the run ends; 0: off."),
        integer(
            "train.log_every", [](auto& c) -> auto& { return c.train.log_every; }, 1,
            "Steps from one step line in metrics.jsonl to the next."),
    };
}

Rows optim_rows() {
    return {
        choice(
            "optim.name", [](auto& c) -> auto& { return c.optim.name; },
            {"sgd", "adam", "adamw", "lamb", "lars", "lion"}, "sgd, adam, adamw, lamb, lars, lion."),
        real(
            "optim.lr", [](auto& c) -> auto& { return c.optim.lr; }, not_negative, "Peak learning rate."),
        two_fractions(
            "optim.betas", [](auto& c) -> auto& { return c.optim.betas; },
            "adam, adamw, lamb, lion: decay of the two moments, each in [0, 1), or auto (0.9, 0.999; lion "
            "0.9, "
            "0.99)."),
        real(
            "optim.eps", [](auto& c) -> auto& { return c.optim.eps; }, positive,
            "adam, adamw, lamb: added to the denominator."),
        flag(
            "optim.amsgrad", [](auto& c) -> auto& { return c.optim.amsgrad; },
            "adam, adamw: divide by the largest second moment so far: true, false."),
        real(
            "optim.momentum", [](auto& c) -> auto& { return c.optim.momentum; }, below_one,
            "sgd, lars: momentum, in [0, 1)."),
        real(
            "optim.dampening", [](auto& c) -> auto& { return c.optim.dampening; }, not_negative,
            "sgd: the gradient enters the momentum times 1 - dampening, in [0, 1]."),
        flag(
            "optim.nesterov", [](auto& c) -> auto& { return c.optim.nesterov; },
            "sgd: Nesterov's form of the momentum: true, false."),
        real(
            "optim.trust", [](auto& c) -> auto& { return c.optim.trust; }, positive,
            "lars: a layer's rate is trust |w| / (|g| + decay |w|) times optim.lr."),
        real(
            "optim.weight_decay", [](auto& c) -> auto& { return c.optim.weight_decay; }, not_negative,
            "Decay of matrices and kernels; biases and norms have none."),
        lines(
            "optim.rule", [](auto& c) -> auto& { return c.optim.rules; },
            "Parameters by name with a rate or decay of their own, such as `*.bias lr=2x decay=0`: a number, "
            "or "
            "a multiple of optim.lr and optim.weight_decay; may be given several times, later ones win.",
            [](const std::string& line) { parse_rule(line); }),
        choice(
            "optim.scale_lr", [](auto& c) -> auto& { return c.optim.scale_lr; }, {"none", "linear", "sqrt"},
            "Scale the rate by train.batch / optim.base_batch: none, linear, sqrt."),
        integer(
            "optim.base_batch", [](auto& c) -> auto& { return c.optim.base_batch; }, 1,
            "Batch that optim.lr was chosen for."),
    };
}

Rows schedule_rows() {
    return {
        choice(
            "schedule.name", [](auto& c) -> auto& { return c.schedule.name; },
            {"constant", "cosine", "cosine_restarts", "linear", "poly", "step", "exponential", "one_cycle",
             "plateau"},
            "constant, cosine, cosine_restarts, linear, poly, step, exponential, one_cycle, plateau."),
        integer(
            "schedule.warmup_steps", [](auto& c) -> auto& { return c.schedule.warmup_steps; }, 0,
            "Updates over which the rate rises to its peak."),
        real(
            "schedule.warmup_epochs", [](auto& c) -> auto& { return c.schedule.warmup_epochs; }, not_negative,
            "The same in epochs; only one of the two."),
        real(
            "schedule.min_lr", [](auto& c) -> auto& { return c.schedule.min_lr; }, not_negative,
            "Rate at the horizon and after it."),
        integer(
            "schedule.steps", [](auto& c) -> auto& { return c.schedule.steps; }, 0,
            "Horizon in updates: auto (train.epochs, or train.max_steps where there are no epochs) or a "
            "number.",
            "auto"),
        integer(
            "schedule.step_size", [](auto& c) -> auto& { return c.schedule.step_size; }, 0,
            "step, exponential: updates in which the rate falls by gamma: auto (a third of the horizon) or a "
            "number.",
            "auto"),
        real(
            "schedule.gamma", [](auto& c) -> auto& { return c.schedule.gamma; }, positive,
            "step, exponential, plateau: factor of each drop."),
        real(
            "schedule.power", [](auto& c) -> auto& { return c.schedule.power; }, positive,
            "poly: exponent of what is left of the horizon."),
        integer(
            "schedule.cycle", [](auto& c) -> auto& { return c.schedule.cycle; }, 0,
            "cosine_restarts: updates of the first cycle: auto (the horizon) or a number.", "auto"),
        real(
            "schedule.cycle_factor", [](auto& c) -> auto& { return c.schedule.cycle_factor; }, positive,
            "cosine_restarts: how many times as long each cycle is as the one before, at least 1."),
        real(
            "schedule.start_factor", [](auto& c) -> auto& { return c.schedule.start_factor; }, positive,
            "one_cycle: it starts from the peak divided by this, at least 1."),
        real(
            "schedule.final_factor", [](auto& c) -> auto& { return c.schedule.final_factor; }, positive,
            "one_cycle: it ends at the start divided by this, at least 1."),
        integer(
            "schedule.patience", [](auto& c) -> auto& { return c.schedule.patience; }, 0,
            "plateau: validations in a row without a better metric (that of checkpoint.best) that are "
            "tolerated."),
        real(
            "schedule.threshold", [](auto& c) -> auto& { return c.schedule.threshold; }, below_one,
            "plateau: better means by this part of the best so far."),
        integer(
            "schedule.cooldown", [](auto& c) -> auto& { return c.schedule.cooldown; }, 0,
            "plateau: validations after a drop that are not judged."),
    };
}

Rows other_rows() {
    return {
        real(
            "scaler.init", [](auto& c) -> auto& { return c.scaler.init; }, positive,
            "Loss scale of fp16 at the start."),
        real(
            "scaler.growth", [](auto& c) -> auto& { return c.scaler.growth; }, positive,
            "Factor on the loss scale after scaler.interval good steps, at least 1."),
        real(
            "scaler.backoff", [](auto& c) -> auto& { return c.scaler.backoff; }, below_one,
            "Factor on the loss scale after a step with inf or NaN, which is skipped; in (0, 1)."),
        integer(
            "scaler.interval", [](auto& c) -> auto& { return c.scaler.interval; }, 1,
            "Good steps from one growth to the next."),
        real(
            "scaler.min", [](auto& c) -> auto& { return c.scaler.min; }, positive,
            "A loss scale below this ends the run."),
        integer(
            "scaler.max_skips", [](auto& c) -> auto& { return c.scaler.max_skips; }, 1,
            "So many skipped steps in a row end the run."),
        integer(
            "parallel.tensor", [](auto& c) -> auto& { return c.parallel.tensor; }, 1,
            "Ranks that split each layer (tensor parallelism); they must divide the ranks."),
        flag(
            "parallel.allow_spread", [](auto& c) -> auto& { return c.parallel.allow_spread; },
            "Let the ranks that split a layer lie on several nodes: true, false."),
        flag(
            "parallel.sequence", [](auto& c) -> auto& { return c.parallel.sequence; },
            "Ranks that split each layer also split the positions of norms and dropouts (sequence "
            "parallelism): true, false."),
        integer(
            "parallel.pipeline", [](auto& c) -> auto& { return c.parallel.pipeline; }, 1,
            "Ranks that the layers are dealt to (pipeline parallelism); micro-batches are lanes."),
        choice(
            "parallel.schedule", [](auto& c) -> auto& { return c.parallel.schedule; },
            {"gpipe", "1f1b", "interleaved"},
            "Order of micro-batches in the pipeline: gpipe (all forward, then all backward), 1f1b (backward "
            "as soon as possible: fewer activations are kept), interleaved (parallel.chunks stages on each "
            "rank: less idle time, more messages)."),
        integer(
            "parallel.chunks", [](auto& c) -> auto& { return c.parallel.chunks; }, 0,
            "Stages on each rank of an interleaved pipeline; 0: 2 there, 1 elsewhere."),
        integer(
            "parallel.zero", [](auto& c) -> auto& { return c.parallel.zero; }, 0,
            "What is sharded over the data-parallel ranks instead of replicated (ZeRO): 0 nothing, 1 the "
            "optimizer's state, 2 also gradients, 3 also weights."),
        real(
            "parallel.bucket_mb", [](auto& c) -> auto& { return c.parallel.bucket_mb; }, positive,
            "Megabytes of gradient that are reduced at once."),
        choice(
            "parallel.overlap", [](auto& c) -> auto& { return c.parallel.overlap; }, {"auto", "on", "off"},
            "Reduce while the backward pass goes on: auto (on GPUs, and where every rank has a core to "
            "spare), on, off."),
        choice(
            "parallel.reduce_dtype", [](auto& c) -> auto& { return c.parallel.reduce_dtype; },
            {"fp32", "bf16"},
            "Type of the gradients on the wire: fp32, or bf16 (half the bytes; added in float32, rounded "
            "twice)."),
        every(
            "checkpoint.every", [](auto& c) -> auto& { return c.checkpoint.every; }, true,
            "When to save: N epochs, N steps, N minutes, never (the end of a run saves in any case)."),
        integer(
            "checkpoint.keep", [](auto& c) -> auto& { return c.checkpoint.keep; }, 1,
            "Newest step checkpoints that are kept."),
        choice(
            "checkpoint.best", [](auto& c) -> auto& { return c.checkpoint.best; },
            {"auto", "accuracy", "loss"},
            "What makes the best checkpoint: auto (valid accuracy, or valid loss where there is none), "
            "accuracy, loss."),
        lines(
            "sweep.param", [](auto& c) -> auto& { return c.sweep.params; },
            "A key that trials differ in, once for each: `KEY choice V1, V2, ...` (between semicolons where "
            "values have commas), `KEY uniform A B`, `KEY loguniform A B`, `KEY integer A B`."),
        choice(
            "sweep.method", [](auto& c) -> auto& { return c.sweep.method; }, {"grid", "random"},
            "Which trials: grid (every combination of choices), random (each value drawn)."),
        integer(
            "sweep.trials", [](auto& c) -> auto& { return c.sweep.trials; }, 0,
            "How many trials at most; 0: the whole grid, or 16 random ones."),
        integer(
            "sweep.ranks_per_trial", [](auto& c) -> auto& { return c.sweep.ranks_per_trial; }, 1,
            "Ranks that train one trial together; as many trials run side by side as there are such groups."),
        integer(
            "sweep.seed", [](auto& c) -> auto& { return c.sweep.seed; }, 0,
            "Seed of the values that are drawn."),
        integer(
            "sweep.halving", [](auto& c) -> auto& { return c.sweep.halving; }, 0,
            "Successive halving: of so many trials the best one trains so many times longer (3 is usual); 0: "
            "all trials train to the end."),
        integer(
            "sweep.min_epochs", [](auto& c) -> auto& { return c.sweep.min_epochs; }, 1,
            "Epochs after which successive halving first compares trials."),
        flag(
            "checkpoint.async", [](auto& c) -> auto& { return c.checkpoint.async; },
            "Write from a copy of the state while training goes on; the copy takes as much memory as "
            "weights, "
            "optimizer state and average."),
        flag(
            "profile.enable", [](auto& c) -> auto& { return c.profile.enable; },
            "Show at the end where the time went, rank by rank: computing, communication (exposed and "
            "hidden), "
            "waiting for data, and the rest."),
        text(
            "profile.trace", [](auto& c) -> auto& { return c.profile.trace; },
            "File for a trace of all ranks' threads, for chrome://tracing or Perfetto."),
        integer(
            "profile.steps", [](auto& c) -> auto& { return c.profile.steps; }, 0,
            "Steps that the trace holds, from the first one on; 0: all."),
    };
}

}  // namespace

std::vector<ConfigRow> make_training_rows() {
    Rows rows;
    for (const Rows& section : {train_rows(), optim_rows(), schedule_rows(), other_rows()})
        rows.insert(rows.end(), section.begin(), section.end());
    return rows;
}

}  // namespace trireme
