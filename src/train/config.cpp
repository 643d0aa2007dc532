#include "trireme/train/config.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "train/config_table.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"

namespace trireme {
namespace {

/// Names that other programs use, for "did you mean". They are not accepted.
constexpr std::pair<const char*, const char*> other_names[] = {
    {"learning_rate", "optim.lr"},      {"base_lr", "optim.lr"},
    {"batch_size", "train.batch"},      {"num_epochs", "train.epochs"},
    {"steps", "train.max_steps"},       {"num_steps", "train.max_steps"},
    {"optimizer", "optim.name"},        {"scheduler", "schedule.name"},
    {"lr_schedule", "schedule.name"},   {"warmup", "schedule.warmup_steps"},
    {"decay", "optim.weight_decay"},    {"gradient_clip", "train.clip_norm"},
    {"grad_clip", "train.clip_norm"},   {"hidden_size", "model.width"},
    {"num_layers", "model.depth"},      {"num_workers", "data.prefetch"},
    {"random_seed", "run.seed"},        {"output_dir", "run.dir"},
    {"save_every", "checkpoint.every"}, {"patience", "train.early_stop"},
    {"dtype", "train.precision"},       {"num_threads", "run.threads"},
};

const std::vector<ConfigRow>& rows() {
    static const std::vector<ConfigRow> table = [] {
        std::vector<ConfigRow> made = make_config_rows();
        const Config defaults;
        for (ConfigRow& row : made) row.about.fallback = row.get(defaults);
        return made;
    }();
    return table;
}

std::string section_of(const std::string& key) {
    const std::size_t dot = key.find('.');
    return dot == std::string::npos ? "" : key.substr(0, dot);
}
std::string name_within(const std::string& key) {
    return key.substr(key.find('.') + 1);  // npos + 1 is 0: the whole
}

const ConfigRow& row_of(const std::string& key) {
    for (const ConfigRow& row : rows())
        if (row.about.key == key) return row;
    const std::string meant = nearest_config_key(key);
    throw usage_error(
        "unknown key " + key +
        (meant.empty() ? "; `trireme train --help` lists them" : "; did you mean " + meant + "?"));
}

void refuse_when(bool contradiction, const std::string& message) {
    if (contradiction) throw usage_error(message);
}

}  // namespace

std::string nearest_config_key(const std::string& word) {
    // Keys as they are, then the names of keys (and of the same things elsewhere) in the section that was
    // written.
    std::vector<std::string> candidates;
    std::vector<std::string> keys;
    const std::string section = section_of(word), prefix = section.empty() ? "" : section + ".";
    const auto add = [&](const std::string& candidate, const std::string& key) {
        candidates.push_back(candidate);
        keys.push_back(key);
    };
    for (const ConfigRow& row : rows()) add(row.about.key, row.about.key);
    for (const ConfigRow& row : rows()) add(prefix + name_within(row.about.key), row.about.key);
    for (const auto& [name, key] : other_names) add(prefix + name, key);
    const std::string found = nearest(word, candidates);
    const auto at = std::find(candidates.begin(), candidates.end(), found);
    return found.empty() || at == candidates.end() ? ""
                                                   : keys[static_cast<std::size_t>(at - candidates.begin())];
}

const std::vector<ConfigKey>& config_keys() {
    static const std::vector<ConfigKey> keys = [] {
        std::vector<ConfigKey> list;
        for (const ConfigRow& row : rows()) list.push_back(row.about);
        return list;
    }();
    return keys;
}

void set_config(Config& config, const std::string& key, const std::string& value) {
    row_of(key).set(config, std::string(trim(value)));
}

std::string get_config(const Config& config, const std::string& key) {
    return row_of(key).get(config);
}

void check_config(const Config& c) {
    refuse_when(c.data.train.empty(), "data.train is missing: the pattern of the training files");
    refuse_when(c.train.epochs == 0 && c.train.max_steps == 0,
                "train.epochs or train.max_steps must be given: how long to train");
    refuse_when(c.train.batch < 1, "train.batch=" + std::to_string(c.train.batch) + ": expected at least 1");
    refuse_when(c.train.lanes > 0 && c.train.lane_batch > 0 && c.train.lane_batch < c.train.batch &&
                    c.train.lanes < (c.train.batch + c.train.lane_batch - 1) / c.train.lane_batch,
                "train.lanes=" + std::to_string(c.train.lanes) +
                    " with train.lane_batch=" + std::to_string(c.train.lane_batch) +
                    " hold fewer samples than train.batch=" + std::to_string(c.train.batch));
    refuse_when(c.train.label_smoothing != 0 && c.model.loss != "cross_entropy",
                "train.label_smoothing=" + to_text(c.train.label_smoothing) +
                    " needs model.loss=cross_entropy, not " + c.model.loss);
    refuse_when(
        c.train.early_stop > 0 && c.data.valid.empty(),
        "train.early_stop=" + std::to_string(c.train.early_stop) + " needs a validation set (data.valid)");
    refuse_when(c.train.early_stop > 0 && c.train.eval_every == Every{},
                "train.early_stop=" + std::to_string(c.train.early_stop) +
                    " needs validations, but train.eval_every=never");
    refuse_when(!c.run.init_from.empty() && c.run.resume != "auto" && c.run.resume != "none",
                "run.init_from=" + c.run.init_from + " and run.resume=" + c.run.resume +
                    ": a run starts from weights or goes on from a checkpoint; only one of the two");
    refuse_when(c.data.x.empty(), "data.x=: expected the name of the inputs within the files");
    refuse_when(c.data.y.empty(), "data.y=: expected the name of the targets within the files");
    refuse_when(c.data.prefetch > 4096,
                "data.prefetch=" + std::to_string(c.data.prefetch) + ": expected at most 4096");
    for (const auto& [key, threads] :
         {std::pair{"run.threads", c.run.threads}, std::pair{"train.lane_threads", c.train.lane_threads}})
        refuse_when(threads > 4096, key + ("=" + std::to_string(threads)) + ": expected at most 4096");
    refuse_when(c.train.lanes > 65536,
                "train.lanes=" + std::to_string(c.train.lanes) + ": expected at most 65536");
    refuse_when(c.optim.nesterov && (c.optim.name != "sgd" || c.optim.momentum == 0),
                "optim.nesterov=true needs optim.name=sgd and optim.momentum above 0");
    refuse_when(c.optim.momentum != 0 && c.optim.name != "sgd" && c.optim.name != "lars",
                "optim.momentum=" + to_text(c.optim.momentum) + " needs optim.name=sgd or lars; " +
                    c.optim.name + " has optim.betas");
    refuse_when(
        c.optim.dampening != 0 && c.optim.name != "sgd",
        "optim.dampening=" + to_text(c.optim.dampening) + " needs optim.name=sgd, not " + c.optim.name);
    refuse_when(c.optim.amsgrad && c.optim.name != "adam" && c.optim.name != "adamw",
                "optim.amsgrad=true needs optim.name=adam or adamw, not " + c.optim.name);
    refuse_when(c.train.eval_ema && c.train.ema == 0,
                "train.eval_ema=true needs an average of the weights: train.ema above 0");
    refuse_when(c.schedule.name == "plateau" && (c.data.valid.empty() || c.train.eval_every == Every{}),
                "schedule.name=plateau follows validations: it needs data.valid, and train.eval_every other "
                "than never");
    const auto data_parallel_only = [&](std::int64_t ranks, const std::string& key, const std::string& why) {
        refuse_when(ranks > 1 && c.train.reduction == "reproducible",
                    "train.reduction=reproducible is defined for data parallelism: " + why + " depend on " +
                        key + "=" + std::to_string(ranks) + "; expected 1");
    };
    data_parallel_only(c.parallel.tensor, "parallel.tensor", "the sums within a layer");
    data_parallel_only(c.parallel.pipeline, "parallel.pipeline",
                       "the sums over parameters (clipping, tied weights)");
    refuse_when(c.parallel.chunks > 1 && c.parallel.schedule != "interleaved",
                "parallel.chunks=" + std::to_string(c.parallel.chunks) +
                    " needs parallel.schedule=interleaved, not " + c.parallel.schedule);
    refuse_when(c.parallel.zero > 3,
                "parallel.zero=" + std::to_string(c.parallel.zero) + ": expected 0, 1, 2 or 3");
    refuse_when(c.parallel.zero > 0 && c.train.reduction == "reproducible",
                "train.reduction=reproducible sums gradients and their norm in an order of its own, which "
                "parallel.zero=" +
                    std::to_string(c.parallel.zero) + " would make depend on the ranks; expected 0");
    refuse_when(c.parallel.reduce_dtype != "fp32" && c.train.reduction == "reproducible",
                "parallel.reduce_dtype=" + c.parallel.reduce_dtype +
                    " rounds once for each rank, which train.reduction=reproducible excludes; expected fp32");
    refuse_when(c.schedule.warmup_steps > 0 && c.schedule.warmup_epochs > 0,
                "schedule.warmup_steps=" + std::to_string(c.schedule.warmup_steps) +
                    " and schedule.warmup_epochs=" + to_text(c.schedule.warmup_epochs) +
                    ": only one of the two");
    refuse_when(
        c.optim.scale_lr == "none" && c.schedule.min_lr > c.optim.lr,
        "schedule.min_lr=" + to_text(c.schedule.min_lr) + " is above optim.lr=" + to_text(c.optim.lr));
    refuse_when(c.checkpoint.best == "accuracy" && c.model.loss == "mse",
                "checkpoint.best=accuracy: model.loss=mse has no accuracy; expected loss or auto");
}

bool best_is_accuracy(const Config& config) {
    return config.checkpoint.best == "accuracy" ||
           (config.checkpoint.best == "auto" && config.model.loss != "mse");
}

std::string config_text(const Config& config) {
    std::string text, section;
    for (const ConfigRow& row : rows()) {
        if (section_of(row.about.key) == "sweep") continue;
        const std::string& key = row.about.key;
        if (section_of(key) != section) {
            section = section_of(key);
            text += (text.empty() ? "[" : "\n[") + section + "]\n";
        }
        const std::string value = row.get(config);
        if (row.about.repeated) {
            for (const std::string& line : split(value, '|'))
                text += name_within(key) + " = " + ini_value(line) + "\n";
        } else {
            text += std::string(trim(name_within(key) + " = " + ini_value(value))) + "\n";
        }
    }
    return text;
}

Config config_from_text(const std::string& text, const std::string& source) {
    Config config;
    std::map<std::string, int> lines;
    for (const IniEntry& entry : read_ini(text, source)) {
        const std::string place = place_in(source, entry.line);
        try {
            const bool repeated = row_of(entry.key).about.repeated;
            if (const auto [first, is_new] = lines.emplace(entry.key, entry.line); !is_new && !repeated)
                throw usage_error(entry.key + " is given a second time (first in line " +
                                  std::to_string(first->second) + ")");
            set_config(config, entry.key, entry.value);
        } catch (const Error& error) {
            throw Error(error.status(), place + error.what(), error.scope());
        }
    }
    return config;
}

std::vector<std::string> config_differences(const Config& saved, const Config& now) {
    const auto shown = [](const std::string& value) {
        return value.empty() ? std::string("(empty)") : value;
    };
    std::vector<std::string> differences;
    for (const ConfigRow& row : rows()) {
        if (section_of(row.about.key) == "sweep") continue;
        const std::string before = row.get(saved), after = row.get(now);
        if (before != after)
            differences.push_back(row.about.key + ": " + shown(before) + " -> " + shown(after));
    }
    return differences;
}

}  // namespace trireme
