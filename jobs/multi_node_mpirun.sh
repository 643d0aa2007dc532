#!/usr/bin/env bash
# Trains on several machines without a batch system. HOSTS names a hostfile, one line for each machine: `node1 slots=4` (Open MPI) or
# `node1:4` (MPICH). The folder with TRIREME, the data and run.dir must be the same on all of them (NFS, Lustre).
#   HOSTS=hosts.txt RANKS=8 jobs/multi_node_mpirun.sh run.ini [--section.key=value ...]
set -euo pipefail
HOSTS=${HOSTS:?a hostfile}
RANKS=${RANKS:?ranks on all machines together}
THREADS=${THREADS:-1}
TRIREME=${TRIREME:-$PWD/build/release/trireme}

export OMP_NUM_THREADS=$THREADS
if mpirun --version 2>&1 | grep -q 'Open MPI'; then
    exec mpirun --hostfile "$HOSTS" -n "$RANKS" -x OMP_NUM_THREADS "$TRIREME" train "$@" --run.threads="$THREADS"
fi
exec mpirun -f "$HOSTS" -n "$RANKS" -genv OMP_NUM_THREADS "$THREADS" "$TRIREME" train "$@" --run.threads="$THREADS"
