// The commands: one table, one row from each command's own file.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "app/options.hpp"
#include "trireme/train/runtime.hpp"

namespace trireme::app {

struct CommandOption {
    std::string name;
    std::string value;  ///< what stands for the value in the usage; empty: a flag without one
    std::string help;
};

struct Command {
    std::string name;
    std::string arguments;  ///< for the usage line: "[run.ini] [--section.key=value ...]"
    std::string summary;    ///< one line
    std::string help;       ///< a paragraph
    std::vector<CommandOption> options = {};
    std::size_t least_arguments = 0, most_arguments = 0;
    bool takes_keys = false;     ///< accepts --section.key=value
    bool reads_ini = false;      ///< its argument is a configuration file
    bool across_ranks = true;    ///< meant for several ranks: the launch is checked
    bool heeds_signals = false;  ///< stops in order on SIGTERM and SIGUSR1
    bool own_mesh = true;        ///< runs on the mesh and the devices of its configuration; else on CPUs
    /// Returns the exit status. `config`: defaults, the file if it reads one, and the command line.
    int (*run)(Runtime& runtime, const CommandLine& line, const Config& config) = nullptr;
};

Command import_command();
Command train_command();
Command eval_command();
Command predict_command();
Command generate_command();
Command export_command();
Command report_command();
Command info_command();
Command plan_command();
Command doctor_command();
Command bench_command();
Command sweep_command();

/// All that are built, in the order of the overview.
const std::vector<Command>& commands();
/// Nothing where there is no such command.
const Command* find_command(const std::string& name);

}  // namespace trireme::app
