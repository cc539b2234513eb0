#!/usr/bin/env bash
# Train in the processes that mpirun starts, two by default. Give it your hosts, such as
# MPIRUN="mpirun --bind-to none --host node1,node2 -n 2". Bound to one core, a process is slow. Open
# MPI 5 also needs `pip install mpi4py`.
#
#     examples/distributed/mpirun.sh --env cartpole --agent ppo --num-envs 64 \
#         --run-folder runs/mpi
set -euo pipefail

# shellcheck disable=SC2086 (the command and its flags)
exec ${MPIRUN:-mpirun --bind-to none -n 2} myriad train --distributed "$@"
