// The table of keys, first half: what is run, on which data, with which model. The two files of the table are
// the only places that list the keys.
#include "train/config_fields.hpp"
#include "train/deadline.hpp"
#include "trireme/nn/description.hpp"

namespace trireme {
namespace {

using namespace fields;
using Rows = std::vector<ConfigRow>;

void check_augment(const std::string& key, const std::string& value) {
    if (value == "none") return;
    bool fits = !value.empty();
    for (const std::string& word : split(value, ' ')) {
        const bool crop = word.starts_with("crop=") && parse_int(word.substr(5)).value_or(0) > 0;
        fits = fits && (crop || word == "flip" || word.empty());
    }
    if (!fits) refuse(key, value, "none, crop=PIXELS, flip or both (crop=4 flip)");
}

void check_init(const std::string&, const std::string& value) {
    init_from(value, 1, 1);
}

void check_resume(const std::string& key, const std::string& value) {
    if (line_from(key, value).empty()) refuse(key, value, "auto, none or the path of a checkpoint");
}

void check_time_limit(const std::string&, const std::string& value) {
    time_limit_from(value);
}

void check_stall_timeout(const std::string&, const std::string& value) {
    stall_timeout_from(value);
}

Rows run_rows() {
    return {
        text(
            "run.dir", [](auto& c) -> auto& { return c.run.dir; },
            "Directory of the run: configuration, metrics, checkpoints. Empty: runs/NAME for NAME.ini, else "
            "runs/train."),
        integer(
            "run.seed", [](auto& c) -> auto& { return c.run.seed; }, 0,
            "Seed of every random number: weights, order of samples, dropout, augmentation."),
        choice(
            "run.device", [](auto& c) -> auto& { return c.run.device; }, {"auto", "cpu", "cuda"},
            "Where to compute: auto (each rank on a GPU of its own, or all on CPUs where one has none), cpu, "
            "cuda."),
        flag(
            "run.share_gpu", [](auto& c) -> auto& { return c.run.share_gpu; },
            "Let ranks share a GPU, with their collectives through host memory: true, false (an error)."),
        choice(
            "run.cuda_graph", [](auto& c) -> auto& { return c.run.cuda_graph; }, {"auto", "on", "off"},
            "On a GPU, record what a step has it compute and replay that in steps alike: auto (no "
            "dropout, and nothing that NCCL warns of), on (an error where steps are not alike), off."),
        integer(
            "run.threads", [](auto& c) -> auto& { return c.run.threads; }, 0,
            "Compute threads of each rank: auto (this rank's share of the cores it may use) or a number.",
            "auto"),
        integer(
            "run.devices", [](auto& c) -> auto& { return c.run.devices; }, 1,
            "Devices that each process drives, each as a rank of its own: data parallelism without mpirun, "
            "or "
            "fewer processes than devices."),
        choice(
            "run.log", [](auto& c) -> auto& { return c.run.log; }, {"debug", "info", "warning", "error"},
            "Least important messages to show: debug, info, warning, error."),
        flag(
            "run.trace_samples", [](auto& c) -> auto& { return c.run.trace_samples; },
            "Write samples-<rank>.csv, which sample was in which step and lane: true, false."),
        checked(
            "run.resume", [](auto& c) -> auto& { return c.run.resume; }, check_resume,
            "Where to start: auto (the newest whole checkpoint in run.dir, else from nothing), none, or the "
            "path of a checkpoint."),
        text(
            "run.init_from", [](auto& c) -> auto& { return c.run.init_from; },
            "Where a run that does not go on from a checkpoint of its own takes its first weights: a "
            ".safetensors file or a checkpoint. Everything else starts anew. Empty: random weights."),
        choice(
            "run.progress", [](auto& c) -> auto& { return c.run.progress; }, {"auto", "on", "off"},
            "The progress line: auto (on a terminal), on, off."),
        checked(
            "run.time_limit", [](auto& c) -> auto& { return c.run.time_limit; }, check_time_limit,
            "How long the job may take: `90 minutes`, `2 hours`, `1:30:00`, none, or auto (until the end "
            "that "
            "Slurm has set). Before that the run saves and stops with status 75."),
        checked(
            "run.stall_timeout", [](auto& c) -> auto& { return c.run.stall_timeout; }, check_stall_timeout,
            "A job in which no rank has begun or ended anything for so long is ended, after saying where "
            "each "
            "process stands: a time as for run.time_limit, or none."),
        integer(
            "run.check_every", [](auto& c) -> auto& { return c.run.check_every; }, 0,
            "Steps between checks that all replicas hold the same weights, bit by bit; 0: never."),
    };
}

Rows data_rows() {
    return {
        text(
            "data.train", [](auto& c) -> auto& { return c.data.train; },
            "Training set: a pattern of HDF5 files, or several between commas."),
        text(
            "data.valid", [](auto& c) -> auto& { return c.data.valid; },
            "Validation set, likewise. Empty: no validation."),
        text(
            "data.test", [](auto& c) -> auto& { return c.data.test; },
            "Test set, likewise: what eval and predict take by default."),
        text(
            "data.x", [](auto& c) -> auto& { return c.data.x; }, "Name of the inputs within the files."),
        text(
            "data.y", [](auto& c) -> auto& { return c.data.y; },
            "Name of the labels or targets within the files."),
        choice(
            "data.kind", [](auto& c) -> auto& { return c.data.kind; }, {"auto", "samples", "tokens"},
            "What the files hold: auto (tokens where there are /tokens and no x), samples (x and y), "
            "tokens."),
        choice(
            "data.normalize", [](auto& c) -> auto& { return c.data.normalize; }, {"none", "unit", "standard"},
            "none, unit (divide by the integer type's maximum), standard (mean and deviation of the training "
            "set, per channel)."),
        choice(
            "data.cache", [](auto& c) -> auto& { return c.data.cache; }, {"auto", "memory", "none"},
            "Keep the samples in memory: auto (where they fit), memory, none."),
        integer(
            "data.prefetch", [](auto& c) -> auto& { return c.data.prefetch; }, 1,
            "Steps that are read ahead, at least 1."),
        choice(
            "data.shuffle", [](auto& c) -> auto& { return c.data.shuffle; }, {"full", "chunk", "none"},
            "Order of the samples, new in each epoch: full, chunk (blocks of neighbours, and within them), "
            "none."),
        integer(
            "data.chunk", [](auto& c) -> auto& { return c.data.chunk; }, 1,
            "Samples in a block of data.shuffle=chunk."),
        flag(
            "data.drop_last", [](auto& c) -> auto& { return c.data.drop_last; },
            "Leave out the short batch at the end of an epoch: true, false."),
        checked(
            "data.augment", [](auto& c) -> auto& { return c.data.augment; }, check_augment,
            "Random changes of training images: none, crop=PIXELS (of padding), flip, or both (crop=4 "
            "flip)."),
    };
}

Rows model_rows() {
    return {
        choice("model.arch", [](auto& c) -> auto& { return c.model.arch; },
               {"mlp", "cnn", "resnet18", "gpt", "vit"},
               "A preset: mlp, cnn, resnet18, gpt, vit. Not used where there are layer lines.", {"resnet"}),
        lines(
            "model.layer", [](auto& c) -> auto& { return c.model.layers; },
            "A layer, such as `conv out=32 kernel=3 padding=1`; one line for each, read top to bottom."),
        sizes(
            "model.width", [](auto& c) -> auto& { return c.model.width; },
            "mlp: width of the hidden layers, or one number for each of them (512, 256)."),
        integer(
            "model.depth", [](auto& c) -> auto& { return c.model.depth; }, 0,
            "mlp: number of hidden layers where the width is one number."),
        integer(
            "model.channels", [](auto& c) -> auto& { return c.model.channels; }, 0,
            "cnn, resnet18: channels of the first stage: auto (the preset's own) or a number.", "auto"),
        choice(
            "model.activation", [](auto& c) -> auto& { return c.model.activation; },
            {"relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"},
            "Of the presets: relu, gelu, gelu_tanh, silu, tanh, sigmoid."),
        real(
            "model.dropout", [](auto& c) -> auto& { return c.model.dropout; }, below_one,
            "Of the presets: probability that an element is dropped, in [0, 1)."),
        flag(
            "model.batchnorm", [](auto& c) -> auto& { return c.model.batchnorm; },
            "mlp, cnn: batch normalisation after each layer: true, false."),
        integer(
            "model.layers", [](auto& c) -> auto& { return c.model.blocks; }, 1,
            "gpt, vit: number of blocks."),
        integer(
            "model.d_model", [](auto& c) -> auto& { return c.model.d_model; }, 1,
            "gpt, vit: features of a position."),
        integer(
            "model.heads", [](auto& c) -> auto& { return c.model.heads; }, 1,
            "gpt, vit: heads of attention."),
        integer(
            "model.kv_heads", [](auto& c) -> auto& { return c.model.kv_heads; }, 0,
            "gpt, vit: heads of keys and values (grouped queries): auto (model.heads) or a number.", "auto"),
        integer(
            "model.ffn", [](auto& c) -> auto& { return c.model.ffn; }, 0,
            "gpt, vit: hidden features of the feed-forward part: auto (4 d_model; 8/3 for swiglu) or a "
            "number.",
            "auto"),
        choice(
            "model.ffn_kind", [](auto& c) -> auto& { return c.model.ffn_kind; }, {"gelu", "swiglu"},
            "gpt, vit: feed-forward part: gelu, swiglu."),
        choice(
            "model.norm", [](auto& c) -> auto& { return c.model.norm; }, {"layernorm", "rmsnorm"},
            "gpt, vit: layernorm, or rmsnorm (then without biases)."),
        choice(
            "model.positions", [](auto& c) -> auto& { return c.model.positions; },
            {"learned", "rotary", "none"}, "gpt, vit: how positions are told apart: learned, rotary, none."),
        integer(
            "model.vocab", [](auto& c) -> auto& { return c.model.vocab; }, 0,
            "gpt: size of the vocabulary: auto (the largest token of the training set + 1) or a number.",
            "auto"),
        flag(
            "model.tied", [](auto& c) -> auto& { return c.model.tied; },
            "gpt: the head shares the embedding's weights: true, false."),
        integer(
            "model.patch", [](auto& c) -> auto& { return c.model.patch; }, 1,
            "vit: pixels along the side of a patch."),
        integer(
            "model.context", [](auto& c) -> auto& { return c.model.context; }, 1,
            "gpt: positions of a window; also the length of token windows."),
        choice(
            "model.loss", [](auto& c) -> auto& { return c.model.loss; }, {"cross_entropy", "mse", "bce"},
            "cross_entropy (classes), mse (real targets), bce (targets in [0, 1], on logits)."),
        checked(
            "model.init", [](auto& c) -> auto& { return c.model.init; }, check_init,
            "Initial weights: kaiming, xavier, normal std=0.02, zeros, constant value=0.5."),
    };
}

}  // namespace

std::vector<ConfigRow> make_config_rows() {
    Rows rows;
    for (const Rows& section : {run_rows(), data_rows(), model_rows(), make_training_rows()})
        rows.insert(rows.end(), section.begin(), section.end());
    return rows;
}

}  // namespace trireme
