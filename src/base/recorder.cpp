#include "trireme/base/recorder.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "trireme/base/clock.hpp"
#include "trireme/base/parse.hpp"

namespace trireme {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
/// Spans within each other that are told apart; deeper ones count for the last of these.
constexpr int deepest = 12;

thread_local Recorder::Track* track_here = nullptr;

std::string text_of(const char* what, std::int64_t amount, int peers) {
    std::string text = what;
    if (peers > 0)
        text += (amount > 0 ? " of " + bytes_text(static_cast<double>(amount)) : "") + " among " +
                count_text(peers, "rank");
    else if (amount >= 0)
        text += " " + std::to_string(amount);
    return text;
}

}  // namespace

std::string name_of(Activity activity) {
    constexpr const char* names[activities] = {"other",   "input",     "compute",    "communication",
                                               "waiting", "optimizer", "validation", "checkpoint"};
    return names[static_cast<int>(activity)];
}

/// Written by its thread alone. Others may look at any time; what they see may be a moment old.
class Recorder::Track {
public:
    Track(Recorder& of, std::string called) : recorder(of), name(std::move(called)) {}

    struct Frame {
        std::atomic<Activity> activity{Activity::other};
        std::atomic<const char*> what{""};
        std::atomic<std::int64_t> amount{-1};
        std::atomic<int> peers{0};
        std::atomic<double> begin{0};
    };

    /// The time since the last boundary goes to the innermost span.
    double account() {
        const double now = now_seconds();
        const int inner = std::min(depth.load(relaxed), deepest) - 1;
        const Activity activity = inner < 0 ? Activity::other : frames[inner].activity.load(relaxed);
        std::atomic<double>& sum = seconds[static_cast<std::size_t>(activity)];
        sum.store(sum.load(relaxed) + now - boundary.load(relaxed), relaxed);
        boundary.store(now, relaxed);
        return now;
    }
    void begin(Activity activity, const char* what, std::int64_t amount, int peers) {
        if (SpanListener* listener = recorder.listener_.load(relaxed); listener != nullptr)
            listener->begin(what);
        const double now = account();
        const int at = depth.load(relaxed);
        if (at < deepest) {
            frames[at].activity.store(activity, relaxed);
            frames[at].what.store(what, relaxed);
            frames[at].amount.store(amount, relaxed);
            frames[at].peers.store(peers, relaxed);
            frames[at].begin.store(now, relaxed);
        }
        depth.store(at + 1, relaxed);
    }
    void end() {
        if (SpanListener* listener = recorder.listener_.load(relaxed); listener != nullptr) listener->end();
        const double now = account();
        const int at = depth.load(relaxed) - 1;
        depth.store(at, relaxed);
        if (at >= deepest || !recorder.keeps_.load(relaxed)) return;
        const Frame& frame = frames[at];
        events.push_back({frame.what.load(relaxed), frame.amount.load(relaxed), frame.peers.load(relaxed),
                          frame.activity.load(relaxed), frame.begin.load(relaxed), now});
    }
    std::string place() const {
        std::string text;
        const int frames_here = std::min(depth.load(relaxed), deepest);
        for (int at = 0; at < frames_here; ++at)
            text += (text.empty() ? "" : ", ") + text_of(frames[at].what.load(relaxed),
                                                         frames[at].amount.load(relaxed),
                                                         frames[at].peers.load(relaxed));
        return text;
    }

    Recorder& recorder;
    const std::string name;
    bool taken = true;  ///< by a thread; under the recorder's lock
    std::atomic<int> depth{0};
    std::array<Frame, deepest> frames;
    std::array<std::atomic<double>, activities> seconds{};
    std::atomic<double> boundary{now_seconds()};
    std::vector<TraceEvent> events;
};

Recorder::Recorder() = default;
Recorder::~Recorder() = default;

Recorder::Track* Recorder::join(const std::string& name) {
    const std::lock_guard lock(mutex_);
    for (Track& track : tracks_)
        if (!track.taken && track.name == name) {
            track.taken = true;
            track.depth.store(0, relaxed);
            track.boundary.store(now_seconds(), relaxed);
            return &track;
        }
    return &tracks_.emplace_back(*this, name);
}

Recorder::Member::Member(Recorder* recorder, const std::string& name)
    : track_(recorder != nullptr ? recorder->join(name) : nullptr),
      before_(std::exchange(track_here, track_)) {}

Recorder::Member::~Member() {
    track_here = before_;
    if (track_ == nullptr) return;
    track_->account();
    const std::lock_guard lock(track_->recorder.mutex_);
    track_->taken = false;
}

Recorder* Recorder::here() {
    return track_here != nullptr ? &track_here->recorder : nullptr;
}

ActivityTimes Recorder::times_here() {
    ActivityTimes times{};
    if (track_here == nullptr) return times;
    track_here->account();
    for (std::size_t i = 0; i < times.size(); ++i) times[i] = track_here->seconds[i].load(relaxed);
    return times;
}

double Recorder::communication_beside() const {
    const std::lock_guard lock(mutex_);
    double seconds = 0;
    for (const Track& track : tracks_)
        if (track.name == communicator)
            seconds += track.seconds[static_cast<std::size_t>(Activity::communication)].load(relaxed);
    return seconds;
}

double Recorder::idle_seconds() const {
    const std::lock_guard lock(mutex_);
    double last = 0;
    for (const Track& track : tracks_) last = std::max(last, track.boundary.load(relaxed));
    return tracks_.empty() ? 0 : now_seconds() - last;
}

std::string Recorder::place() const {
    const std::lock_guard lock(mutex_);
    std::string text;
    if (const std::int64_t step = step_.load(relaxed); step >= 0) text = "step " + std::to_string(step);
    for (const Track& track : tracks_) {
        const std::string place = track.place();
        if (place.empty() || !track.taken) continue;
        const bool own = track.name == main;
        text += (text.empty() ? "" : own ? ", " : "; ") + (own ? "" : track.name + ": ") + place;
    }
    return text.empty() ? "between two operations" : text;
}

std::string Recorder::place_of_failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
}

std::vector<TraceTrack> Recorder::take_events() {
    const std::lock_guard lock(mutex_);
    std::vector<TraceTrack> tracks;
    for (Track& track : tracks_)
        if (!track.events.empty()) tracks.push_back({track.name, std::exchange(track.events, {})});
    return tracks;
}

Span::Span(Activity activity, const char* what, std::int64_t amount, int peers) : track_(track_here) {
    if (track_ == nullptr) return;
    exceptions_ = std::uncaught_exceptions();
    if (Recorder& recorder = track_->recorder; recorder.failed_.load(relaxed)) {  // it was dealt with
        const std::lock_guard lock(recorder.mutex_);
        recorder.failed_ = false;
        recorder.failure_.clear();
    }
    track_->begin(activity, what, amount, peers);
}

Span::~Span() {
    if (track_ == nullptr) return;
    if (std::uncaught_exceptions() > exceptions_) {
        Recorder& recorder = track_->recorder;
        std::string place = recorder.place();
        const std::lock_guard lock(recorder.mutex_);
        if (recorder.failure_.empty()) recorder.failure_ = std::move(place);
        recorder.failed_ = true;
    }
    track_->end();
}

}  // namespace trireme
