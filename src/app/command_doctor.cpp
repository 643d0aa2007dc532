// Checks the launch itself: who is where, whether collectives and files give what they must, and how fast.
#include <algorithm>

#include "app/bench_rates.hpp"
#include "app/commands.hpp"
#include "app/device_detour.hpp"
#include "app/doctor.hpp"
#include "app/text.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme::app {
namespace {

using namespace doctor;

std::string rate_text(double bytes_per_s) {
    return fixed(bytes_per_s / 1e9, 2) + " GB/s";
}

std::string time_text(double seconds) {
    if (seconds >= 1) return fixed(seconds, 2) + " s";
    return seconds >= 1e-2 ? fixed(1e3 * seconds, 1) + " ms" : fixed(1e6 * seconds, 1) + " us";
}

std::string places_text(const Places& places, int devices) {
    Table table("><<>>><<><");
    table.add(
        {"rank", "host", "local rank", "process", "pid", "cores", "which", "NUMA", "threads", "device"});
    for (const Place& place : places.ranks)
        table.add({std::to_string(place.rank), place.host,
                   std::to_string(place.local_rank) + " of " + std::to_string(place.local_size),
                   std::to_string(place.process), std::to_string(place.pid),
                   std::to_string(place.cores.size()), short_list(place.cores), place.numa,
                   std::to_string(place.threads), place.device});
    return "launch: " + count_text(static_cast<std::int64_t>(places.ranks.size()), "rank") +
           (devices > 1 ? ", " + std::to_string(devices) + " devices in each process" : "") + "\n" +
           table.text();
}

std::string hosts_text(const Places& places, const std::string& why_no_gpu) {
    Table table("<>>>>><");
    table.add({"host", "ranks", "cores", "memory", "available", "limit", "GPUs"});
    for (const Host& host : places.hosts) {
        const auto size = [](std::int64_t bytes) { return bytes_text(static_cast<double>(bytes)); };
        const std::string gpus = host.gpus == 0 && !why_no_gpu.empty() ? "none" : std::to_string(host.gpus);
        table.add({host.name, std::to_string(host.ranks), std::to_string(host.cores.size()),
                   size(host.memory.total), size(host.memory.available),
                   host.memory.limit > 0 ? size(host.memory.limit) : "none",
                   gpus + (why_no_gpu.empty() ? "" : ", not used: " + why_no_gpu)});
    }
    return "\nhosts\n" + table.text();
}

std::string versions_text(const Versions& versions) {
    Table table("<<");
    for (const auto& [name, version] : versions) table.add({name, version});
    return "\nversions\n" + table.text();
}

std::string reductions_text(const std::vector<Reduction>& reductions, int ranks) {
    Table table(">>>");
    table.add({"bytes", "time", "bus bandwidth"});
    for (const Reduction& reduction : reductions)
        table.add(
            {grouped(reduction.bytes), time_text(reduction.seconds), rate_text(reduction.bus_bytes_per_s)});
    return "\nall-reduce of float32 over " + count_text(ranks, "rank") + "\n" + table.text();
}

/// "rank 3 (node2)".
std::string named(const Places& places, int rank) {
    return std::to_string(rank) + " (" + places.ranks[static_cast<std::size_t>(rank)].host + ")";
}

std::string links_text(const Links& links, const Places& places) {
    Table table("<>>>>><");
    table.add({"messages", "pairs", "median latency", "median", "slowest", "its latency", "between ranks"});
    for (const LinkKind& kind : links.kinds) {
        if (links.kinds.size() == 2 && &kind == &links.kinds.front()) continue;  // the other says the same
        table.add({kind.name, std::to_string(kind.pairs), time_text(kind.median_latency_seconds),
                   rate_text(kind.median_bytes_per_s), rate_text(kind.slowest.bytes_per_s),
                   time_text(kind.slowest.latency_seconds),
                   named(places, kind.slowest.a) + " and " + named(places, kind.slowest.b)});
    }
    std::string how = links.one_at_a_time ? "one pair after the other" : "many pairs at the same time";
    if (links.rounds < links.all_rounds)
        how += ", " + std::to_string(links.rounds) + " rounds of " + std::to_string(links.all_rounds);
    return "\nmessages of 1 MB to and fro, " + how + "\n" + table.text();
}

/// What the launcher did: processes, cores, programs.
void look_at_places(Runtime& runtime, const Config& config, Report& report, Findings& findings) {
    report.places = gather_places(runtime);
    report.why_no_gpu = why_no_gpu(runtime, config.run.device);
    report.versions = versions();
    findings.say(places_text(report.places, runtime.session.devices()));
    findings.say(hosts_text(report.places, report.why_no_gpu));
    findings.say(versions_text(report.versions));
    findings.say("\nlaunch, " + runtime.mesh.world().backend() + " between the ranks\n");
    findings.check("the same program and libraries on all ranks",
                   difference_in_builds(runtime.session.world(), build_identity()));
    const Judgement judgement = judge_places(report.places);
    findings.settle("ranks bound to cores of their own, or to none", judgement.problem);
    for (const std::string& note : judgement.notes) findings.note(note);
}

void look_at_clocks(Communicator& world, Report& report, Findings& findings) {
    // Deadlines keep half a minute at most in reserve; log lines and file times are read to the second.
    constexpr double wrong = 30, remarkable = 1;
    report.clock = measure_clock_skew(world, system_clock_seconds);
    const ClockSkew& clock = report.clock;
    const double sure = clock.seconds - clock.uncertainty;
    const std::string apart = "rank " + named(report.places, clock.behind) + " is " +
                              time_text(clock.seconds) + " behind rank " + named(report.places, clock.ahead) +
                              ", give or take " + time_text(clock.uncertainty);
    findings.settle("clocks within 30 s", sure > wrong ? apart : "", world.size() > 1 ? apart : "one rank");
    if (sure > remarkable && sure <= wrong)
        findings.note("clocks are more than 1 s apart: times in logs and of files mislead");
}

/// Room for the buffers of a measurement, which all ranks of a host hold at the same time.
std::int64_t affordable_bytes(const Places& places, std::int64_t wanted) {
    for (const Host& host : places.hosts) {
        const std::int64_t available = std::min(host.memory.available, host.memory.usable());
        if (available > 0) wanted = std::min(wanted, available / 16 / host.ranks);
    }
    return std::max<std::int64_t>(wanted, 1 << 20);
}

void measure_links_between_ranks(Runtime& runtime, Report& report, Findings& findings) {
    Communicator& world = runtime.session.world();
    if (world.size() == 1) return findings.note("one rank: there are no links to measure");
    constexpr std::int64_t most = 64 << 20;
    report.all_reduce = time_all_reduces(runtime, affordable_bytes(report.places, most));
    findings.say(reductions_text(report.all_reduce, world.size()));
    std::vector<int> nodes;
    for (const Place& place : report.places.ranks) nodes.push_back(place.node);
    report.links = measure_links(world, nodes);
    findings.say(links_text(report.links, report.places));
    for (const LinkKind& kind : report.links.kinds)
        if (kind.name != report.links.kinds.front().name &&
            2 * kind.slowest.bytes_per_s < kind.median_bytes_per_s)
            findings.note("slow link " + kind.name + ": ranks " + named(report.places, kind.slowest.a) +
                          " and " + named(report.places, kind.slowest.b) + " reach " +
                          rate_text(kind.slowest.bytes_per_s) + ", the median is " +
                          rate_text(kind.median_bytes_per_s));
}

void measure_cores(Runtime& runtime, Report& report, Findings& findings) {
    const auto ops = make_ops(runtime.device, runtime.threads);
    const Work::Gemm product{.m = 1024, .n = 1024, .k = 1024, .transpose_a = false, .transpose_b = false};
    const double seconds = product_seconds(runtime.mesh.world(), runtime, *ops, product, DType::f32);
    report.gflops = product.flops() / seconds / 1e9;
    report.copy_bytes_per_s = copy_rate(runtime, *ops, affordable_bytes(report.places, 128 << 20) / 4);
    findings.say("\nslowest rank, all at once: " + fixed(report.gflops, 1) +
                 " GFLOP/s in a product of 1024 x 1024 x 1024 float32, copies at " +
                 rate_text(report.copy_bytes_per_s) + " read and written\n");
}

void try_collectives_of_devices(Runtime& runtime, Findings& findings) {
    DeviceDetour detour(runtime.device, runtime.mesh.world().duplicate());
    findings.say("\nthe same of memory of the devices, " + detour.backend() + "\n");
    for (const CollectiveCheck& check : collective_checks())
        findings.check(check.name + " on " + runtime.device.name(), check.wrong_here(detour));
}

std::string verdict(const std::vector<std::string>& problems) {
    if (problems.empty()) return "verdict: this launch works";
    if (problems.size() == 1) return "verdict: 1 problem: " + problems.front();
    return "verdict: " + std::to_string(problems.size()) + " problems, first: " + problems.front();
}

int run(Runtime& runtime, const CommandLine& line, const Config& config) {
    const Session& session = runtime.session;
    Communicator& world = runtime.session.world();
    const bool json = line.has("json");
    Findings findings(world, "rank " + std::to_string(session.rank()) + " on " + session.host(), json);
    Report report;

    look_at_places(runtime, config, report, findings);
    look_at_clocks(world, report, findings);
    findings.say("\ncollectives of 0, 1, 1,009 and 1,000,003 elements against their exact results\n");
    for (const CollectiveCheck& check : collective_checks())
        findings.check(check.name, check.wrong_here(world));
    if (!runtime.device.host_memory()) try_collectives_of_devices(runtime, findings);
    measure_links_between_ranks(runtime, report, findings);
    measure_cores(runtime, report, findings);
    findings.say("\nfiles\n");
    const std::string run_dir = config.run.dir.empty() ? "." : existing_folder(world, config.run.dir);
    report.files = check_files(world, line.option("dir", run_dir), findings);

    findings.say("\n" + verdict(findings.problems()) + "\n");
    if (json && session.rank() == 0) print(json_text(report, findings) + "\n");
    return findings.problems().empty() ? 0 : static_cast<int>(Status::failed);
}

}  // namespace

Command doctor_command() {
    return {
        .name = "doctor",
        .arguments = "[run.ini] [--dir=DIR] [--json] [--section.key=value ...]",
        .summary = "checks the launch: ranks, binding, collectives, links, clocks, parallel HDF5",
        .help =
            "To be started exactly as the training will be. Shows every rank with its host, cores and "
            "device, "
            "compares every collective with exact results, measures all-reduce, links, products and copies, "
            "and writes and reads one file from all ranks. The last line is the verdict; exit status 1 when "
            "anything is wrong.",
        .options = {{"dir", "DIR",
                     "Where to try parallel HDF5. Default: run.dir, or the folder above it that "
                     "is there."},
                    {"json", "", "One JSON object on stdout instead of text."}},
        .most_arguments = 1,
        .takes_keys = true,
        .reads_ini = true,
        .run = run,
    };
}

}  // namespace trireme::app
