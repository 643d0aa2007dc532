// Where the time of a training goes: computing, communication, waiting for data, and the rest.
#pragma once

#include <string>
#include <vector>

#include "trireme/base/recorder.hpp"
#include "trireme/comm/communicator.hpp"

namespace trireme {

/// A rank's seconds. The activities add up to `wall`; `hidden` lies beside them.
struct RankTimes {
    double wall = 0;
    ActivityTimes activities{};
    double hidden = 0;  ///< communication by a thread of its own that the rank did not wait for

    /// Communication that held the rank up.
    double exposed() const {
        return at(activities, Activity::communication) + at(activities, Activity::waiting);
    }
};

/// Of the rank whose thread calls, by its recorder.
class Profile {
public:
    /// Measures from now on. `trace`: the events of the next `steps` steps (0: all) are kept.
    void start(bool trace, std::int64_t steps);
    /// Since the start.
    RankTimes times() const;
    /// As times().
    RankTimes begin_step(std::int64_t step);
    std::vector<TraceTrack> take_events();
    std::int64_t traced_steps() const { return traced_; }

private:
    Recorder* recorder_ = nullptr;
    ActivityTimes start_{};
    double began_ = 0, beside_ = 0;
    bool traces_ = false;
    std::int64_t steps_ = 0, traced_ = 0;
};

/// All ranks' times, by rank, on all ranks. Collective.
std::vector<RankTimes> gather_times(Communicator& world, const RankTimes& mine);
/// "11 % exposed communication, 4 % waiting for data": the mean over the ranks; what is below half a percent
/// is not named.
std::string verdict_text(const std::vector<RankTimes>& ranks);
/// Least, median and most of each activity over the ranks, the ranks that were slowest, and the ratio of
/// communication to computation. Lines for the log.
std::vector<std::string> profile_table(const std::vector<RankTimes>& ranks);

/// Writes what the ranks' recorders have kept as one file for chrome://tracing or Perfetto: a process for
/// each rank, its threads as threads, times by rank 0's clock. Collective. @throws Error (failed) when the
/// file cannot be written.
void write_trace(Communicator& world, const std::string& path, std::vector<TraceTrack> tracks);

}  // namespace trireme
