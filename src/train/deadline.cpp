#include "train/deadline.hpp"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <utility>
#include <vector>

#include "trireme/base/clock.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"

namespace trireme {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

/// "1-12:00:00", "1:30:00", "90:00": as Slurm writes times.
std::optional<double> clock_time(const std::string& text) {
    const std::size_t dash = text.find('-');
    double days = 0;
    if (dash != std::string::npos) {
        const auto number = parse_int(text.substr(0, dash));
        if (!number || *number < 0) return std::nullopt;
        days = static_cast<double>(*number);
    }
    const std::vector<std::string> parts = split(text.substr(dash == std::string::npos ? 0 : dash + 1), ':');
    if (parts.size() < 2 || parts.size() > 3) return std::nullopt;
    double seconds = 0;
    for (const std::string& part : parts) {
        const auto number = parse_int(part);
        if (!number || *number < 0) return std::nullopt;
        seconds = 60 * seconds + static_cast<double>(*number);
    }
    return 86400 * days + seconds;
}

std::optional<double> counted_time(const std::string& text) {
    const std::size_t blank = text.find(' ');
    const auto number = parse_real(text.substr(0, blank));
    if (!number || blank == std::string::npos) return std::nullopt;
    const std::string unit(trim(text.substr(blank)));
    for (const auto& [name, seconds] :
         {std::pair{"second", 1.0}, {"minute", 60.0}, {"hour", 3600.0}, {"day", 86400.0}})
        if (unit == name || unit == std::string(name) + "s") return *number * seconds;
    return std::nullopt;
}

double seconds_from(const std::string& key, const std::string& text, const std::string& words) {
    const std::optional<double> seconds =
        text.find(':') != std::string::npos ? clock_time(text) : counted_time(text);
    if (!seconds || !(*seconds > 0))
        throw usage_error(key + "=" + text + ": expected " + words +
                          ", a time such as `90 minutes` or `2 hours`, or one as Slurm writes it (1:30:00, "
                          "1-12:00:00)");
    return *seconds;
}

}  // namespace

double time_limit_from(const std::string& text) {
    return text == "auto" || text == "none" ? never : seconds_from("run.time_limit", text, "auto, none");
}

double stall_timeout_from(const std::string& text) {
    return text == "none" ? 0 : seconds_from("run.stall_timeout", text, "none");
}

Deadline::Deadline(const std::string& limit) {
    double seconds = time_limit_from(limit);
    if (seconds != never) {
        end_ = now_seconds() - seconds_since_process_start() + seconds;
    } else if (const char* end = std::getenv("SLURM_JOB_END_TIME"); limit == "auto" && end != nullptr) {
        // Seconds since 1970: of the wall clock, which may differ from now on.
        if (const auto at = parse_int(end); at && *at > 0) {
            seconds = static_cast<double>(*at) - static_cast<double>(std::time(nullptr));
            end_ = now_seconds() + seconds;
        }
    }
    // For what is not measured: the launcher's own end, and a file system that is slower this time.
    if (end_ != never) reserve_ = std::clamp(0.05 * seconds, 0.0, 30.0);
}

double Deadline::left() const {
    return end_ - now_seconds();
}

}  // namespace trireme
