// The configuration: the table of keys, texts in both directions, what is refused and in which words.
#include "support/catch.hpp"

#include <clocale>
#include <functional>
#include <locale>
#include <map>
#include <string>

#include "app/options.hpp"
#include "trireme/base/error.hpp"
#include "trireme/train/config.hpp"

using namespace trireme;
using trireme::testing::contains;

namespace {

/// The message of the Error that `action` throws; its status must be "wrong usage", raised by all ranks
/// alike.
std::string refusal(const std::function<void()>& action) {
    try {
        action();
    } catch (const Error& error) {
        CHECK(error.status() == Status::bad_usage);
        CHECK(error.scope() == Scope::all_ranks);
        return error.what();
    }
    return "(accepted)";
}

std::string refusal(const std::string& key, const std::string& value) {
    Config config;
    return refusal([&] { set_config(config, key, value); });
}

/// For every key of the struct a value other than the default.
const std::map<std::string, std::string> other_values = {
    {"run.dir", "runs/a b"},
    {"run.seed", "9223372036854775807"},
    {"run.device", "cpu"},
    {"run.threads", "3"},
    {"run.log", "warning"},
    {"run.trace_samples", "true"},
    {"run.resume", "runs/x/checkpoints/best.h5"},
    {"run.init_from", "weights.safetensors"},
    {"run.progress", "off"},
    {"run.time_limit", "1-02:03:04"},
    {"run.stall_timeout", "30 seconds"},
    {"run.check_every", "7"},
    {"data.train", "data/train #1-*.h5, b ; c.h5"},
    {"data.valid", "v-*.h5"},
    {"data.test", "\"quoted\" \\ .h5"},
    {"data.x", "/images"},
    {"data.y", "/labels"},
    {"data.kind", "tokens"},
    {"data.normalize", "standard"},
    {"data.cache", "memory"},
    {"data.prefetch", "7"},
    {"data.shuffle", "chunk"},
    {"data.chunk", "16"},
    {"data.drop_last", "true"},
    {"data.augment", "crop=4 flip"},
    {"model.arch", "cnn"},
    {"model.layer", "flatten | linear out=classes"},
    {"model.width", "512, 256"},
    {"model.depth", "0"},
    {"model.channels", "8"},
    {"model.activation", "gelu_tanh"},
    {"model.dropout", "0.1"},
    {"model.batchnorm", "true"},
    {"model.context", "512"},
    {"model.layers", "2"},
    {"model.d_model", "64"},
    {"model.heads", "4"},
    {"model.kv_heads", "2"},
    {"model.ffn", "100"},
    {"model.ffn_kind", "swiglu"},
    {"model.norm", "rmsnorm"},
    {"model.positions", "rotary"},
    {"model.vocab", "256"},
    {"model.tied", "false"},
    {"model.patch", "7"},
    {"model.loss", "mse"},
    {"model.init", "normal std=0.02"},
    {"train.epochs", "3"},
    {"train.max_steps", "9"},
    {"train.batch", "1"},
    {"train.lanes", "5"},
    {"train.lane_batch", "13"},
    {"train.lane_threads", "2"},
    {"train.precision", "bf16"},
    {"train.ema", "0.999"},
    {"train.eval_ema", "true"},
    {"train.clip_norm", "1.5"},
    {"train.label_smoothing", "0.05"},
    {"train.ignore_index", "-1"},
    {"train.reduction", "reproducible"},
    {"train.eval_every", "500 steps"},
    {"train.early_stop", "4"},
    {"train.log_every", "10"},
    {"optim.name", "sgd"},
    {"optim.lr", "3e-05"},
    {"optim.betas", "0.8, 0.95"},
    {"optim.eps", "1e-06"},
    {"optim.amsgrad", "true"},
    {"optim.momentum", "0.9"},
    {"optim.dampening", "0.1"},
    {"optim.trust", "0.02"},
    {"optim.rule", "*.bias lr=2x decay=0 | fc.* lr=0.1"},
    {"optim.nesterov", "true"},
    {"optim.weight_decay", "0.01"},
    {"optim.scale_lr", "linear"},
    {"optim.base_batch", "32"},
    {"schedule.name", "cosine"},
    {"schedule.warmup_steps", "10"},
    {"schedule.warmup_epochs", "1.5"},
    {"schedule.min_lr", "1e-06"},
    {"schedule.steps", "100"},
    {"schedule.step_size", "30"},
    {"schedule.gamma", "0.5"},
    {"schedule.power", "2"},
    {"schedule.cycle", "40"},
    {"schedule.cycle_factor", "1.5"},
    {"schedule.start_factor", "10"},
    {"schedule.final_factor", "100"},
    {"schedule.patience", "3"},
    {"schedule.threshold", "0.01"},
    {"schedule.cooldown", "2"},
    {"scaler.init", "1024"},
    {"scaler.growth", "4"},
    {"scaler.backoff", "0.25"},
    {"scaler.interval", "100"},
    {"scaler.min", "0.001"},
    {"scaler.max_skips", "5"},
    {"parallel.tensor", "2"},
    {"parallel.allow_spread", "true"},
    {"parallel.sequence", "true"},
    {"parallel.pipeline", "2"},
    {"parallel.schedule", "interleaved"},
    {"parallel.chunks", "3"},
    {"parallel.zero", "2"},
    {"run.devices", "2"},
    {"run.share_gpu", "true"},
    {"run.cuda_graph", "off"},
    {"sweep.param", "optim.lr choice 1, 2"},
    {"sweep.method", "random"},
    {"sweep.trials", "3"},
    {"sweep.ranks_per_trial", "2"},
    {"sweep.seed", "7"},
    {"sweep.halving", "3"},
    {"sweep.min_epochs", "2"},
    {"profile.enable", "true"},
    {"profile.trace", "trace.json"},
    {"profile.steps", "5"},
    {"parallel.reduce_dtype", "bf16"},
    {"parallel.bucket_mb", "0.5"},
    {"parallel.overlap", "off"},
    {"checkpoint.every", "10 minutes"},
    {"checkpoint.keep", "1"},
    {"checkpoint.async", "false"},
    {"checkpoint.best", "loss"},
};

}  // namespace

