#include "app/saved_model.hpp"

#include <filesystem>

#include "app/text.hpp"
#include "train/experiment.hpp"
#include "train/safetensors.hpp"
#include "trireme/base/error.hpp"
#include "trireme/checkpoint/checkpoint.hpp"
#include "trireme/comm/agree.hpp"

namespace trireme::app {
namespace {

namespace fs = std::filesystem;

/// The configuration of a model whose weights came without one.
Config config_beside(Runtime& runtime, const CommandLine& line, const Config& given) {
    if (line.arguments.size() < 2)
        throw usage_error(line.arguments.front() +
                          " holds weights alone: name their model's configuration as well, `trireme " +
                          line.command + " FILE.safetensors RUN.ini`");
    Communicator& world = runtime.session.world();
    const std::string& argument = line.arguments[1];
    const std::string dir = argument.ends_with(".ini") ? "" : run_directory(world, argument);
    Config config = resolve_config(world, dir.empty() ? argument : dir + "/config.ini", line.settings);
    config.run = given.run;
    return config;
}

}  // namespace

std::string run_directory(Communicator& world, const std::string& argument) {
    if (argument.ends_with(".ini")) {
        const std::string dir = resolve_config(world, argument, {}).run.dir;
        return dir.empty() ? default_run_dir(argument) : dir;
    }
    const bool is_directory = world.rank() == 0 && fs::is_directory(argument);
    return broadcast_value(world, is_directory ? 1 : 0) != 0 ? argument : "";
}

std::string find_checkpoint(Runtime& runtime, const std::string& argument) {
    Communicator& world = runtime.session.world();
    const std::string dir = run_directory(world, argument);
    if (dir.empty()) return argument;
    const std::string best = best_checkpoint_path(dir);
    if (broadcast_value(world, world.rank() == 0 && fs::exists(best) ? 1 : 0) != 0) return best;

    std::vector<std::string> rejected;
    const auto newest = newest_checkpoint(world, dir, rejected);
    for (const std::string& why : rejected) runtime.log.warning("not a whole checkpoint: " + why);
    if (!newest)
        throw Error(Status::bad_data,
                    dir + ": expected a checkpoint (" + best + " or " + step_checkpoint_path(dir, 42) +
                        ", for example), found none",
                    Scope::all_ranks);
    return *newest;
}

Config saved_config(Runtime& runtime, const CommandLine& line, const Config& given,
                    const std::string& checkpoint) {
    const CheckpointMeta meta = read_checkpoint_meta(runtime.session.world(), checkpoint);
    Config config = config_of(checkpoint, meta);
    apply_settings(config, line.settings);
    config.run = given.run;  // where and how this command runs, not how that run did
    return config;
}

SavedModel find_saved_model(Runtime& runtime, const CommandLine& line, const Config& given) {
    SavedModel model;
    if (is_safetensors(line.arguments.front())) {
        model.checkpoint = line.arguments.front();
        model.config = config_beside(runtime, line, given);
    } else {
        if (line.arguments.size() > 1)
            throw usage_error("unexpected argument " + line.arguments[1] + ": " + line.arguments.front() +
                              " brings its configuration along; change it by --section.key=value");
        model.checkpoint = find_checkpoint(runtime, line.arguments.front());
        model.config = saved_config(runtime, line, given, model.checkpoint);
    }

    const auto& data = model.config.data;
    model.data = line.option("data", data.test.empty() ? data.valid : data.test);
    if (model.data.empty())
        throw usage_error(model.checkpoint +
                          ": its configuration names neither data.test nor data.valid; give --data=PATTERN");
    return model;
}

CommandOption data_option() {
    return {"data", "PATTERN",
            "HDF5 files, a pattern or several between commas. Without it: data.test of the checkpoint's "
            "configuration, else data.valid."};
}

}  // namespace trireme::app
