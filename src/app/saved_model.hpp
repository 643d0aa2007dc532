// Which checkpoint and which data eval and predict are about.
#pragma once

#include <string>

#include "app/commands.hpp"

namespace trireme::app {

struct SavedModel {
    std::string checkpoint;  ///< or a .safetensors file
    Config config;           ///< data keys and batch as saved with it, changed by the command line
    std::string data;  ///< pattern: --data, else the test set, else the validation set of the configuration
};

/// The run directory that an argument stands for: itself, or that of a configuration file's run; empty where
/// it is neither. Collective.
std::string run_directory(Communicator& world, const std::string& argument);

/// A checkpoint as it is named, or that of a run directory or of a configuration file's run: best.h5, else
/// the newest whole step checkpoint. One rank looks; collective.
/// @throws Error (bad_data, all ranks) naming the directory when it has none.
std::string find_checkpoint(Runtime& runtime, const std::string& argument);

/// The configuration saved with a checkpoint, changed by the command line. Collective.
/// @throws Error (bad_data, all ranks) for the checkpoint.
Config saved_config(Runtime& runtime, const CommandLine& line, const Config& given,
                    const std::string& checkpoint);

/// Instead of a checkpoint the first argument may be a .safetensors file; the second one is then a
/// configuration file, or a run directory, with its model. Collective. @throws Error (all ranks): bad_data
/// for the checkpoint, bad_usage when there is no data set to take.
SavedModel find_saved_model(Runtime& runtime, const CommandLine& line, const Config& given);

/// Options and keys that the two commands share.
CommandOption data_option();

}  // namespace trireme::app
