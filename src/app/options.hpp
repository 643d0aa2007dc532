// The command line: which command, its arguments and options, and the configuration that file and flags add
// up to.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/communicator.hpp"
#include "trireme/train/config.hpp"

namespace trireme::app {

using Settings = std::vector<std::pair<std::string, std::string>>;

struct CommandLine {
    std::string command;                 ///< empty: none was given
    std::vector<std::string> arguments;  ///< those without a name
    Settings options;   ///< the command's own: {"data", "test-*.h5"}; flags have an empty value
    Settings settings;  ///< keys of the configuration: {"train.batch", "128"}
    bool help = false, version = false, markdown = false;

    bool has(const std::string& option) const;
    std::string option(const std::string& name, const std::string& fallback = "") const;
};

/// Reads the words after the program's name. Names are never completed: an abbreviated one is unknown.
/// @throws Error (bad_usage) naming the word, with the nearest known name.
CommandLine parse_command_line(const std::vector<std::string>& words);

/// Sets keys, in order; a first setting of a repeated key replaces what the file says.
void apply_settings(Config& config, const Settings& settings);

/// Defaults, then the file (none where the path is empty), then the command line. One rank reads the file.
/// Collective.
/// @throws Error (bad_usage, all ranks) naming the file when it is not there, and the line that is wrong.
Config resolve_config(Communicator& comm, const std::string& ini_path, const Settings& settings);

/// "runs/digits" for "jobs/digits.ini", "runs/train" without a file.
std::string default_run_dir(const std::string& ini_path);

}  // namespace trireme::app
