// Which rank is where, on which cores, and whether that makes sense.
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "app/doctor.hpp"
#include "app/help.hpp"
#include "trireme/base/build_info.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/comm/agree.hpp"

namespace trireme::app::doctor {

// Found by nlohmann-json beside the types: how they go from rank to rank.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Memory, total, available, limit)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Place, rank, node, host, local_rank, local_size, process, pid, cores, numa,
                                   threads, device)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Host, name, node, ranks, cores, memory, gpus)

namespace {

using Json = nlohmann::json;

/// Ranks of a host whose cores overlap, directly or through others.
struct Sharing {
    std::set<int> cores;
    std::vector<int> ranks;
    int threads = 0;
};

std::vector<Sharing> sharings_on(const Host& host, const std::vector<Place>& places) {
    std::vector<Sharing> all;
    for (const Place& place : places) {
        if (place.node != host.node) continue;
        Sharing joined{{place.cores.begin(), place.cores.end()}, {place.rank}, place.threads};
        const auto overlaps = [&](const Sharing& other) {
            return std::any_of(place.cores.begin(), place.cores.end(),
                               [&](int core) { return other.cores.contains(core); });
        };
        const auto apart =
            std::stable_partition(all.begin(), all.end(), [&](const Sharing& s) { return !overlaps(s); });
        for (auto s = apart; s != all.end(); ++s) {
            joined.cores.insert(s->cores.begin(), s->cores.end());
            joined.ranks.insert(joined.ranks.end(), s->ranks.begin(), s->ranks.end());
            joined.threads += s->threads;
        }
        all.erase(apart, all.end());
        std::sort(joined.ranks.begin(), joined.ranks.end());
        all.push_back(std::move(joined));
    }
    return all;
}

template <class Numbers>
std::string counted_list(const Numbers& numbers, const std::string& noun) {
    const std::vector<int> list(numbers.begin(), numbers.end());
    return noun + (list.size() == 1 ? " " : "s ") + short_list(list);
}

/// Says the same of several hosts once.
class OncePerKind {
public:
    void add(const std::string& text) {
        if (text_.empty()) text_ = text;
        ++count_;
    }
    std::string text() const {
        return count_ > 1 ? text_ + " (and the like " + std::to_string(count_ - 1) + " times more)" : text_;
    }

private:
    std::string text_;
    int count_ = 0;
};

void judge_host(const Host& host, const std::vector<Place>& places, OncePerKind& bound, OncePerKind& crowded,
                OncePerKind& idle) {
    const std::vector<Sharing> sharings = sharings_on(host, places);
    std::set<int> used;
    for (const Sharing& s : sharings) used.insert(s.cores.begin(), s.cores.end());
    std::vector<int> free;
    std::set_difference(host.cores.begin(), host.cores.end(), used.begin(), used.end(),
                        std::back_inserter(free));
    bool said = false;
    for (const Sharing& s : sharings) {
        if (s.threads <= static_cast<int>(s.cores.size())) continue;
        said = true;
        const std::string threads = std::to_string(s.threads) + " threads on ";
        if (s.ranks.size() > 1 && !free.empty())
            bound.add(counted_list(s.ranks, "rank") + " are bound to the same cores, " + threads +
                      counted_list(s.cores, "core") + " of " + host.name + ", while no rank uses " +
                      counted_list(free, "core") +
                      ": let the launcher bind them apart (srun --cpus-per-task, mpirun --map-by) or not at "
                      "all (mpirun --bind-to none)");
        else
            crowded.add("more compute threads than cores: " + threads + std::to_string(s.cores.size()) +
                        " cores of " + host.name + "; start fewer ranks, or set run.threads");
    }
    if (!said && 2 * used.size() <= host.cores.size())
        idle.add("the ranks on " + host.name + " may use " + std::to_string(used.size()) + " of its " +
                 std::to_string(host.cores.size()) +
                 " cores: give them more (srun --cpus-per-task, mpirun --bind-to none), if they are yours");
}

/// "2 to 4" where hosts differ in a quantity by more than a twentieth.
std::string spread(const std::vector<Host>& hosts, const std::function<std::int64_t(const Host&)>& of,
                   const std::function<std::string(std::int64_t)>& text) {
    const auto less = [&](const Host& a, const Host& b) { return of(a) < of(b); };
    const auto [least, most] = std::minmax_element(hosts.begin(), hosts.end(), less);
    if (least == hosts.end() || of(*most) - of(*least) <= of(*most) / 20) return "";
    return text(of(*least)) + " (" + least->name + ") to " + text(of(*most)) + " (" + most->name + ")";
}

}  // namespace

