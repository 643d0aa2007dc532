#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/describe.hpp"
#include "app/help.hpp"
#include "app/plan_tables.hpp"
#include "app/saved_model.hpp"
#include "app/text.hpp"
#include "trireme/base/build_info.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/checkpoint/checkpoint.hpp"
#include "trireme/comm/agree.hpp"
#include "trireme/io/hdf5.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme::app {
namespace {

namespace fs = std::filesystem;

enum class Kind : int { dataset, checkpoint, run, folder };

/// What the single argument is. One rank looks.
Kind kind_of(Communicator& world, const std::string& argument) {
    Kind kind = Kind::dataset;
    agreed_by_one(world, [&] {
        if (argument.ends_with(".ini")) {
            kind = Kind::run;
        } else if (fs::is_directory(argument)) {
            kind = fs::is_directory(fs::path(argument) / "checkpoints") ? Kind::run : Kind::folder;
        } else if (fs::is_regular_file(argument)) {
            const io::File file(argument, io::Access::read);
            if (file.has("/model") || file.has("/position")) kind = Kind::checkpoint;
        }
    });
    return static_cast<Kind>(broadcast_value(world, static_cast<int>(kind)));
}

/// Name and vector units of the processor, as the kernel tells them; empty where it does not.
std::string processor() {
    std::ifstream file("/proc/cpuinfo");
    std::string line, name, units;
    while (std::getline(file, line) && (name.empty() || units.empty())) {
        const std::string value(trim(line.substr(std::min(line.find(':'), line.size() - 1) + 1)));
        if (line.starts_with("model name")) name = value;
        if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
        for (const std::string& flag : split(value, ' '))
            for (const char* unit :
                 {"avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve", "bf16"})
                if (flag == unit) units += (units.empty() ? "" : " ") + flag;
        if (units.empty()) units = "no vector units of interest";
    }
    return name.empty() ? units : name + (units.empty() ? "" : " (" + units + ")");
}

/// 0 where it is not given.
std::int64_t context_of(const CommandLine& line) {
    if (!line.has("context")) return 0;
    const auto context = parse_int(line.option("context"));
    if (!context || *context < 1 || *context > INT32_MAX)
        throw usage_error("--context=" + line.option("context") + ": expected an integer from 1 to " +
                          std::to_string(INT32_MAX));
    return *context;
}

/// The configuration's mesh need not be there.
std::string memory_of(Runtime& runtime, const CommandLine& line) {
    if (line.arguments.size() != 1 || !line.arguments.front().ends_with(".ini"))
        throw usage_error("--memory: expected one configuration, as in trireme info --memory run.ini");
    const Config config = resolve_config(runtime.session.world(), line.arguments.front(), line.settings);
    check_config(config);
    const std::int64_t here = runtime.session.size();
    const std::int64_t smallest = config.parallel.tensor * config.parallel.pipeline;
    return describe_memory(runtime, config, ranks_option(line.option("ranks"), std::max(here, smallest)),
                           line.has("json"));
}

int run(Runtime& runtime, const CommandLine& line, const Config&) {
    Communicator& world = runtime.session.world();
    const bool json = line.has("json");
    const bool memory = line.has("memory");
    if (!memory && (!line.settings.empty() || line.has("ranks")))
        throw usage_error("--" + (line.settings.empty() ? "ranks" : line.settings.front().first) +
                          " is of use with --memory only");
    const std::int64_t context = context_of(line);
    const auto say = [&](const std::string& text) {
        if (world.rank() == 0) print(text);
    };
    if (memory) {
        say(memory_of(runtime, line));
        return 0;
    }
    if (line.arguments.empty()) {
        say(describe_build(runtime, json));
        return 0;
    }

    const std::string& first = line.arguments.front();
    const Kind kind = line.arguments.size() > 1 ? Kind::dataset : kind_of(world, first);
    const std::string checkpoint = kind == Kind::run ? find_checkpoint(runtime, first) : first;
    if (line.has("config")) {
        say(read_checkpoint_meta(world, checkpoint).config);  // says itself what is no checkpoint
        return 0;
    }
    if (kind == Kind::checkpoint || kind == Kind::run) {
        say(describe_checkpoint(runtime, checkpoint, json));
        return 0;
    }
    const std::string patterns =
        kind == Kind::folder ? (fs::path(first) / "*.h5").string() : joined(line.arguments, ",");
    say(describe_dataset(runtime, patterns, line.option("x", "/x"), line.option("y", "/y"), context, json));
    return 0;
}

}  // namespace

std::string describe_build(Runtime& runtime, bool json) {
    const Session& session = runtime.session;
    const std::string threads = std::to_string(session.allowed_cores()) +
                                " cores that this process may use, " + std::to_string(session.core_share()) +
                                " threads a rank";
    if (!json) return version_text({{"processor", processor()}, {"threads", threads}});
    const BuildInfo build = build_info();
    const nlohmann::ordered_json object = {
        {"kind", "build"},
        {"trireme", build.version},
        {"compiler", build.compiler},
        {"build_type", build.build_type},
        {"arch", build.arch},
        {"mpi", mpi_version()},
        {"hdf5", io::hdf5_version()},
        {"maths", math_library_version()},
        {"cuda", build.cuda.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(build.cuda)},
        {"nccl", build.nccl.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(build.nccl)},
        {"processor", processor()},
        {"cores", session.allowed_cores()},
        {"threads", session.core_share()}};
    return object.dump() + "\n";
}

Command info_command() {
    return {
        .name = "info",
        .arguments = "[CHECKPOINT.h5|RUN.ini|RUN_DIR|DATA.h5 ...] [--option=value ...]",
        .summary = "describes a checkpoint, a data set, or this build; tells a run's memory beforehand",
        .help =
            "A checkpoint: its parameters, position, optimizer and configuration. A data set (files, a "
            "pattern or a directory): shapes, types, rows of each file, how often each label occurs, the "
            "range of the values; of tokens their number and the largest. Without an argument: this build "
            "and this machine. With --memory a configuration: what its ranks will allocate, which need not "
            "be "
            "there.",
        .options = {{"json", "", "Print one JSON object."},
                    {"memory", "", "Of RUN.ini and --section.key=value: the memory of each kind of rank."},
                    {"ranks", "N", "With --memory: so many ranks. Default: those that are here."},
                    {"config", "",
                     "Of a checkpoint: print the configuration alone, as a file for `trireme train`."},
                    {"x", "NAME", "Data set of the inputs. Default: /x."},
                    {"y", "NAME", "Data set of the labels or targets. Default: /y."},
                    {"context", "N", "Of tokens: say how many windows of this length they make."}},
        .most_arguments = 1000000,
        .takes_keys = true,
        .across_ranks = false,
        .own_mesh = false,
        .run = run,
    };
}

}  // namespace trireme::app
