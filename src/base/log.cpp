#include "trireme/base/log.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

// One fwrite per message: lines of several ranks on one terminal do not mix.
void print(LogLevel level, std::string_view who, std::string_view message) {
    const char* mark = level == LogLevel::warning ? "warning: " : level == LogLevel::error ? "error: " : "";
    const std::string line = fmt::format("trireme: {}{}{}\n", who, mark, message);
    std::fwrite(line.data(), 1, line.size(), stderr);
    std::fflush(stderr);
}

}  // namespace

LogLevel log_level_from(std::string_view name) {
    if (name == "debug") return LogLevel::debug;
    if (name == "info") return LogLevel::info;
    if (name == "warning") return LogLevel::warning;
    if (name == "error") return LogLevel::error;
    throw usage_error(fmt::format("run.log={}: expected debug, info, warning or error", name));
}

void Log::from_this_rank(LogLevel level, std::string_view message) const {
    if (level >= level_) print(level, fmt::format("rank {}: ", rank_), message);
}

void Log::once(LogLevel level, std::string_view message) const {
    if (rank_ == 0 && level >= level_) print(level, "", message);
}

}  // namespace trireme
