#!/usr/bin/env bash
# Fails if the package index has a newer jax than pyproject.toml allows, so that somebody looks. No pull request waits for it.
set -euo pipefail
cd "$(dirname "$0")/.."

bound=$(sed -n 's/^ *"jax>=[^<]*<\([0-9.]*\)".*/\1/p' pyproject.toml)
newest=$(python3 -m pip index versions jax 2>/dev/null | sed -n '1s/^jax (\(.*\))$/\1/p')
test -n "$bound" -a -n "$newest"
if [[ $(printf '%s\n' "$bound" "$newest" | sort --version-sort | head -n 1) == "$bound" ]]; then
    echo "jax $newest is out, and pyproject.toml allows only versions below $bound: run make test-newest with it." >&2
    exit 1
fi
echo "jax $newest is the newest, and allowed"
