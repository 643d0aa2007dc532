// The MPI handle behind a communicator: for MPI-IO in `io`, the one other place that speaks MPI.
#pragma once

#include <mpi.h>

#include "trireme/comm/communicator.hpp"

namespace trireme {

/// @throws Error when the communicator is not backed by MPI.
MPI_Comm mpi_comm_of(const Communicator& comm);

}  // namespace trireme
