// What `trireme doctor` looks at, part by part: where the ranks are, what the collectives give, how fast the
// links and files are, whose clock is off. Each part is collective and gives the same on all ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/communicator.hpp"
#include "trireme/train/runtime.hpp"

namespace trireme::app::doctor {

// ---- what is found

struct Check {
    std::string name;
    bool ok = true;
    std::string detail;  ///< what was measured, or what is wrong
};

/// Collects what is found. Unless it is quiet, rank 0 prints it as it comes: the launch may hang later.
class Findings {
public:
    /// `me`: this rank for a person, "rank 3 on node2".
    Findings(Communicator& world, std::string me, bool quiet)
        : world_(world), me_(std::move(me)), quiet_(quiet) {}

    void say(const std::string& text) const;
    /// `wrong_here`: what is wrong on this rank; empty: nothing. The first rank that has something is named.
    /// `detail`: what was measured, where nothing is wrong. Collective.
    void check(const std::string& name, const std::string& wrong_here, const std::string& detail = "");
    /// The same for what all ranks know alike.
    void settle(const std::string& name, const std::string& wrong, const std::string& detail = "");
    void note(const std::string& text);

    const std::vector<Check>& checks() const { return checks_; }
    const std::vector<std::string>& problems() const { return problems_; }
    const std::vector<std::string>& notes() const { return notes_; }

private:
    Communicator& world_;
    std::string me_;
    bool quiet_;
    std::vector<Check> checks_;
    std::vector<std::string> problems_, notes_;
};

// ---- this machine; `root` stands before every path that is read, for tests

/// {0, 1, 2, 3, 8} as "0-3,8", and back.
std::string short_list(const std::vector<int>& numbers);
std::vector<int> numbers_of(const std::string& list);

/// Cores that this process may run on.
std::vector<int> allowed_cores(const std::string& root = "");
/// Cores that the machine, or the container, has.
std::vector<int> machine_cores(const std::string& root = "");
/// The NUMA nodes that these cores belong to: "0", "0-1"; "?" where the machine does not say.
std::string numa_nodes(const std::vector<int>& cores, const std::string& root = "");

struct Memory {
    std::int64_t total = 0, available = 0;  ///< bytes of the machine
    std::int64_t limit = 0;  ///< of the control group, where that is smaller than the machine; 0: none

    std::int64_t usable() const { return limit > 0 ? limit : total; }
};
Memory machine_memory(const std::string& root = "");
/// GPUs that the NVIDIA driver shows as files.
int gpu_files(const std::string& root = "");
/// Program, build and libraries, one a line, and a checksum of the program's file.
std::string build_identity();

// ---- where the ranks are

struct Place {
    int rank = 0, node = 0;  ///< node: the first rank that shares its memory
    std::string host;
    int local_rank = 0, local_size = 1, process = 0, pid = 0;
    std::vector<int> cores;
    std::string numa;
    int threads = 1;
    std::string device;
};

struct Host {
    std::string name;
    int node = 0;
    int ranks = 0;
    std::vector<int> cores;
    Memory memory;
    int gpus = 0;
};

struct Places {
    std::vector<Place> ranks;
    std::vector<Host> hosts;
};

Places gather_places(Runtime& runtime);
/// What is wrong with how the ranks are spread over cores, in a sentence each; empty: nothing.
struct Judgement {
    std::string problem;
    std::vector<std::string> notes;
};
Judgement judge_places(const Places& places);
/// Why no rank computes on a GPU; empty where they do.
std::string why_no_gpu(Runtime& runtime, const std::string& asked_for);
/// Rows of two: what, version.
using Versions = std::vector<std::pair<std::string, std::string>>;
Versions versions();
/// What of build_identity() differs between the ranks; empty: nothing.
std::string difference_in_builds(Communicator& world, const std::string& identity_here);

// ---- collectives

/// A verb of the communicator against exact values. All ranks of the group call it.
struct CollectiveCheck {
    std::string name;
    /// What came out wrong on this rank, with the first wrong value; empty: nothing.
    std::string (*wrong_here)(Communicator& comm);
};
const std::vector<CollectiveCheck>& collective_checks();

// ---- links

struct Reduction {
    std::int64_t bytes = 0;
    double seconds = 0;
    double bus_bytes_per_s = 0;  ///< what each rank has to send, and to receive: 2 (n-1)/n of the bytes
};
/// All-reduces of float32, 4 bytes to `most_bytes`; fewer where the next would take long. None for one rank.
std::vector<Reduction> time_all_reduces(Runtime& runtime, std::int64_t most_bytes);

/// Whom a rank meets in a round of the tournament in which everybody meets everybody once, in size - 1 rounds
/// (size, where that is odd); -1: nobody.
int opponent(int rank, int size, int round);

struct Link {
    int a = 0, b = 0;
    double latency_seconds = 0, bytes_per_s = 0;
};
struct LinkKind {
    std::string name;  ///< "within a host", "between hosts"
    std::int64_t pairs = 0;
    Link slowest;
    double median_latency_seconds = 0, median_bytes_per_s = 0;
};
struct Links {
    std::vector<LinkKind> kinds;  ///< those that there are, all pairs together first
    int rounds = 0, all_rounds = 0;
    bool one_at_a_time = true;  ///< while the other ranks wait
};
/// Messages to and fro between pairs; of each the fastest exchange counts. `nodes`: by rank.
Links measure_links(Communicator& world, const std::vector<int>& nodes);

struct ClockSkew {
    double seconds = 0;      ///< between the two ranks that are furthest apart
    double uncertainty = 0;  ///< half the way to and fro
    int behind = 0, ahead = 0;
};
/// `clock`: seconds of this rank's clock that logs and file times go by.
ClockSkew measure_clock_skew(Communicator& world, const std::function<double()>& clock);
double system_clock_seconds();

// ---- files

struct FileRates {
    std::string path;
    double write_bytes_per_s = 0, read_bytes_per_s = 0;  ///< 0: not measured
    std::int64_t free_bytes = -1;                        ///< -1: not known
};
/// The folder that the run directory is, or the one above it that is there already.
std::string existing_folder(Communicator& world, const std::string& dir);
/// Writes and reads one file from all ranks, and removes it.
FileRates check_files(Communicator& world, const std::string& dir, Findings& findings);

// ---- all of it

struct Report {
    Places places;
    std::string why_no_gpu;
    Versions versions;
    std::vector<Reduction> all_reduce;
    Links links;
    double copy_bytes_per_s = 0, gflops = 0;
    FileRates files;
    ClockSkew clock;
};
/// One object on one line, for `plan` and scripts.
std::string json_text(const Report& report, const Findings& findings);

}  // namespace trireme::app::doctor