TEST_CASE("every key goes from text to field and back", "[unit][app]") {
    for (const ConfigKey& key : config_keys()) {
        INFO(key.key);
        CHECK_FALSE(key.help.empty());
        Config config;
        CHECK(get_config(config, key.key) == key.fallback);
        if (!key.repeated) {
            set_config(config, key.key, key.fallback);  // a default can always be written out
            CHECK(config_differences(Config{}, config).empty());
        }
        REQUIRE(other_values.contains(key.key));
        const std::string& value = other_values.at(key.key);
        CHECK(value != key.fallback);
        set_config(config, key.key, value);
        CHECK(get_config(config, key.key) == value);
        const bool of_runs = !key.key.starts_with("sweep.");  // a sweep's keys are no part of its trials
        CHECK(config_differences(Config{}, config).size() == (of_runs ? 1 : 0));
    }
}

TEST_CASE("a configuration written as INI reads back the same", "[unit][app]") {
    Config config;
    for (const auto& [key, value] : other_values) set_config(config, key, value);
    const std::string text = config_text(config);
    INFO(text);
    const Config again = config_from_text(text, "config.ini");
    CHECK(config_differences(config, again).empty());
    CHECK(config_text(again) == text);
    CHECK(again.model.layers == std::vector<std::string>{"flatten", "linear out=classes"});

    CHECK(config_differences(Config{}, config_from_text(config_text(Config{}), "defaults.ini")).empty());
    CHECK(config_differences(Config{}, config_from_text("", "empty.ini")).empty());
}

TEST_CASE("defaults and their other names", "[unit][app]") {
    Config config;
    CHECK(get_config(config, "run.threads") == "auto");
    CHECK(get_config(config, "train.lanes") == "auto");
    CHECK(get_config(config, "train.lane_threads") == "auto");
    CHECK(get_config(config, "optim.lr") == "0.001");
    CHECK(get_config(config, "optim.betas") == "auto");
    CHECK(get_config(config, "train.eval_every") == "1 epoch");

    for (const char* key : {"run.threads", "train.lanes", "train.lane_threads"}) {
        set_config(config, key, "4");
        set_config(config, key, "auto");
        CHECK(get_config(config, key) == "auto");
        set_config(config, key, "0");
        CHECK(get_config(config, key) == "auto");
    }
    set_config(config, "train.eval_every", "never");
    CHECK(config.train.eval_every == Every{});
    set_config(config, "checkpoint.every", "2 epochs");
    CHECK(config.checkpoint.every == Every{.epochs = 2});
    set_config(config, "checkpoint.every", "0.5 minutes");
    CHECK(config.checkpoint.every.minutes == 0.5);
    set_config(config, "data.drop_last", "yes");
    CHECK(config.data.drop_last);
    set_config(config, "model.width", "64 32,16");
    CHECK(config.model.width == std::vector<std::int64_t>{64, 32, 16});
}

