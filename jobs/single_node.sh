#!/usr/bin/env bash
# Trains on one machine: RANKS processes of THREADS threads each.
#   jobs/single_node.sh run.ini [--section.key=value ...]
set -euo pipefail
RANKS=${RANKS:-2}
THREADS=${THREADS:-$(($(nproc) / RANKS > 0 ? $(nproc) / RANKS : 1))}
TRIREME=${TRIREME:-build/release/trireme}

export OMP_NUM_THREADS=$THREADS
exec mpirun -n "$RANKS" "$TRIREME" train "$@" --run.threads="$THREADS"
