#include "comm/processes.hpp"

#include "comm/device_communicator.hpp"
#include "comm/mpi_communicator.hpp"
#include "comm/team_communicator.hpp"
#include "trireme/base/error.hpp"

namespace trireme {

MPI_Comm processes_of(const Communicator& comm) {
    if (const auto* device = dynamic_cast<const DeviceCommunicator*>(&comm))
        return processes_of(device->host());
    if (const auto* mpi = dynamic_cast<const MpiCommunicator*>(&comm)) return mpi->handle();
    const auto* team = dynamic_cast<const TeamCommunicator*>(&comm);
    if (team == nullptr) throw failure("a " + comm.backend() + " communicator has no MPI handle");
    return team->processes() != nullptr ? team->processes()->handle() : MPI_COMM_SELF;
}

std::shared_ptr<void> once_per_process(Communicator& comm,
                                       const std::function<std::shared_ptr<void>()>& make) {
    if (auto* device = dynamic_cast<DeviceCommunicator*>(&comm))
        return once_per_process(device->host(), make);
    auto* team = dynamic_cast<TeamCommunicator*>(&comm);
    return team != nullptr ? team->once(make) : make();
}

}  // namespace trireme
