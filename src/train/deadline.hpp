// When this job ends by itself: run.time_limit, or the end that Slurm has set. A run that would not get
// through another step and a save before then stops in order.
#pragma once

#include <algorithm>
#include <limits>
#include <string>

namespace trireme {

/// Seconds of "90 minutes", "2 hours", "45 seconds", "1:30:00", "1-12:00:00" (days-hours:minutes:seconds), or
/// infinity for "none". @throws Error (bad_usage) naming the key on anything else but "auto" (infinity too).
double time_limit_from(const std::string& text);
/// The seconds of run.stall_timeout; 0: none. @throws likewise.
double stall_timeout_from(const std::string& text);

class Deadline {
public:
    /// `limit`: run.time_limit, from the start of the process on; auto: SLURM_JOB_END_TIME where it is set.
    explicit Deadline(const std::string& limit);

    /// Seconds until then; infinite where there is no end.
    double left() const;
    /// Whether another step and a save, each as long as the longest so far, and a reserve, would not fit.
    bool near() const { return left() < 2 * (longest_step_ + longest_save_) + reserve_; }
    /// From one step to the next, with whatever came between.
    void took_step(double seconds) { longest_step_ = std::max(longest_step_, seconds); }
    void took_save(double seconds) { longest_save_ = std::max(longest_save_, seconds); }

private:
    double end_ = std::numeric_limits<double>::infinity();  ///< as now_seconds()
    double reserve_ = 0;
    double longest_step_ = 0, longest_save_ = 0;
};

}  // namespace trireme
