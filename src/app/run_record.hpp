// What a run directory tells of its run: metrics.jsonl and config.ini, read with patience. Lines that are cut
// off or strange are counted, never fatal.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace trireme::app {

/// Over steps. y is NaN where the value was not finite or is missing.
struct Point {
    double x = 0, y = 0;
};
using Series = std::vector<Point>;

inline constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

struct RunRecord {
    std::string name;  ///< short, for legends
    std::string path;

    Series loss, lr, gradient_norm, rate;  ///< of training steps, ascending; rate in samples per second
    Series valid_loss, valid_accuracy, valid_error;  ///< of validations

    // Of the steps whose time is known: their samples and seconds, and what of these was exposed
    // communication and waiting for input.
    double timed_samples = 0, step_seconds = 0, communication_seconds = 0, input_seconds = 0;

    double steps = 0, epochs = 0, skipped = 0;
    double ranks = unknown, threads = unknown, parameters = unknown;
    double seconds = unknown;  ///< of all starts that came to an end
    std::string ended;         ///< reason of the last end; empty: none after the last start
    std::size_t starts = 0;
    std::size_t unreadable_lines = 0;  ///< no JSON object, or an event without what it needs

    std::map<std::string, std::string> config;  ///< key to value, repeated keys joined by " | "
    std::string config_fault;                   ///< why there is none
};

/// Reads <dir>/metrics.jsonl and <dir>/config.ini. @throws Error (bad_data) naming the directory when it has
/// no metrics.jsonl.
RunRecord read_run(const std::string& dir);

/// The last part of each path, or the whole path where that would not tell two runs apart.
void name_runs(std::vector<RunRecord>& runs);

/// The point with the largest (or smallest) y; nothing where no y is finite.
const Point* best_of(const Series& series, bool largest);

}  // namespace trireme::app
