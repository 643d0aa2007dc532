// What a rank's threads are doing, and how long they do it: for the profile, the trace and the watchdog.
//
// Code that works or waits opens a Span for as long. Spans lie within each other; each moment counts for the
// innermost one, so the times of a thread add up to its whole time. A thread belongs to at most one recorder,
// from Member's construction to its end: this is kept by thread, as a call stack is, and not handed through
// every layer. Without a recorder a span does nothing.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <vector>

namespace trireme {

enum class Activity : std::uint8_t {
    other,
    input,          ///< waiting for data
    compute,        ///< forward and backward
    communication,  ///< in a collective or a message
    waiting,        ///< for a thread that communicates
    optimizer,
    validation,
    checkpoint,
};
inline constexpr int activities = 8;
std::string name_of(Activity activity);

/// Seconds by activity.
using ActivityTimes = std::array<double, activities>;
inline double& at(ActivityTimes& times, Activity activity) {
    return times[static_cast<std::size_t>(activity)];
}
inline double at(const ActivityTimes& times, Activity activity) {
    return times[static_cast<std::size_t>(activity)];
}

/// A span that has ended, for the trace. Times are now_seconds().
struct TraceEvent {
    const char* what;
    std::int64_t amount;  ///< bytes where there are peers, else a number of what is done; -1: none
    int peers;            ///< ranks that communicate; 0: none
    Activity activity;
    double begin, end;
};

/// The events of one thread.
struct TraceTrack {
    std::string name;
    std::vector<TraceEvent> events;
};

/// Is told of spans as they begin and end, by the thread that they are of: for profilers, which show them
/// beside what a device does.
class SpanListener {
public:
    virtual ~SpanListener() = default;
    virtual void begin(const char* what) = 0;
    /// Of the last one that has begun and not ended in this thread.
    virtual void end() = 0;
};

/// Of one rank. Threads may come and go; one of them, "main", is the rank's own.
class Recorder {
public:
    class Track;

    /// Makes the calling thread one of the rank's. Threads of one name one after another share a track.
    class Member {
    public:
        /// `recorder` may be null.
        Member(Recorder* recorder, const std::string& name);
        ~Member();
        Member(const Member&) = delete;
        Member& operator=(const Member&) = delete;

    private:
        Track* track_;
        Track* before_;
    };
    static constexpr const char* main = "main";
    static constexpr const char* communicator = "communication";

    Recorder();
    ~Recorder();
    Recorder(const Recorder&) = delete;
    Recorder& operator=(const Recorder&) = delete;

    /// Of the calling thread; null where it has none.
    static Recorder* here();
    /// What the calling thread has spent up to now; zeros without a recorder.
    static ActivityTimes times_here();
    /// What threads of their own have spent in communication up to now.
    double communication_beside() const;

    void begin_step(std::int64_t step) { step_.store(step, std::memory_order_relaxed); }
    /// Since any thread of the rank has begun or ended something.
    double idle_seconds() const;
    /// Where the rank stands, for people: "step 17, backward of lane 2, all-reduce of 1.2 MB among 4 ranks".
    std::string place() const;
    /// Where it stood when an exception left a span, after which nothing has begun; else empty.
    std::string place_of_failure() const;

    /// Null: nobody.
    void tell(SpanListener* listener) { listener_.store(listener, std::memory_order_relaxed); }
    /// From now on the ends of spans are kept, or no more.
    void keep_events(bool keep) { keeps_.store(keep, std::memory_order_relaxed); }
    /// What was kept, thread by thread. Threads other than the caller must rest.
    std::vector<TraceTrack> take_events();

private:
    friend class Span;
    Track* join(const std::string& name);

    mutable std::mutex mutex_;
    std::list<Track> tracks_;
    std::atomic<std::int64_t> step_{-1};
    std::atomic<bool> keeps_{false}, failed_{false};
    std::atomic<SpanListener*> listener_{nullptr};
    std::string failure_;
};

/// Says what the calling thread does while it lives. `what` must stay (a literal).
class Span {
public:
    Span() = default;
    explicit Span(Activity activity, const char* what, std::int64_t amount = -1, int peers = 0);
    ~Span();
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

private:
    Recorder::Track* track_ = nullptr;
    int exceptions_ = 0;
};

}  // namespace trireme
