// One trace of all ranks.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "train/run_directory.hpp"
#include "trireme/base/clock.hpp"
#include "trireme/base/error.hpp"
#include "trireme/comm/agree.hpp"
#include "trireme/train/profile.hpp"

namespace trireme {
namespace {

/// What is to be added to this rank's now_seconds() for rank 0's: of a few exchanges the quickest tells.
double clock_behind_first(Communicator& world) {
    constexpr int rounds = 9, tag = 7;
    double behind = 0;
    for (int other = 1; other < world.size(); ++other) {
        if (world.rank() == 0) {
            for (int round = 0; round < rounds; ++round) {
                double word = 0;
                world.receive(view_of(&word, Shape{1}), other, tag);
                word = now_seconds();
                world.send(view_of(&word, Shape{1}), other, tag);
            }
        } else if (world.rank() == other) {
            double quickest = std::numeric_limits<double>::infinity();
            for (int round = 0; round < rounds; ++round) {
                double first = 0;
                const double asked = now_seconds();
                world.send(view_of(&first, Shape{1}), 0, tag);
                world.receive(view_of(&first, Shape{1}), 0, tag);
                const double answered = now_seconds();
                if (answered - asked >= quickest) continue;
                quickest = answered - asked;
                behind = first - (asked + answered) / 2;
            }
        }
    }
    return behind;
}

/// One rank's events, each a JSON object, between commas.
std::string events_text(int rank, const std::vector<TraceTrack>& tracks, double shift) {
    using Json = nlohmann::ordered_json;
    std::string text;
    const auto add = [&](const Json& json) { text += (text.empty() ? "" : ",\n") + json.dump(); };
    add({{"ph", "M"},
         {"name", "process_name"},
         {"pid", rank},
         {"args", {{"name", "rank " + std::to_string(rank)}}}});
    for (std::size_t thread = 0; thread < tracks.size(); ++thread) {
        add({{"ph", "M"},
             {"name", "thread_name"},
             {"pid", rank},
             {"tid", thread},
             {"args", {{"name", tracks[thread].name}}}});
        for (const TraceEvent& event : tracks[thread].events) {
            Json json{{"ph", "X"},
                      {"name", event.what},
                      {"cat", name_of(event.activity)},
                      {"pid", rank},
                      {"tid", thread},
                      {"ts", 1e6 * (event.begin + shift)},
                      {"dur", 1e6 * (event.end - event.begin)}};
            if (event.peers > 0)
                json["args"] = {{"bytes", event.amount}, {"ranks", event.peers}};
            else if (event.amount >= 0)
                json["args"] = {{"number", event.amount}};
            add(json);
        }
    }
    return text;
}

double earliest(const std::vector<TraceTrack>& tracks) {
    double first = std::numeric_limits<double>::infinity();
    for (const TraceTrack& track : tracks)
        for (const TraceEvent& event : track.events) first = std::min(first, event.begin);
    return first;
}

}  // namespace

void write_trace(Communicator& world, const std::string& path, std::vector<TraceTrack> tracks) {
    constexpr int tag = 8;
    const double behind = clock_behind_first(world);
    const double zero = all_reduce_value(world, earliest(tracks) + behind, Reduce::min);
    std::string mine = events_text(world.rank(), tracks, behind - zero);
    if (world.rank() != 0) {
        auto size = static_cast<std::int64_t>(mine.size());
        world.send(view_of(&size, Shape{1}), 0, tag);
        world.send({mine.data(), DType::u8, Shape{size}}, 0, tag);
    } else {
        for (int other = 1; other < world.size(); ++other) {
            std::int64_t size = 0;
            world.receive(view_of(&size, Shape{1}), other, tag);
            std::string text(static_cast<std::size_t>(size), ' ');
            world.receive({text.data(), DType::u8, Shape{size}}, other, tag);
            mine += ",\n" + text;
        }
    }
    agreed_by_one(world, [&] { write_whole(path, "{\"traceEvents\":[\n" + mine + "\n]}\n"); });
}

}  // namespace trireme
