// The configuration: one plain struct, section by section, and the table that ties its fields to keys. The
// table is the only list of keys: parsing, defaults, --help, config.ini and doc/configuration.md all come
// from it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

/// "1 epoch", "500 steps", "10 minutes": exactly one is positive; all zero: never.
struct Every {
    std::int64_t epochs = 0, steps = 0;
    double minutes = 0;
    friend bool operator==(const Every&, const Every&) = default;
};

struct Config {
    struct {
        std::string dir;  ///< empty: runs/<name of the configuration file>
        std::uint64_t seed = 1;
        std::string device = "auto";
        bool share_gpu = false;
        std::string cuda_graph = "auto";
        int threads = 0;           ///< 0: auto, this rank's share of the cores it may use
        std::int64_t devices = 1;  ///< that each process drives, a thread and a rank for each
        std::string log = "info";
        bool trace_samples = false;
        std::string resume = "auto";    ///< auto, none, or a checkpoint
        std::string init_from;          ///< weights that a fresh run starts from; empty: random ones
        std::string progress = "auto";  ///< auto: on a terminal; on; off
        std::string time_limit = "auto";
        std::string stall_timeout = "10 minutes";
        std::int64_t check_every = 1000;
    } run;
    struct {
        std::string train, valid, test;
        std::string x = "/x", y = "/y";
        std::string kind = "auto";
        std::string normalize = "none";
        std::string cache = "auto";
        int prefetch = 2;
        std::string shuffle = "full";
        std::int64_t chunk = 1024;
        bool drop_last = false;
        std::string augment = "none";  ///< none, or "crop=4 flip"
    } data;
    struct {
        std::string arch = "mlp";  ///< a preset; unused where there are layer lines
        std::vector<std::string> layers;
        std::vector<std::int64_t> width = {128};  ///< mlp: one width, or one per hidden layer
        std::int64_t depth = 2;                   ///< mlp: hidden layers where width is one number
        std::int64_t channels = 0;  ///< cnn, resnet18: channels of the first stage; 0: the preset's
        std::string activation = "relu";
        double dropout = 0;
        bool batchnorm = false;
        std::int64_t blocks = 6, d_model = 384, heads = 6, kv_heads = 0, ffn = 0, vocab = 0;  ///< gpt, vit
        std::int64_t patch = 4;
        std::string norm = "layernorm", ffn_kind = "gelu", positions = "learned";
        bool tied = true;
        std::int64_t context = 256;  ///< gpt: positions of a window; inputs of a window of token data
        std::string loss = "cross_entropy";
        std::string init = "kaiming";
    } model;
    struct {
        std::int64_t epochs = 0;
        std::int64_t max_steps = 0;  ///< 0: none
        std::int64_t batch = 64;
        std::int64_t lanes = 0;       ///< 0: auto
        std::int64_t lane_batch = 0;  ///< 0: no bound
        int lane_threads = 0;         ///< 0: auto, run.threads; 1 in the reproducible mode
        std::string precision = "fp32";
        double ema = 0;         ///< decay of the moving average of the weights; 0: none is kept
        bool eval_ema = false;  ///< validate, evaluate and predict with the average
        double clip_norm = 0;
        double label_smoothing = 0;
        std::int64_t ignore_index = -100;
        std::string reduction = "fast";
        Every eval_every = {.epochs = 1};
        std::int64_t early_stop = 0;  ///< validations without a better metric; 0: off
        std::int64_t log_every = 1;   ///< steps between two step lines in metrics.jsonl
    } train;
    struct {
        std::string name = "adamw";
        double lr = 1e-3;
        std::vector<double> betas;  ///< empty: auto, the optimizer's usual ones
        double eps = 1e-8;
        bool amsgrad = false;
        double momentum = 0;
        double dampening = 0;
        bool nesterov = false;
        double trust = 1e-3;
        double weight_decay = 0;
        std::vector<std::string> rules;
        std::string scale_lr = "none";
        std::int64_t base_batch = 256;
    } optim;
    struct {
        std::string name = "constant";
        std::int64_t warmup_steps = 0;
        double warmup_epochs = 0;
        double min_lr = 0;
        std::int64_t steps = 0;      ///< horizon; 0: epochs x steps per epoch, or max_steps
        std::int64_t step_size = 0;  ///< step, exponential: updates to a drop; 0: a third of the horizon
        double gamma = 0.1;
        double power = 1;
        std::int64_t cycle = 0;  ///< cosine_restarts: updates of the first cycle; 0: the horizon
        double cycle_factor = 1;
        double start_factor = 25, final_factor = 10000;
        std::int64_t patience = 10, cooldown = 0;
        double threshold = 1e-4;
    } schedule;
    struct {
        double init = 65536, growth = 2, backoff = 0.5;
        std::int64_t interval = 2000;
        double min = 1e-4;
        std::int64_t max_skips = 50;
    } scaler;
    struct {
        std::int64_t tensor = 1;
        bool allow_spread = false;
        bool sequence = false;  ///< split norms and dropouts along the sequence over the tensor group
        std::int64_t pipeline = 1;
        std::string schedule = "1f1b";  ///< gpipe, 1f1b, interleaved
        std::int64_t chunks = 0;  ///< stages on each rank of an interleaved pipeline; 0: 2 there, else 1
        std::int64_t zero = 0;    ///< what is sharded over the data ranks: 1 states, 2 gradients, 3 weights
        double bucket_mb = 25;
        std::string overlap =
            "auto";  ///< reduce while backward goes on: auto (where a core is spare), on, off
        std::string reduce_dtype = "fp32";
    } parallel;
    struct {
        Every every = {.epochs = 1};
        std::int64_t keep = 3;
        std::string best = "auto";  ///< auto: accuracy where there is one, else loss; accuracy; loss
        bool async = true;
    } checkpoint;
    struct {
        std::vector<std::string> params;  ///< "optim.lr loguniform 1e-4 1e-1"
        std::string method = "grid";
        std::int64_t trials = 0;  ///< 0: the whole grid; random: 16
        std::int64_t ranks_per_trial = 1;
        std::uint64_t seed = 1;
        std::int64_t halving = 0;  ///< of so many trials one goes on; 0: all train to the end
        std::int64_t min_epochs = 1;
    } sweep;  ///< of `trireme sweep` alone: no part of a run's own configuration
    struct {
        bool enable = false;
        std::string trace;  ///< file; empty: none
        std::int64_t steps = 20;
    } profile;
};

