#!/usr/bin/env bash
# Train in the processes that mpirun starts, two by default. Give it your hosts, such as
# MPIRUN="mpirun --host node1,node2 -n 2". Later versions of Open MPI than 4 need `pip install mpi4py`.
#
#     examples/distributed/mpirun.sh --env cartpole --agent ppo --num-envs 64 --num-shards 8 \
#         --run-folder runs/mpi
set -euo pipefail

# shellcheck disable=SC2086 (the command and its flags)
exec ${MPIRUN:-mpirun -n 2} myriad train --distributed "$@"
