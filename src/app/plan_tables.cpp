#include "app/plan_tables.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/text.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"

namespace trireme::app {
namespace {

using Rows = std::vector<std::pair<std::string, std::int64_t>>;

Rows rows_of(const RankMemory& memory) {
    const StateBytes& state = memory.state;
    return {{"weights", state.weights},
            {"16-bit copy", state.low},
            {"gradients", state.gradients},
            {"optimizer state", state.states},
            {"average", state.average},
            {"gathered blocks", state.weight_windows + state.gradient_windows},
            {"buffers on the way", state.buffers},
            {"gradients of lanes", memory.lane_gradients},
            {"activations", memory.activations},
            {"input buffers", memory.input}};
}

std::string megabytes(std::int64_t bytes) {
    return bytes_text(static_cast<double>(bytes));
}

std::string place_text(const Place& place) {
    return "stage " + std::to_string(place.stage) + ", tensor " + std::to_string(place.tensor);
}

bool same_memory(const Place& a, const Place& b) {
    return rows_of(a.rehearsal.memory) == rows_of(b.rehearsal.memory);
}
bool same_traffic(const Place& a, const Place& b) {
    const auto &x = a.rehearsal.traffic, &y = b.rehearsal.traffic;
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](const auto& s, const auto& t) {
        return s.group == t.group && s.ranks == t.ranks && s.calls == t.calls;
    });
}

/// The first of each run of places that are alike, and how far the run goes.
template <class Same>
std::vector<std::pair<const Place*, std::string>> runs_of(const std::vector<Place>& places, Same same) {
    std::vector<std::pair<const Place*, std::string>> runs;
    for (std::size_t i = 0; i < places.size();) {
        std::size_t end = i + 1;
        while (end < places.size() && same(places[i], places[end])) ++end;
        runs.emplace_back(&places[i],
                          place_text(places[i]) + (end - i > 1 ? " to " + place_text(places[end - 1]) : ""));
        i = end;
    }
    return runs;
}

}  // namespace

std::int64_t ranks_option(const std::string& text, std::int64_t otherwise) {
    if (text.empty()) return otherwise;
    constexpr std::int64_t most = 1 << 20;
    const auto ranks = parse_int(text);
    if (!ranks || *ranks < 1 || *ranks > most)
        throw usage_error("--ranks=" + text + ": expected an integer from 1 to " + std::to_string(most));
    return *ranks;
}

std::vector<Place> places_of(Runtime& runtime, const Config& config, const DataFacts& data,
                             const MeshShape& mesh) {
    std::vector<Place> places;
    for (int stage = 0; stage < mesh.pipeline; ++stage)
        for (int tensor = 0; tensor < mesh.tensor; ++tensor)
            places.push_back(
                {stage, tensor, rehearse(runtime, config, data, mesh, mesh.rank(0, stage, tensor))});
    return places;
}

std::string mesh_text(const MeshShape& mesh, const Rehearsal& any) {
    return count_text(mesh.ranks, "rank") + ": data " + std::to_string(mesh.data()) + " x pipeline " +
           std::to_string(mesh.pipeline) + " x tensor " + std::to_string(mesh.tensor) + "; batch " +
           std::to_string(any.batch) + " in " + count_text(any.lanes, "lane") + " of at most " +
           count_text(any.largest_lane, "sample") + ", at most " + count_text(any.my_lanes, "lane") +
           " a rank; " + grouped(any.all_parameters) + " parameters; " + count_text(any.threads, "thread") +
           " a rank\n";
}

std::string memory_table(const std::vector<Place>& places) {
    std::string text = "memory of a rank\n";
    for (const auto& [place, name] : runs_of(places, same_memory)) {
        const RankMemory& memory = place->rehearsal.memory;
        const auto parameters = static_cast<double>(std::max<std::int64_t>(1, place->rehearsal.parameters));
        Table table("<>>");
        table.add({name, "bytes", "per parameter"});
        const auto add = [&](const std::string& what, std::int64_t bytes) {
            table.add({what, grouped(bytes), fixed(static_cast<double>(bytes) / parameters, 3)});
        };
        for (const auto& [what, bytes] : rows_of(memory))
            if (bytes > 0) add(what, bytes);
        add("sum (" + megabytes(memory.total()) + ")", memory.total());
        text += table.text() + "  of " + grouped(place->rehearsal.parameters) + " parameters here\n";
    }
    return text;
}

std::string traffic_table(const std::vector<Place>& places) {
    std::string text = "traffic of a rank in a step\n";
    for (const auto& [place, name] : runs_of(places, same_traffic)) {
        Table table("<<>>>>");
        table.add({name, "operation", "ranks", "calls", "bytes", "sent, at least"});
        for (const GroupTraffic& group : place->rehearsal.traffic)
            for (int v = 0; v < verbs; ++v) {
                const Calls& calls = group.calls[static_cast<std::size_t>(v)];
                const auto verb = static_cast<Verb>(v);
                if (calls.calls == 0 || group.ranks == 1) continue;
                table.add({group.group, std::string(name_of(verb)), std::to_string(group.ranks),
                           grouped(calls.calls), grouped(calls.bytes),
                           grouped(static_cast<std::int64_t>(sent_bytes(verb, calls.bytes, group.ranks)))});
            }
        text += table.text();
    }
    return text;
}

nlohmann::ordered_json places_json(const std::vector<Place>& places) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const Place& place : places) {
        nlohmann::ordered_json object = {{"stage", place.stage},
                                         {"tensor", place.tensor},
                                         {"parameters", place.rehearsal.parameters},
                                         {"lanes", place.rehearsal.my_lanes}};
        nlohmann::ordered_json memory, traffic = nlohmann::ordered_json::array();
        for (auto [what, bytes] : rows_of(place.rehearsal.memory)) {
            std::replace(what.begin(), what.end(), ' ', '_');
            memory[what] = bytes;
        }
        memory["sum"] = place.rehearsal.memory.total();
        for (const GroupTraffic& group : place.rehearsal.traffic)
            for (int v = 0; v < verbs; ++v)
                if (const Calls& calls = group.calls[static_cast<std::size_t>(v)];
                    calls.calls > 0 && group.ranks > 1)
                    traffic.push_back(
                        {{"group", group.group},
                         {"ranks", group.ranks},
                         {"operation", name_of(static_cast<Verb>(v))},
                         {"calls", calls.calls},
                         {"bytes", calls.bytes},
                         {"sent_bytes", sent_bytes(static_cast<Verb>(v), calls.bytes, group.ranks)}});
        object["memory"] = memory;
        object["traffic"] = traffic;
        all.push_back(object);
    }
    return all;
}

std::string describe_memory(Runtime& runtime, const Config& config, std::int64_t ranks, bool json) {
    const MeshShape mesh = mesh_shape(config, ranks);
    const DataFacts data = look_at_data(runtime.mesh.world(), config);
    const std::vector<Place> places = places_of(runtime, config, data, mesh);
    const Rehearsal& any = places.front().rehearsal;
    if (!json) return mesh_text(mesh, any) + memory_table(places);
    const nlohmann::ordered_json object = {{"kind", "memory"},
                                           {"ranks", mesh.ranks},
                                           {"data", mesh.data()},
                                           {"pipeline", mesh.pipeline},
                                           {"tensor", mesh.tensor},
                                           {"parameters", any.all_parameters},
                                           {"places", places_json(places)}};
    return object.dump() + "\n";
}

}  // namespace trireme::app
