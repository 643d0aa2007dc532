// What --help, --version and doc/configuration.md say.
#pragma once

#include <string>
#include <vector>

#include "app/commands.hpp"

namespace trireme::app {

std::string overview_text();
std::string command_help_text(const Command& command);
/// doc/configuration.md, whole.
std::string configuration_markdown();

/// Rows of two: "MPI", "Open MPI v4.1.4 (openmpi)".
std::vector<std::vector<std::string>> version_rows();
/// Program, compiler and libraries, one a line; `more` follows as further lines of two columns.
std::string version_text(const std::vector<std::vector<std::string>>& more = {});

}  // namespace trireme::app
