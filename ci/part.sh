#!/usr/bin/env bash
# Run a part of the night. How it ended is written to results/csv/parts/NAME.json, which the site reads.
#     ci/part.sh NAME SECONDS COMMAND...
# A command that takes more seconds is stopped with all that it started. The exit code is the command's.
set -uo pipefail
cd "$(dirname "$0")/.."

name=$1 limit=$2
shift 2
file=results/csv/parts/$name.json
timeout --signal=INT --kill-after=60 "$limit" "$@"
code=$?
case $code in
    0) reason='' ;;
    124 | 137) reason="it took more than $limit seconds" ;;
    *) reason="exit code $code" ;;
esac
now=$(date --utc +%Y-%m-%dT%H:%M:%S+00:00)
succeeded=$now
if ((code)); then
    succeeded=$(sed -n 's/.*"succeeded": "\([^"]*\)".*/\1/p' "$file" 2>/dev/null)
fi
mkdir -p "${file%/*}"
printf '{"ended": "%s", "reason": "%s", "succeeded": "%s"}\n' "$now" "$reason" "$succeeded" >"$file"
exit "$code"
