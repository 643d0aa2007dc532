// Where time goes: spans within each other, and what the ranks' times come to.
#include <chrono>
#include <stdexcept>
#include <thread>

#include "support/catch.hpp"
#include "trireme/base/clock.hpp"
#include "trireme/train/profile.hpp"

using namespace trireme;
using Catch::Matchers::Contains;

namespace {

void pass(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

RankTimes times_of(double compute, double communication, double input) {
    RankTimes times;
    at(times.activities, Activity::compute) = compute;
    at(times.activities, Activity::communication) = communication;
    at(times.activities, Activity::input) = input;
    times.wall = compute + communication + input;
    return times;
}

}  // namespace

TEST_CASE("each moment counts for the innermost span, and all of them are the wall time", "[unit][train]") {
    Recorder recorder;
    const Recorder::Member member(&recorder, Recorder::main);
    Profile profile;
    profile.start(true, 0);
    {
        const Span lanes(Activity::compute, "lanes");
        pass(0.02);
        {
            const Span reduce(Activity::communication, "all-reduce", 4096, 2);
            CHECK(recorder.place() == "lanes, all-reduce of 4.1 kB among 2 ranks");
            pass(0.03);
        }
        const Span lane(Activity::compute, "forward of lane", 3);
        CHECK(recorder.place() == "lanes, forward of lane 3");
    }
    const RankTimes times = profile.times();
    CHECK(at(times.activities, Activity::compute) >= 0.02);
    CHECK(at(times.activities, Activity::communication) >= 0.03);
    CHECK(at(times.activities, Activity::compute) <= times.wall - 0.03);
    double sum = 0;
    for (const double seconds : times.activities) sum += seconds;
    CHECK(sum == Approx(times.wall).epsilon(1e-3));

    const std::vector<TraceTrack> tracks = profile.take_events();
    REQUIRE(tracks.size() == 1);
    REQUIRE(tracks[0].events.size() == 3);  // in the order of their ends
    CHECK(tracks[0].events[0].what == std::string("all-reduce"));
    CHECK(tracks[0].events[2].begin <= tracks[0].events[0].begin);
    CHECK(tracks[0].events[2].end >= tracks[0].events[1].end);
}

TEST_CASE("a thread without a recorder records nothing", "[unit][train]") {
    const Span span(Activity::compute, "lanes");
    CHECK(Recorder::here() == nullptr);
    CHECK(Recorder::times_here() == ActivityTimes{});
}

TEST_CASE("where an error left its span is known until something else begins", "[unit][train]") {
    Recorder recorder;
    const Recorder::Member member(&recorder, Recorder::main);
    recorder.begin_step(17);
    try {
        const Span outer(Activity::checkpoint, "saving");
        const Span inner(Activity::communication, "broadcast", 8, 2);
        throw std::runtime_error("disk");
    } catch (const std::exception&) {
    }
    CHECK(recorder.place_of_failure() == "step 17, saving, broadcast of 8 bytes among 2 ranks");
    { const Span next(Activity::compute, "lanes"); }
    CHECK(recorder.place_of_failure().empty());
}

TEST_CASE("communication of a thread beside is hidden but for what is waited for", "[unit][train]") {
    Recorder recorder;
    const Recorder::Member member(&recorder, Recorder::main);
    Profile profile;
    profile.start(false, 0);
    std::thread beside([&recorder] {
        const Recorder::Member track(&recorder, Recorder::communicator);
        const Span span(Activity::communication, "all-reduce", 8, 2);
        pass(0.06);
    });
    pass(0.03);
    {
        const Span span(Activity::waiting, "waiting");
        beside.join();
    }
    const RankTimes times = profile.times();
    CHECK(times.exposed() == at(times.activities, Activity::waiting));
    CHECK(times.hidden > 0);
    CHECK(times.hidden + times.exposed() >= 0.06);
}

TEST_CASE("the verdict is the mean over the ranks, and the table names the slowest", "[unit][train]") {
    const std::vector<RankTimes> ranks = {times_of(8, 2, 0), times_of(9, 0, 1), times_of(7, 3, 0)};
    CHECK(verdict_text(ranks) == "17 % exposed communication, 3 % waiting for data");
    CHECK(verdict_text({times_of(10, 0, 0)}) == "nothing but training");
    const std::vector<std::string> table = profile_table(ranks);
    CHECK_THAT(table.back(), Contains("slowest: rank 1"));
    CHECK_THAT(table.back(), Contains("communication to computation: 0.208"));
    CHECK_THAT(table.at(1), Contains("compute") && Contains("7.000      8.000      9.000"));
}