TEST_CASE("layer lines add up, and an empty one clears them", "[unit][app]") {
    Config config;
    set_config(config, "model.layer", "conv out=8 kernel=3");
    set_config(config, "model.layer", "relu");
    CHECK(config.model.layers == std::vector<std::string>{"conv out=8 kernel=3", "relu"});
    set_config(config, "model.layer", "");
    CHECK(config.model.layers.empty());

    config = config_from_text("[model]\nlayer = a\nlayer = b\nlayer = c\n", "x.ini");
    app::apply_settings(config, {{"model.layer", "d"}, {"train.epochs", "2"}, {"model.layer", "e"}});
    CHECK(config.model.layers == std::vector<std::string>{"d", "e"});  // the command line wins over the file
}

TEST_CASE("values that do not parse are refused with key, value and what was expected", "[unit][app]") {
    CHECK(refusal("train.batch", "0") == "train.batch=0: expected an integer, at least 1");
    CHECK(refusal("optim.lr", "fast") == "optim.lr=fast: expected a number, at least 0");
    CHECK(refusal("optim.name", "sdg") == "optim.name=sdg: expected sgd, adam, adamw, lamb, lars or lion");
    CHECK(refusal("data.drop_last", "maybe") == "data.drop_last=maybe: expected true or false");
    CHECK(refusal("model.dropout", "1") == "model.dropout=1: expected a number, at least 0 and below 1");
    CHECK(refusal("optim.eps", "0") == "optim.eps=0: expected a number, above 0");

    const std::pair<const char*, const char*> bad[] = {
        {"run.seed", "-1"},
        {"run.seed", "x"},
        {"run.threads", "-1"},
        {"run.threads", "many"},
        {"run.threads", "3000000000"},
        {"run.device", "gpu"},
        {"run.log", "loud"},
        {"run.resume", ""},
        {"run.progress", "yes"},
        {"run.dir", "a\nb"},
        {"data.normalize", "z"},
        {"data.cache", "disk"},
        {"data.prefetch", "0"},
        {"data.shuffle", "true"},
        {"data.chunk", "0"},
        {"data.augment", "crop"},
        {"data.augment", "crop=0"},
        {"data.augment", "none flip"},
        {"data.augment", ""},
        {"data.kind", "images"},
        {"model.arch", "vgg"},
        {"model.width", ""},
        {"model.width", "64, x"},
        {"model.width", "0"},
        {"model.depth", "-1"},
        {"model.activation", "swish"},
        {"model.dropout", "-0.1"},
        {"model.loss", "l1"},
        {"model.init", "he"},
        {"model.init", "normal 0.02"},
        {"model.init", "zeros value=1"},
        {"train.epochs", "-1"},
        {"train.epochs", "1.5"},
        {"train.batch", "64k"},
        {"train.batch", ""},
        {"train.batch", "1 2"},
        {"train.clip_norm", "-1"},
        {"train.clip_norm", "nan"},
        {"train.clip_norm", "inf"},
        {"train.label_smoothing", "1"},
        {"train.reduction", "exact"},
        {"train.eval_every", "5"},
        {"train.eval_every", "0 epochs"},
        {"train.eval_every", "10 minutes"},
        {"train.eval_every", "1 day"},
        {"train.log_every", "0"},
        {"optim.lr", "0,1"},
        {"optim.lr", "-1"},
        {"optim.betas", "0.9"},
        {"optim.betas", "0.9, 1"},
        {"optim.betas", "0.9, 0.99, 0.999"},
        {"optim.momentum", "1"},
        {"optim.scale_lr", "log"},
        {"schedule.name", "cos"},
        {"schedule.gamma", "0"},
        {"parallel.bucket_mb", "0"},
        {"parallel.overlap", "true"},
        {"checkpoint.keep", "0"},
        {"checkpoint.every", "1.5 epochs"},
        {"checkpoint.every", "epoch"},
        {"checkpoint.best", "error"},
    };
    for (const auto& [key, value] : bad) {
        const std::string message = refusal(key, value);
        CHECK_THAT(message, contains(std::string(key) + "=" + value + ": expected "));
    }
}

TEST_CASE("what is announced says so", "[unit][app]") {
    CHECK(refusal("model.arch", "resnet") ==
          "model.arch=resnet: announced, but not built in this version (expected mlp, cnn, resnet18, gpt or "
          "vit)");
}

