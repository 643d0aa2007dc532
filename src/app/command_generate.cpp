#include <cstdio>

#include "app/saved_model.hpp"
#include "app/text.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/train/generate.hpp"

namespace trireme::app {
namespace {

template <class Parse>
auto number(const CommandLine& line, const std::string& name, double fallback, double least,
            const Parse& parse) {
    const auto value = line.has(name) ? parse(line.option(name)) : parse(to_text(fallback));
    if (!value || !(static_cast<double>(*value) >= least))  // nor NaN
        throw usage_error("--" + name + "=" + line.option(name) + ": expected a number of at least " +
                          to_text(least));
    return *value;
}

int run(Runtime& runtime, const CommandLine& line, const Config& given) {
    const std::string checkpoint = find_checkpoint(runtime, line.arguments.front());
    const Config config = saved_config(runtime, line, given, checkpoint);
    const auto integer = [](const std::string& text) { return parse_int(text); };
    const auto real = [](const std::string& text) { return parse_real(text); };
    GenerateOptions options;
    options.tokens = number(line, "tokens", 200, 0, integer);
    options.temperature = number(line, "temperature", 1, 0, real);
    options.top_k = number(line, "top_k", 0, 0, integer);
    options.seed = static_cast<std::uint64_t>(number(line, "seed", 1, 0, integer));
    const std::string prompt = line.option("prompt", "\n");
    for (const char c : prompt) options.prompt.push_back(static_cast<unsigned char>(c));

    const bool speaks = runtime.session.rank() == 0;
    if (speaks) print(prompt);
    generate(runtime, config, checkpoint, options, [&](std::int32_t token) {
        if (!speaks) return;
        std::putchar(token);
        std::fflush(stdout);
    });
    if (speaks) print("\n");
    return 0;
}

}  // namespace

Command generate_command() {
    return {
        .name = "generate",
        .arguments =
            "CHECKPOINT.h5|RUN.ini|RUN_DIR [--prompt=TEXT] [--tokens=N] [--temperature=T] [--top_k=K]",
        .summary = "continues a text with a model of bytes",
        .help =
            "Draws one token after the other from what the model expects after the last ones (as many as its "
            "context holds). The same seed gives the same text. A run directory, or the configuration file "
            "of a "
            "run, stands for its best checkpoint, or the newest one where there is no best.",
        .options = {{"prompt", "TEXT", "What to continue. Default: a new line."},
                    {"tokens", "N", "How many tokens (bytes) to add. Default: 200."},
                    {"temperature", "T", "Divides the logits; 0 always takes the likeliest. Default: 1."},
                    {"top_k", "K", "Draw from the K likeliest only; 0: from all. Default: 0."},
                    {"seed", "N", "Of the draws. Default: 1."}},
        .least_arguments = 1,
        .most_arguments = 1,
        .takes_keys = true,
        .run = run,
    };
}

}  // namespace trireme::app
