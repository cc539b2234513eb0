#!/usr/bin/env bash
# Measure main's new commits with asv, into results/asv: what the history's pages are made of. On a laptop too.
set -euo pipefail
cd "$(dirname "$0")/.."

machine="${ASV_MACHINE:-$(uname -n)}"  # hosted machines get a new name each day; their results belong together
if compgen -G "results/asv/*/$(git rev-parse HEAD | cut -c -8)-*.json" >/dev/null; then
    echo "the newest commit is measured already"
    exit
fi
# Without earlier results, "new" would be the whole history.
if compgen -G "results/asv/*/*-*.json" >/dev/null; then range=NEW; else range='HEAD^!'; fi

make .venv/bench.stamp
.venv/bin/python -m asv machine --yes --machine "$machine"
# Ended by its own clock, a run keeps what it has; ended by the runner's, it counts as cancelled and nothing is stored.
# ASV_BENCH, a regular expression, leaves out the benchmarks that it doesn't match.
exec timeout --signal=INT "${ASV_SECONDS:-16800}" .venv/bin/python -m asv run "$range" --machine "$machine" --steps "${ASV_STEPS:-10}" --show-stderr ${ASV_BENCH:+--bench "$ASV_BENCH"}
