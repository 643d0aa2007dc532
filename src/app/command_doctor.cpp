// Checks the launch itself: who is where, and whether the collectives and parallel HDF5 give what they must.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "app/commands.hpp"
#include "app/text.hpp"
#include "trireme/base/clock.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/comm/agree.hpp"
#include "trireme/io/hdf5.hpp"

namespace trireme::app {
namespace {

constexpr std::int64_t sizes[] = {0, 1, 7, 1009, 65536};

/// Collects what rank 0 prints and how many checks have failed. The same on all ranks.
class Findings {
public:
    explicit Findings(Communicator& world) : world_(world) {}

    void say(const std::string& text) const {
        if (world_.rank() == 0) print(text);
    }
    void check(const std::string& what, bool good_here, const std::string& detail = "") {
        const bool good = all_reduce_value(world_, good_here ? 1 : 0, Reduce::min) != 0;
        if (!good) ++problems_;
        say((good ? "  ok       " : "  PROBLEM  ") + what + (detail.empty() ? "" : ": " + detail) + "\n");
    }
    void note(const std::string& what) const { say("  note     " + what + "\n"); }
    int problems() const { return problems_; }

private:
    Communicator& world_;
    int problems_ = 0;
};

void show_ranks(Runtime& runtime, Findings& findings) {
    const Session& session = runtime.session;
    Communicator& world = runtime.session.world();
    const int devices = session.devices();
    const std::string which =
        devices > 1 ? " " + std::to_string(session.device()) + " of " + std::to_string(devices) : "";
    const std::string mine =
        std::to_string(session.rank()) + "\t" + session.host() + "\t" + std::to_string(session.local_rank()) +
        " of " + std::to_string(session.local_size()) + "\t" + std::to_string(session.process()) + "\t" +
        std::to_string(getpid()) + "\t" + std::to_string(session.allowed_cores()) + "\t" +
        std::to_string(runtime.threads) + "\t" + runtime.device.name() + which;
    Table table("><<>>>><");
    table.add({"rank", "host", "local rank", "process", "pid", "cores", "threads", "device"});
    for (const std::string& row : gather_texts(world, mine)) table.add(split(row, '\t'));
    findings.say("launch: " + count_text(world.size(), "rank") +
                 (devices > 1 ? ", " + std::to_string(devices) + " devices in each process" : "") + "\n" +
                 table.text() + "\n");
    findings.say("MPI: " + mpi_version() + ", thread level multiple, communicator " + world.backend() + "\n");

    // Processes that are bound to cores of their own are looked at one by one, the others by node.
    const int most_cores = all_reduce_value(runtime.session.local(), session.allowed_cores(), Reduce::max);
    const bool bound = session.allowed_cores() == 1 && session.local_size() > devices;
    const int node_threads = all_reduce_value(runtime.session.local(), runtime.threads);
    const int threads = bound ? devices * runtime.threads : node_threads;
    const bool crowded = threads > most_cores && session.local_size() > 1;
    if (all_reduce_value(world, crowded ? 1 : 0) > 0)
        findings.note("more compute threads than cores: " + std::to_string(threads) + " threads on " +
                      std::to_string(most_cores) + " cores of " + session.host() +
                      "; start fewer ranks, or set run.threads");
}

/// Element i of rank r; sums over ranks stay far below 2^24, so float32 holds them exactly.
std::int64_t known_value(int rank, std::int64_t i) {
    return (i % 97) * (rank + 1);
}

template <class T>
std::vector<T> known_values(int rank, std::int64_t count) {
    std::vector<T> values(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i)
        values[static_cast<std::size_t>(i)] = static_cast<T>(known_value(rank, i));
    return values;
}

template <class T>
View view_over(std::vector<T>& values) {
    return view_of(values.data(), Shape{static_cast<std::int64_t>(values.size())});
}

template <class T>
bool all_reduce_is_exact(Communicator& world, std::int64_t count) {
    std::vector<T> values = known_values<T>(world.rank(), count);
    world.all_reduce(view_over(values), Reduce::sum);
    const std::int64_t ranks = std::int64_t{world.size()} * (world.size() + 1) / 2;
    for (std::int64_t i = 0; i < count; ++i)
        if (values[static_cast<std::size_t>(i)] != static_cast<T>((i % 97) * ranks)) return false;
    return true;
}

bool broadcast_is_exact(Communicator& world, std::int64_t count) {
    bool good = true;
    for (const int root : {0, world.size() - 1}) {
        std::vector<float> values = known_values<float>(world.rank(), count);
        world.broadcast(view_over(values), root);
        good = good && values == known_values<float>(root, count);
    }
    return good;
}

bool all_gather_is_exact(Communicator& world, std::int64_t count) {
    std::vector<float> mine = known_values<float>(world.rank(), count);
    std::vector<float> all(mine.size() * static_cast<std::size_t>(world.size()));
    world.all_gather(view_over(mine), view_over(all));
    for (int r = 0; r < world.size(); ++r) {
        const std::vector<float> part = known_values<float>(r, count);
        if (!std::equal(part.begin(), part.end(), all.begin() + r * count)) return false;
    }
    return true;
}

/// Rank r sends rank q the q-th of size() parts of its values.
bool all_to_all_is_exact(Communicator& world, std::int64_t count) {
    const int ranks = world.size();
    std::vector<float> sent = known_values<float>(world.rank(), count);
    const Range mine = part_of({0, count}, ranks, world.rank());
    std::vector<float> received(static_cast<std::size_t>(mine.size() * ranks));
    std::vector<Range> out, in;
    for (int q = 0; q < ranks; ++q) {
        out.push_back(part_of({0, count}, ranks, q));
        in.push_back({q * mine.size(), (q + 1) * mine.size()});
    }
    world.all_to_all(view_over(sent), out, view_over(received), in);
    for (int q = 0; q < ranks; ++q)
        for (std::int64_t i = 0; i < mine.size(); ++i)
            if (received[static_cast<std::size_t>(q * mine.size() + i)] !=
                static_cast<float>(known_value(q, mine.begin + i)))
                return false;
    return true;
}

/// Each rank gets the sums of its part.
bool reduce_scatter_is_exact(Communicator& world, std::int64_t count) {
    const int ranks = world.size();
    std::vector<float> all = known_values<float>(world.rank(), count);
    std::vector<Range> parts;
    for (int q = 0; q < ranks; ++q) parts.push_back(part_of({0, count}, ranks, q));
    const Range mine = parts[static_cast<std::size_t>(world.rank())];
    std::vector<float> sums(static_cast<std::size_t>(mine.size()));
    world.reduce_scatter(view_over(all), parts, view_over(sums), Reduce::sum);
    const std::int64_t factor = std::int64_t{ranks} * (ranks + 1) / 2;
    for (std::int64_t i = mine.begin; i < mine.end; ++i)
        if (sums[static_cast<std::size_t>(i - mine.begin)] != static_cast<float>(i % 97 * factor))
            return false;
    return true;
}

/// Round a ring, each rank to the next.
bool messages_are_exact(Communicator& world, std::int64_t count) {
    const int ranks = world.size(), before = (world.rank() + ranks - 1) % ranks;
    std::vector<float> sent = known_values<float>(world.rank(), count), received(sent.size());
    const Communicator::Ticket ticket = world.post(view_over(sent), (world.rank() + 1) % ranks, 1);
    world.receive(view_over(received), before, 1);
    world.wait(ticket);
    return received == known_values<float>(before, count);
}

void check_collectives(Communicator& world, Findings& findings) {
    bool reduce = true, wide = true, broadcast = true, gather = true, exchange = true, scatter = true,
         messages = true;
    for (const std::int64_t count : sizes) {
        reduce = all_reduce_is_exact<float>(world, count) && reduce;
        wide = all_reduce_is_exact<std::int64_t>(world, count) && wide;
        broadcast = broadcast_is_exact(world, count) && broadcast;
        gather = all_gather_is_exact(world, count) && gather;
        exchange = all_to_all_is_exact(world, count) && exchange;
        scatter = reduce_scatter_is_exact(world, count) && scatter;
        messages = messages_are_exact(world, count) && messages;
    }
    findings.say("\ncollectives of 0, 1, 7, 1009 and 65536 elements against their exact results\n");
    findings.check("all-reduce of float32", reduce);
    findings.check("all-reduce of int64", wide);
    findings.check("broadcast from the first and the last rank", broadcast);
    findings.check("all-gather", gather);
    findings.check("all-to-all", exchange);
    findings.check("reduce-scatter", scatter);
    findings.check("messages round a ring", messages);
}

/// Time of one all-reduce, and the bus bandwidth: each rank has to send and to receive 2(n-1)/n times the
/// bytes.
void time_all_reduce(Communicator& world, Findings& findings) {
    if (world.size() == 1) {
        findings.note("one rank: no links to measure");
        return;
    }
    std::vector<float> values(262144);
    for (int i = 0; i < 5; ++i) world.all_reduce(view_over(values), Reduce::sum);
    world.barrier();
    constexpr int times = 40;
    const Stopwatch watch;
    for (int i = 0; i < times; ++i) world.all_reduce(view_over(values), Reduce::sum);
    const double seconds = all_reduce_value(world, watch.seconds() / times, Reduce::max);
    const double bytes = static_cast<double>(values.size() * sizeof(float));
    const double bus = bytes / seconds * 2 * (world.size() - 1) / world.size();
    findings.say("  time     all-reduce of 1 MB: " + fixed(1e6 * seconds, 0) + " us, bus bandwidth " +
                 fixed(bus / 1e9, 2) + " GB/s\n");
}

/// All ranks write their intervals of one data set; each then reads that of its neighbour.
bool parallel_file_is_exact(Communicator& world, const std::string& path) {
    constexpr std::int64_t count = 65536;
    const int ranks = world.size();
    {
        io::File file(path, io::Access::create, world);
        io::Dataset dataset = file.create("/values", DType::f32, Shape{count});
        const Range mine = part_of({0, count}, ranks, world.rank());
        const std::vector<float> values = known_values<float>(0, count);
        dataset.write_flat(mine, DType::f32, values.data() + mine.begin);
        file.flush();
        file.close();
    }
    const io::File file(path, io::Access::read, world);
    const Range other = part_of({0, count}, ranks, (world.rank() + 1) % ranks);
    std::vector<float> read(static_cast<std::size_t>(other.size()));
    file.open("/values").read_flat(other, DType::f32, read.data());
    for (std::int64_t i = other.begin; i < other.end; ++i)
        if (read[static_cast<std::size_t>(i - other.begin)] != static_cast<float>(known_value(0, i)))
            return false;
    return true;
}

/// A run directory that is not there yet will be made in the nearest folder above it that is.
std::string existing_folder(Communicator& world, const std::string& dir) {
    namespace fs = std::filesystem;
    std::string found;
    if (world.rank() == 0) {
        fs::path path = fs::path(dir).lexically_normal();
        while (!path.empty() && !fs::exists(path)) path = path.parent_path();
        found = path.empty() ? "." : path.string();
    }
    return broadcast_text(world, found);
}

void check_files(Communicator& world, const std::string& dir, Findings& findings) {
    namespace fs = std::filesystem;
    const std::string path =
        (fs::path(dir) /
         (".doctor-" + std::to_string(broadcast_value(world, static_cast<int>(getpid()))) + ".h5"))
            .string();
    const std::string what = "write and read by all ranks in " + dir;
    findings.say("\nparallel HDF5 " + io::hdf5_version() + "\n");
    try {
        agreed_by_one(world, [&] {
            if (!fs::is_directory(dir)) throw failure(dir + " is not there");
            if (!std::ofstream(path)) throw failure("no file can be written into " + dir);
        });
        const Stopwatch watch;
        const bool good = parallel_file_is_exact(world, path);
        findings.check(what, good, fixed(1e3 * watch.seconds(), 0) + " ms");
    } catch (const Error& error) {
        if (error.scope() != Scope::all_ranks) throw;
        findings.check(what, false, error.what());
    }
    if (world.rank() == 0) {
        std::error_code ignored;
        fs::remove(path, ignored);
    }
}

int run(Runtime& runtime, const CommandLine& line, const Config& config) {
    Communicator& world = runtime.session.world();
    Findings findings(world);
    show_ranks(runtime, findings);
    check_collectives(world, findings);
    time_all_reduce(world, findings);
    const std::string run_dir = config.run.dir.empty() ? "." : existing_folder(world, config.run.dir);
    check_files(world, line.option("dir", run_dir), findings);

    const int problems = findings.problems();
    findings.say("\nverdict: " +
                 (problems == 0 ? std::string("all is well")
                                : std::to_string(problems) + (problems == 1 ? " problem" : " problems")) +
                 "\n");
    return problems == 0 ? 0 : static_cast<int>(Status::failed);
}

}  // namespace

Command doctor_command() {
    return {
        .name = "doctor",
        .arguments = "[run.ini] [--dir=DIR] [--section.key=value ...]",
        .summary = "checks the launch: ranks, binding, collectives, bandwidth, parallel HDF5",
        .help =
            "To be started exactly as the training will be. Shows every rank with its host, process, cores "
            "and "
            "device, "
            "compares the collectives with exact results, measures the all-reduce, and writes and reads one "
            "file from all ranks. Exit status 1 when anything is wrong.",
        .options = {{"dir", "DIR",
                     "Where to try parallel HDF5. Default: run.dir, or the current directory."}},
        .most_arguments = 1,
        .takes_keys = true,
        .reads_ini = true,
        .run = run,
    };
}

}  // namespace trireme::app
