#include "trireme/comm/session.hpp"

#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>

#include "comm/team_communicator.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/comm/agree.hpp"

namespace trireme {
namespace {

std::string host_name() {
    std::array<char, 256> name{};
    return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

/// One entry per core: 1 where this process may run.
std::vector<std::int32_t> allowed_core_map() {
    std::vector<std::int32_t> map(CPU_SETSIZE, 0);
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return map;
    for (std::size_t core = 0; core < map.size(); ++core) map[core] = CPU_ISSET(core, &set) ? 1 : 0;
    return map;
}

std::int64_t env_int(const char* name) {
    const char* text = std::getenv(name);
    return text != nullptr ? parse_int(text).value_or(0) : 0;
}

std::string wait_variable() {
    const char* text = std::getenv("TRIREME_WAIT");
    return text != nullptr ? text : "auto";
}

/// Ranks that wait within MPI keep their core; where it is not theirs alone, others get on late, or hardly at
/// all under an MPI that never yields. Collective, since all ranks have to call alike.
bool ranks_should_rest(Communicator& world, bool crowded) {
    const std::string how = wait_variable();
    const int wish = how == "rest" || (how != "block" && crowded) ? 1 : 0;
    return all_reduce_value(world, wish, Reduce::max) != 0;
}

}  // namespace

Session::Session(int& argc, char**& argv)
    : host_(host_name()), uncaught_at_start_(std::uncaught_exceptions()) {
    // A host program (a test runner) may have started MPI already; then it also ends it.
    int running = 0, provided = MPI_THREAD_SINGLE;
    MPI_Initialized(&running);
    owns_mpi_ = running == 0;
    if (owns_mpi_ && MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS)
        throw failure("MPI_Init_thread failed");
    if (!owns_mpi_) MPI_Query_thread(&provided);
    if (provided < MPI_THREAD_MULTIPLE)
        throw failure("this MPI provides thread level " + std::to_string(provided) +
                      ", but threads that call it side by side need MPI_THREAD_MULTIPLE (" +
                      std::to_string(MPI_THREAD_MULTIPLE) + ")");
    auto world = std::make_unique<MpiCommunicator>(MPI_COMM_WORLD, false);
    local_ = split_by_node(*world);
    world_ = std::move(world);
    process_ = world_->rank();
    processes_ = world_->size();

    // Ranks that may run on the same cores share them: a core that k ranks of the node may use counts 1/k.
    const std::vector<std::int32_t> mine = allowed_core_map();
    std::vector<std::int32_t> users = mine;
    all_reduce_values(*local_, std::span<std::int32_t>(users));
    double share = 0;
    allowed_cores_ = 0;
    for (std::size_t core = 0; core < mine.size(); ++core) {
        if (mine[core] == 0) continue;
        ++allowed_cores_;
        share += 1.0 / users[core];
    }
    core_share_ = std::max(1, static_cast<int>(share + 1e-6));
    if (ranks_should_rest(*world_, share < 1 - 1e-6)) {
        world_->rest_while_waiting();
        local_->rest_while_waiting();
    }
}

Session::Session(const Session& process, int device, std::unique_ptr<Communicator> world,
                 std::unique_ptr<Communicator> local, int devices)
    : world_(std::move(world)),
      local_(std::move(local)),
      host_(process.host_),
      process_(process.process_),
      processes_(process.processes_),
      device_(device),
      devices_(devices),
      allowed_cores_(process.allowed_cores_),
      core_share_(std::max(1, process.core_share_ / devices)),
      owns_mpi_(false) {}

std::vector<std::unique_ptr<Session>> Session::per_device(int devices) {
    const int least = all_reduce_value(*world_, devices, Reduce::min),
              most = all_reduce_value(*world_, devices, Reduce::max);
    if (least != most)
        throw usage_error("the processes are to drive from " + std::to_string(least) + " to " +
                          std::to_string(most) + " devices; expected as many in each");
    auto world = make_team(dynamic_cast<MpiCommunicator&>(*world_), devices);
    auto local = make_team(dynamic_cast<MpiCommunicator&>(*local_), devices);
    std::vector<std::unique_ptr<Session>> sessions;
    for (int device = 0; device < devices; ++device) {
        const auto at = static_cast<std::size_t>(device);
        sessions.emplace_back(
            new Session(*this, device, std::move(world[at]), std::move(local[at]), devices));
    }
    return sessions;
}

Session::~Session() {
    // With an exception on its way other ranks may wait in a collective; finalizing would wait with them.
    if (std::uncaught_exceptions() > uncaught_at_start_) return;
    local_.reset();
    world_.reset();
    if (owns_mpi_) MPI_Finalize();
}

void Session::abort(int status) noexcept {
    if (processes_ > 1) MPI_Abort(MPI_COMM_WORLD, status);
    std::_Exit(status);  // with all its threads, wherever they are
}

std::string mpi_version() {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    const std::string whole(text.data());
    // Open MPI: "Open MPI v4.1.4, package: ..."; MPICH: "MPICH Version:\t4.0.2\nMPICH ...".
    std::string first = whole.substr(0, whole.find_first_of(",\n"));
    std::replace(first.begin(), first.end(), '\t', ' ');
    return first;
}

std::string mpi_thread_level() {
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    return level == MPI_THREAD_MULTIPLE     ? "multiple"
           : level == MPI_THREAD_SERIALIZED ? "serialized"
           : level == MPI_THREAD_FUNNELED   ? "funneled"
                                            : "single";
}

void check_launch(Session& session) {
    agreed_by_all(session.world(), [] {
        const std::string how = wait_variable();
        if (how != "auto" && how != "rest" && how != "block")
            throw usage_error("TRIREME_WAIT=" + how + ": expected auto, rest or block");
    });
    if (session.size() > 1) return;
    for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE", "MV2_COMM_WORLD_SIZE"}) {
        const std::int64_t promised = env_int(name);
        if (promised > 1)
            throw usage_error(std::string(name) + "=" + std::to_string(promised) +
                              " promises more than one rank, but this process is alone in its MPI world (" +
                              mpi_version() + "): start it with the mpirun of that MPI, or unset " + name);
    }
    const std::int64_t tasks = env_int("SLURM_NTASKS");
    if (tasks > 1)
        throw usage_error(
            "SLURM_NTASKS=" + std::to_string(tasks) +
            " promises more than one rank, but this process is alone in its MPI world (" + mpi_version() +
            "): start it with `srun --mpi=pmix` (Open MPI), `srun --mpi=pmi2` (MPICH) or `mpirun`; for "
            "one rank on purpose set SLURM_NTASKS=1");
}

}  // namespace trireme