/// One row of the table.
struct ConfigKey {
    std::string key;        ///< "train.batch"
    std::string fallback;   ///< the default, as text
    std::string help;       ///< one sentence, with the accepted values
    bool repeated = false;  ///< may be given several times (model.layer)
};
const std::vector<ConfigKey>& config_keys();

/// Sets one field. @throws Error (bad_usage) naming key, value and what was expected; for unknown keys with
/// the nearest known one.
void set_config(Config& config, const std::string& key, const std::string& value);
/// The field as text.
std::string get_config(const Config& config, const std::string& key);

/// Contradictions between keys and missing ones. @throws Error (bad_usage) naming them.
void check_config(const Config& config);

/// What makes the best checkpoint: the higher accuracy, or the lower loss.
bool best_is_accuracy(const Config& config);

/// INI text with every key of the struct in table order, re-runnable as it stands.
std::string config_text(const Config& config);
/// Reads what config_text wrote (or a person did): sections, key = value, # and ; comments, repeated keys.
std::vector<std::pair<std::string, std::string>> parse_ini(const std::string& text,
                                                           const std::string& source);
Config config_from_text(const std::string& text, const std::string& source);

/// The keys in which two configurations differ: "train.batch: 64 -> 128".
std::vector<std::string> config_differences(const Config& saved, const Config& now);

}  // namespace trireme
