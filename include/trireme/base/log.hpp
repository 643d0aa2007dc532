// The rank-aware log: messages to stderr. Rank 0 speaks for all; what only one rank knows carries its number.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

enum class LogLevel { debug, info, warning, error };

/// Parses "debug", "info", "warning" or "error". @throws Error (bad_usage) on anything else.
LogLevel log_level_from(std::string_view name);

class Log {
public:
    Log(int rank, LogLevel level) : rank_(rank), level_(level) {}

    /// Said once for the whole job: only rank 0 prints.
    void debug(std::string_view message) const { once(LogLevel::debug, message); }
    void info(std::string_view message) const { once(LogLevel::info, message); }
    void warning(std::string_view message) const { once(LogLevel::warning, message); }

    /// Said by this rank, whichever it is, with its number in front.
    void from_this_rank(LogLevel level, std::string_view message) const;

    LogLevel level() const { return level_; }
    int rank() const { return rank_; }

private:
    void once(LogLevel level, std::string_view message) const;

    int rank_;
    LogLevel level_;
};

}  // namespace trireme
