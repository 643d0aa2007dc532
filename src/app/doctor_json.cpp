// The report as JSON: the names are a contract with `plan` and with scripts (doc/clusters.md).
#include <nlohmann/json.hpp>

#include "app/doctor.hpp"

namespace trireme::app::doctor {
namespace {

using Json = nlohmann::ordered_json;

Json or_null(double value) {
    return value > 0 ? Json(value) : Json();
}

/// "MPI thread level": mpi_thread_level.
std::string key_of(std::string name) {
    for (char& letter : name)
        letter = letter == ' '                    ? '_'
                 : letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a')
                                                  : letter;
    return name;
}

Json hosts_of(const Report& report) {
    Json hosts = Json::array();
    for (const Host& host : report.places.hosts)
        hosts.push_back({{"name", host.name},
                         {"ranks", host.ranks},
                         {"cores", host.cores.size()},
                         {"memory_bytes", host.memory.usable()},
                         {"memory_available_bytes", host.memory.available},
                         {"gpus", host.gpus}});
    return hosts;
}

Json places_of(const Report& report) {
    Json places = Json::array();
    for (const Place& place : report.places.ranks)
        places.push_back({{"rank", place.rank},
                          {"host", place.host},
                          {"local_rank", place.local_rank},
                          {"local_size", place.local_size},
                          {"process", place.process},
                          {"pid", place.pid},
                          {"cores", place.cores.size()},
                          {"core_list", short_list(place.cores)},
                          {"numa", place.numa},
                          {"threads", place.threads},
                          {"device", place.device}});
    return places;
}

Json link_of(const Link& link) {
    return {{"a", link.a},
            {"b", link.b},
            {"latency_seconds", link.latency_seconds},
            {"bytes_per_s", link.bytes_per_s}};
}

/// The first kind is all pairs.
Json pairs_of(const Links& links) {
    Json pairs{{"slowest", nullptr}, {"median_bytes_per_s", nullptr}, {"median_latency_seconds", nullptr}};
    Json kinds = Json::array();
    for (const LinkKind& kind : links.kinds) {
        const Json json{{"name", kind.name},
                        {"pairs", kind.pairs},
                        {"slowest", link_of(kind.slowest)},
                        {"median_bytes_per_s", kind.median_bytes_per_s},
                        {"median_latency_seconds", kind.median_latency_seconds}};
        if (&kind == &links.kinds.front()) {
            pairs = json;
            pairs.erase("name");
        } else {
            kinds.push_back(json);
        }
    }
    pairs["kinds"] = kinds;
    return pairs;
}

}  // namespace

std::string json_text(const Report& report, const Findings& findings) {
    Json json;
    json["verdict"] = findings.problems().empty() ? "ok" : "problems";
    json["problems"] = findings.problems();
    json["notes"] = findings.notes();
    json["ranks"] = report.places.ranks.size();
    json["hosts"] = hosts_of(report);
    json["places"] = places_of(report);
    json["why_no_gpu"] = report.why_no_gpu;
    json["versions"] = Json::object();
    for (const auto& [name, version] : report.versions) json["versions"][key_of(name)] = version;
    json["checks"] = Json::array();
    for (const Check& check : findings.checks())
        json["checks"].push_back({{"name", check.name}, {"ok", check.ok}, {"detail", check.detail}});
    json["all_reduce"] = Json::array();
    for (const Reduction& reduction : report.all_reduce)
        json["all_reduce"].push_back({{"bytes", reduction.bytes},
                                      {"seconds", reduction.seconds},
                                      {"bus_bytes_per_s", reduction.bus_bytes_per_s}});
    json["pairs"] = pairs_of(report.links);
    json["copy_bytes_per_s"] = report.copy_bytes_per_s;
    json["gflops"] = report.gflops;
    const FileRates& files = report.files;
    json["files"] = {{"path", files.path},
                     {"write_bytes_per_s", or_null(files.write_bytes_per_s)},
                     {"read_bytes_per_s", or_null(files.read_bytes_per_s)},
                     {"free_bytes", files.free_bytes >= 0 ? Json(files.free_bytes) : Json()}};
    json["clock_skew_seconds"] = report.clock.seconds;
    // Names of files may be in any encoding.
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace trireme::app::doctor
