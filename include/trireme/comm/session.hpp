// The process's stay in MPI: started first, ended last. Knows the world, this rank's node and its share of
// the cores. Where a process drives several devices, each of its threads is a rank with a session of its own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/communicator.hpp"

namespace trireme {

class Session {
public:
    /// Initializes MPI (thread level MULTIPLE: the communication thread, and devices driven by threads, call
    /// it side by side) with errors returned, not fatal. @throws Error when less is provided.
    Session(int& argc, char**& argv);
    /// What each of `devices` threads of this process sees as a rank: rank = process * devices + device, and
    /// an even share of the process's cores. They must be gone before this session ends. Collective among the
    /// processes. @throws Error (bad_usage) when these do not ask for as many.
    std::vector<std::unique_ptr<Session>> per_device(int devices);
    /// Finalizes MPI, unless an exception is on its way: then other ranks may still wait, and main must
    /// abort.
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    Communicator& world() { return *world_; }
    int rank() const { return world_->rank(); }
    int size() const { return world_->size(); }

    int local_rank() const { return local_->rank(); }  ///< among the ranks of this node (shared-memory split)
    int local_size() const { return local_->size(); }
    Communicator& local() { return *local_; }
    int process() const { return process_; }  ///< of this rank, among `processes`
    int processes() const { return processes_; }
    int device() const { return device_; }  ///< of this rank, among the process's `devices`
    int devices() const { return devices_; }
    const std::string& host() const { return host_; }
    /// Cores this process may run on, and this rank's share where the ranks of the node overlap on them.
    int allowed_cores() const { return allowed_cores_; }
    int core_share() const { return core_share_; }

    /// Ends the whole job at once with this exit status. For errors of one rank, after its message.
    [[noreturn]] void abort(int status) noexcept;

private:
    Session(const Session& process, int device, std::unique_ptr<Communicator> world,
            std::unique_ptr<Communicator> local, int devices);

    std::unique_ptr<Communicator> world_, local_;
    std::string host_;
    int process_ = 0, processes_ = 1, device_ = 0, devices_ = 1;
    int allowed_cores_ = 1, core_share_ = 1;
    int uncaught_at_start_ = 0;
    bool owns_mpi_ = true;
};

/// "Open MPI 4.1.4 (MPI 3.1)". Works before Session.
std::string mpi_version();
/// What MPI really grants its threads: "single", "funneled", "serialized" or "multiple". After Session.
std::string mpi_thread_level();

/// Looks at what the environment says: TRIREME_WAIT, and whether the world is what the launcher promises
/// (OMPI_COMM_WORLD_SIZE, PMI_SIZE, PMIX_*, SLURM_NTASKS of a step). Collective. @throws Error (bad_usage)
/// that names the variable and the fix, also when this process is alone although it should not be: the sign
/// of a program started under the wrong MPI's launcher.
void check_launch(Session& session);

}  // namespace trireme
