// The processes behind a group of ranks, of which a process may have several: for MPI-IO in `io`, the one
// other place that speaks MPI.
#pragma once

#include <mpi.h>

#include <functional>
#include <memory>

#include "trireme/comm/communicator.hpp"

namespace trireme {

/// The processes that have ranks in the group; MPI_COMM_SELF where all are threads of this one. To be used by
/// one rank of each process.
MPI_Comm processes_of(const Communicator& comm);

/// Runs `make` on one rank of each process, and gives what it makes to all ranks of that process; what it
/// throws, they all throw. Collective. Nothing that another rank of the process may wait for may be held.
std::shared_ptr<void> once_per_process(Communicator& comm,
                                       const std::function<std::shared_ptr<void>()>& make);

}  // namespace trireme
