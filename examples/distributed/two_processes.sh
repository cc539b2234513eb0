#!/usr/bin/env bash
# Train in two processes of one machine. On two machines, start one line on each and name the first
# machine in place of localhost.
#
#     examples/distributed/two_processes.sh --env cartpole --agent ppo --num-envs 64 \
#         --run-folder runs/two
set -euo pipefail

several=(--distributed --coordinator "localhost:${PORT:-20123}" --num-processes 2)

myriad train "${several[@]}" --process-id 1 "$@" &
other=$!
# An interrupt reaches process 0, which tells the other.
myriad train "${several[@]}" --process-id 0 "$@"
wait "$other"