TEST_CASE("unknown keys come with the nearest known one", "[unit][app]") {
    CHECK(refusal("train.bat", "4") == "unknown key train.bat; did you mean train.batch?");
    for (const auto& [wrong, meant] : {std::pair{"optim.learning_rat", "optim.lr"},
                                       {"optim.learning_rate", "optim.lr"},
                                       {"learning_rat", "optim.lr"},
                                       {"train.lr", "optim.lr"},
                                       {"train.batch_size", "train.batch"},
                                       {"batch", "train.batch"},
                                       {"epoch", "train.epochs"},
                                       {"run.sed", "run.seed"},
                                       {"model.layrs", "model.layers"},
                                       {"checkpoint.evry", "checkpoint.every"},
                                       {"train.weight_decay", "optim.weight_decay"},
                                       {"data.tarin", "data.train"}}) {
        INFO(wrong);
        CHECK_THAT(refusal(wrong, "1"), contains(std::string("did you mean ") + meant + "?"));
    }
    CHECK_THAT(refusal("zzzzzzzzz", "1"), contains("unknown key zzzzzzzzz; `trireme train --help`"));
}

TEST_CASE("INI: comments, quotes, blanks, line numbers", "[unit][app]") {
    const std::string text =
        "\xEF\xBB\xBF# head\r\n"
        "; another\r\n"
        "\r\n"
        "  [ data ]  # section\r\n"
        "train = a#b;c.h5   # a comment\r\n"
        "valid = \"a # b\" ; comment\r\n"
        "test=\"say \\\"x\\\" \\\\\"\r\n"
        "[model]\r\n"
        "layer = linear out=classes\r\n"
        "layer = relu ; twice is fine\r\n"
        "[optim]\r\n"
        "lr=\t3e-3";
    const auto pairs = parse_ini(text, "x.ini");
    REQUIRE(pairs.size() == 6);
    CHECK(pairs[0] == std::pair<std::string, std::string>("data.train", "a#b;c.h5"));
    CHECK(pairs[1].second == "a # b");
    CHECK(pairs[2].second == "say \"x\" \\");
    CHECK(pairs[3] == std::pair<std::string, std::string>("model.layer", "linear out=classes"));
    CHECK(pairs[4].second == "relu");
    CHECK(config_from_text(text, "x.ini").optim.lr == 3e-3);

    const auto wrong = [](const std::string& ini) {
        return refusal([&] { config_from_text(ini, "run.ini"); });
    };
    CHECK(wrong("[train]\n\n# c\nlearning_rat = 0.5\n") ==
          "run.ini line 4: unknown key train.learning_rat; did you mean optim.lr?");
    CHECK(wrong("[train]\nbatch = many\n") ==
          "run.ini line 2: train.batch=many: expected an integer, at least 1");
    CHECK(wrong("[train]\nbatch = 1\nepochs = 2\nbatch = 3\n") ==
          "run.ini line 4: train.batch is given a second time (first in line 2)");
    CHECK(wrong("[train]\nbatch\n") == "run.ini line 2: expected [section] or key = value, found: batch");
    CHECK(wrong("[train\nbatch=1\n") == "run.ini line 1: expected [section], found: [train");
    CHECK_THAT(wrong("\n[data]\ntrain = \"a\n"), contains("run.ini line 3: the closing quote is missing"));
    CHECK_THAT(wrong("[data]\ntrain = \"a\" b\n"),
               contains("run.ini line 2: text after the closing quote: b"));
    CHECK_THAT(wrong("[checkpoint]\nasync = perhaps\n"),
               contains("run.ini line 2: checkpoint.async=perhaps: expected"));
    CHECK_THAT(wrong("batch = 4\n"),
               contains("run.ini line 1: unknown key batch; did you mean train.batch?"));
}

