#include "trireme/train/profile.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "trireme/base/clock.hpp"
#include "trireme/base/parse.hpp"

namespace trireme {
namespace {

/// What a rank's row holds when ranks exchange them.
constexpr int row = activities + 2;

double part(double seconds, const RankTimes& times) {
    return times.wall > 0 ? seconds / times.wall : 0;
}

std::string percent(double part) {
    return to_text(std::round(100 * part)) + " %";
}

std::string row_text(const char* format, const std::string& name, double least, double median, double most) {
    char text[120];
    std::snprintf(text, sizeof text, format, name.c_str(), least, median, most);
    return text;
}

}  // namespace

void Profile::start(bool trace, std::int64_t steps) {
    recorder_ = Recorder::here();
    start_ = Recorder::times_here();
    began_ = now_seconds();
    beside_ = recorder_ != nullptr ? recorder_->communication_beside() : 0;
    traces_ = trace && recorder_ != nullptr;
    steps_ = steps;
    if (traces_) recorder_->keep_events(true);
}

RankTimes Profile::times() const {
    RankTimes times;
    times.activities = Recorder::times_here();
    times.wall = now_seconds() - began_;
    for (std::size_t i = 0; i < times.activities.size(); ++i) times.activities[i] -= start_[i];
    if (recorder_ != nullptr)
        times.hidden = std::max(
            0.0, recorder_->communication_beside() - beside_ - at(times.activities, Activity::waiting));
    return times;
}

RankTimes Profile::begin_step(std::int64_t step) {
    if (recorder_ != nullptr) recorder_->begin_step(step);
    if (traces_ && (steps_ == 0 || traced_ < steps_))
        ++traced_;
    else if (traces_)
        recorder_->keep_events(false);
    return times();
}

std::vector<TraceTrack> Profile::take_events() {
    if (recorder_ == nullptr) return {};
    recorder_->keep_events(false);
    return recorder_->take_events();
}

std::vector<RankTimes> gather_times(Communicator& world, const RankTimes& mine) {
    std::vector<double> all(static_cast<std::size_t>(row * world.size()));
    std::array<double, row> values{};
    values[0] = mine.wall;
    values[1] = mine.hidden;
    std::copy(mine.activities.begin(), mine.activities.end(), values.begin() + 2);
    world.all_gather(view_of(values.data(), Shape{row}), view_of(all.data(), Shape{row * world.size()}));
    std::vector<RankTimes> ranks(static_cast<std::size_t>(world.size()));
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        const double* from = all.data() + r * row;
        ranks[r].wall = from[0];
        ranks[r].hidden = from[1];
        std::copy(from + 2, from + row, ranks[r].activities.begin());
    }
    return ranks;
}

std::string verdict_text(const std::vector<RankTimes>& ranks) {
    const auto mean = [&](auto seconds) {
        double sum = 0;
        for (const RankTimes& times : ranks) sum += part(seconds(times), times);
        return sum / static_cast<double>(ranks.size());
    };
    std::string text;
    const auto add = [&](double part, const std::string& what) {
        if (part >= 0.005) text += (text.empty() ? "" : ", ") + percent(part) + " " + what;
    };
    add(mean([](const RankTimes& times) { return times.exposed(); }), "exposed communication");
    add(mean([](const RankTimes& times) { return at(times.activities, Activity::input); }),
        "waiting for data");
    add(mean([](const RankTimes& times) { return at(times.activities, Activity::validation); }),
        "validation");
    add(mean([](const RankTimes& times) { return at(times.activities, Activity::checkpoint); }),
        "checkpoints");
    return text.empty() ? "nothing but training" : text;
}

std::vector<std::string> profile_table(const std::vector<RankTimes>& ranks) {
    constexpr const char* format = "%-24s %10.3f %10.3f %10.3f";
    std::vector<std::string> lines = {"profile, seconds            least     median       most  (" +
                                      count_text(static_cast<std::int64_t>(ranks.size()), "rank") + ")"};
    const auto add = [&](const std::string& name, auto seconds) {
        std::vector<double> values;
        for (const RankTimes& times : ranks) values.push_back(seconds(times));
        std::sort(values.begin(), values.end());
        lines.push_back(row_text(format, name, values.front(), values[values.size() / 2], values.back()));
    };
    for (const Activity activity : {Activity::compute, Activity::optimizer})
        add(name_of(activity), [=](const RankTimes& times) { return at(times.activities, activity); });
    add("communication, exposed", [](const RankTimes& times) { return times.exposed(); });
    for (const Activity activity :
         {Activity::input, Activity::validation, Activity::checkpoint, Activity::other})
        add(activity == Activity::input ? "waiting for data" : name_of(activity),
            [=](const RankTimes& times) { return at(times.activities, activity); });
    add("wall time", [](const RankTimes& times) { return times.wall; });
    add("communication, hidden", [](const RankTimes& times) { return times.hidden; });

    // The slowest rank is the one that others wait for: with most time of its own.
    const auto own = [](const RankTimes& times) { return times.wall - times.exposed(); };
    const auto slowest = std::max_element(ranks.begin(), ranks.end(),
                                          [&](const auto& a, const auto& b) { return own(a) < own(b); });
    double communication = 0, computation = 0;
    for (const RankTimes& times : ranks) {
        communication += times.exposed() + times.hidden;
        computation += at(times.activities, Activity::compute) + at(times.activities, Activity::optimizer);
    }
    char text[200];
    std::snprintf(text, sizeof text,
                  "communication to computation: %.3f; slowest: rank %d, with %.3f s not spent "
                  "in communication",
                  computation > 0 ? communication / computation : 0.0,
                  static_cast<int>(slowest - ranks.begin()), own(*slowest));
    lines.emplace_back(text);
    return lines;
}

}  // namespace trireme