namespace {

/// "cpu", "cpu 1 of 2", "cuda GPU-5fdb... (NVIDIA H200)".
std::string device_text(const Device& device, const std::string& which) {
    const std::string identity = device.identity();
    return device.name() + (identity.empty() ? which : " " + identity);
}

}  // namespace

Places gather_places(Runtime& runtime) {
    Session& session = runtime.session;
    const int node = broadcast_value(session.local(), session.rank());
    const std::vector<int> cores = allowed_cores();
    const std::string which = session.devices() > 1 ? " " + std::to_string(session.device()) + " of " +
                                                          std::to_string(session.devices())
                                                    : "";
    Json mine{{"place", Place{.rank = session.rank(),
                              .node = node,
                              .host = session.host(),
                              .local_rank = session.local_rank(),
                              .local_size = session.local_size(),
                              .process = session.process(),
                              .pid = static_cast<int>(getpid()),
                              .cores = cores,
                              .numa = numa_nodes(cores),
                              .threads = runtime.threads,
                              .device = device_text(runtime.device, which)}}};
    if (session.local_rank() == 0) {
        const std::vector<int> machine = machine_cores();
        mine["host"] = Host{.name = session.host(),
                            .node = node,
                            .ranks = session.local_size(),
                            .cores = machine.empty() ? cores : machine,
                            .memory = machine_memory(),
                            .gpus = gpu_files()};
    }
    Places places;
    for (const std::string& text : gather_texts(session.world(), mine.dump())) {
        const Json json = Json::parse(text);
        places.ranks.push_back(json["place"].get<Place>());
        if (json.contains("host")) places.hosts.push_back(json["host"].get<Host>());
    }
    return places;
}

Judgement judge_places(const Places& places) {
    Judgement judgement;
    OncePerKind bound, crowded, idle;
    for (const Host& host : places.hosts) judge_host(host, places.ranks, bound, crowded, idle);
    judgement.problem = bound.text();
    for (const OncePerKind* kind : {&crowded, &idle})
        if (!kind->text().empty()) judgement.notes.push_back(kind->text());
    const std::string cores = spread(
        places.hosts, [](const Host& host) { return static_cast<std::int64_t>(host.cores.size()); },
        [](std::int64_t count) { return std::to_string(count); });
    if (!cores.empty()) judgement.notes.push_back("hosts differ in their cores: " + cores);
    const std::string memory = spread(
        places.hosts, [](const Host& host) { return host.memory.usable(); },
        [](std::int64_t bytes) { return bytes_text(static_cast<double>(bytes)); });
    if (!memory.empty()) judgement.notes.push_back("hosts differ in their memory: " + memory);
    return judgement;
}

std::string why_no_gpu(Runtime& runtime, const std::string& asked_for) {
    const bool somewhere =
        all_reduce_value(runtime.session.world(), runtime.device.host_memory() ? 0 : 1) > 0;
    if (somewhere) return "";
    if (asked_for == "cpu") return "run.device=cpu";
    std::string why = runtime.session.rank() == 0 ? cuda_absence() : "";  // "run.device=cuda: no NVIDIA ..."
    if (const std::size_t colon = why.find(": "); colon != std::string::npos) why.erase(0, colon + 2);
    why = why.substr(0, why.find(';'));  // without advice and paths
    return broadcast_text(runtime.session.world(), why);
}

Versions versions() {
    Versions list = {{"trireme", std::string(build_info().version)}};
    for (const std::vector<std::string>& row : version_rows()) list.emplace_back(row.at(0), row.at(1));
    list.emplace_back("MPI thread level", mpi_thread_level());
    return list;
}

std::string difference_in_builds(Communicator& world, const std::string& identity_here) {
    const std::vector<std::string> first = split(broadcast_text(world, identity_here), '\n'),
                                   mine = split(identity_here, '\n');
    for (std::size_t i = 0; i < std::max(first.size(), mine.size()); ++i) {
        const std::string here = i < mine.size() ? mine[i] : "nothing",
                          there = i < first.size() ? first[i] : "nothing";
        if (here != there) return here + ", but rank 0 has " + there;
    }
    return "";
}

}  // namespace trireme::app::doctor