TEST_CASE("contradictions between keys are named", "[unit][app]") {
    const auto check = [](const app::Settings& settings) {
        Config config;
        app::apply_settings(config, {{"data.train", "x.h5"}, {"train.epochs", "1"}});
        app::apply_settings(config, settings);
        return refusal([&] { check_config(config); });
    };
    CHECK(check({}) == "(accepted)");
    CHECK(check({{"train.epochs", "0"}, {"train.max_steps", "5"}}) == "(accepted)");
    CHECK(check({{"train.lanes", "100"}, {"train.batch", "8"}}) == "(accepted)");  // some lanes are empty
    CHECK_THAT(check({{"data.train", ""}}), contains("data.train is missing"));
    CHECK_THAT(check({{"train.epochs", "0"}}), contains("train.epochs or train.max_steps"));
    CHECK_THAT(check({{"train.label_smoothing", "0.1"}, {"model.loss", "mse"}}),
               contains("train.label_smoothing=0.1 needs model.loss=cross_entropy, not mse"));
    CHECK_THAT(check({{"train.early_stop", "3"}}), contains("data.valid"));
    CHECK_THAT(check({{"train.early_stop", "3"}, {"data.valid", "v.h5"}, {"train.eval_every", "never"}}),
               contains("train.eval_every=never"));
    CHECK_THAT(check({{"optim.nesterov", "true"}}), contains("optim.nesterov=true needs"));
    CHECK_THAT(check({{"optim.momentum", "0.9"}}), contains("optim.name=sgd"));
    CHECK_THAT(check({{"schedule.warmup_steps", "5"}, {"schedule.warmup_epochs", "1"}}),
               contains("only one of the two"));
    CHECK_THAT(check({{"schedule.min_lr", "1"}}), contains("schedule.min_lr=1 is above optim.lr=0.001"));
    CHECK_THAT(check({{"train.lanes", "2"}, {"train.lane_batch", "16"}}),
               contains("train.lanes=2 with train.lane_batch=16"));
    CHECK(check({{"train.lanes", "4"}, {"train.lane_batch", "16"}}) == "(accepted)");
    CHECK_THAT(check({{"checkpoint.best", "accuracy"}, {"model.loss", "mse"}}), contains("has no accuracy"));
}

TEST_CASE("differences name key, old and new value", "[unit][app]") {
    Config saved, now;
    set_config(now, "train.batch", "128");
    set_config(now, "data.valid", "v.h5");
    CHECK(config_differences(saved, now) ==
          std::vector<std::string>{"data.valid: (empty) -> v.h5", "train.batch: 64 -> 128"});
}

TEST_CASE("command lines: what belongs to what", "[unit][app]") {
    const app::CommandLine line =
        app::parse_command_line({"train", "--train.batch=4", "run.ini", "--optim.lr", "0.3",
                                 "--data.valid=", "--train.ignore_index", "-1"});
    CHECK(line.command == "train");
    CHECK(line.arguments == std::vector<std::string>{"run.ini"});
    CHECK(line.settings ==
          app::Settings{
              {"train.batch", "4"}, {"optim.lr", "0.3"}, {"data.valid", ""}, {"train.ignore_index", "-1"}});
    const app::CommandLine eval = app::parse_command_line({"eval", "a.h5", "--json", "--data", "v.h5"});
    CHECK(eval.has("json"));
    CHECK(eval.option("data") == "v.h5");
    CHECK(app::parse_command_line({"train", "run.ini", "--help"}).help);

    for (const char* abbreviated : {"--train.bat=4", "--train.batc=4", "--hel", "--run.see=1"})
        CHECK_THAT(refusal([&] {
                       app::parse_command_line({"train", abbreviated});
                   }),
                   contains("unknown option --"));
    CHECK_THAT(refusal([] {
                   app::parse_command_line({"train", "--train.batch=1", "--train.batch=2"});
               }),
               contains("--train.batch is given twice"));
    CHECK(app::default_run_dir("jobs/digits.ini") == "runs/digits");
    CHECK(app::default_run_dir("") == "runs/train");
}

namespace {

struct CommaPunctuation : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
};

void check_numbers() {
    Config config;
    set_config(config, "optim.lr", "0.1");
    set_config(config, "train.max_steps", "1234567");
    CHECK(config.optim.lr == 0.1);
    CHECK(get_config(config, "optim.lr") == "0.1");
    CHECK(get_config(config, "train.max_steps") == "1234567");
    const Config again = config_from_text(config_text(config), "x.ini");
    CHECK(again.optim.lr == 0.1);
    CHECK_THAT(refusal("optim.lr", "0,1"), contains("optim.lr=0,1: expected a number"));
}

}  // namespace

TEST_CASE("0.1 stays 0.1 under a comma locale", "[unit][app]") {
    SECTION("of the C++ library") {
        const std::locale before =
            std::locale::global(std::locale(std::locale::classic(), new CommaPunctuation));
        check_numbers();
        std::locale::global(before);
    }
    SECTION("of the C library") {
        const std::string before = std::setlocale(LC_ALL, nullptr);
        const char* found = nullptr;
        for (const char* name : {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"})
            if (found == nullptr) found = std::setlocale(LC_ALL, name);
        if (found == nullptr)
            WARN("skipped: neither de_DE.UTF-8 nor fr_FR.UTF-8 is installed");
        else
            check_numbers();
        std::setlocale(LC_ALL, before.c_str());
    }
}
