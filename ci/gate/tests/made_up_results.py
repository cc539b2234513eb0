"""Results that nobody measured, in asv's format: for the tests of the site and of the history."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

COLUMNS = ("result", "params", "version", "started_at", "duration")
COLUMNS += ("stats_ci_99_a", "stats_ci_99_b", "samples")
DAY_MS = 86_400_000
FIRST_DAY_MS = 1_700_000_000_000
CODE = "def time_chunk(self, workload):\n    'Run one chunk.'\n"


def commit_hash(place: int) -> str:
    return f"{(place + 1) * 2654435761 % 2**32:08x}" + f"{place:032x}"


def commit_files(root: Path, files: Sequence[str], branch: str = "main") -> list[str]:
    """Make a repository whose commits each change one of the files, and return their hashes."""
    root.mkdir(parents=True)
    stream = "".join(
        f"commit refs/heads/{branch}\ncommitter A <a@b.c> {1_700_000_000 + place} +0000\n"
        f"data {len(f'Commit {place}')}\nCommit {place}\n"
        f"M 100644 inline {file}\ndata {len(str(place))}\n{place}\n"
        for place, file in enumerate(files)
    )
    subprocess.run(["git", "init", "--quiet", "-b", branch], cwd=root, check=True)
    subprocess.run(["git", "fast-import", "--quiet"], cwd=root, input=stream, text=True, check=True)
    subprocess.run(["git", "reset", "--quiet", "--hard"], cwd=root, check=True)
    log = ["git", "rev-list", "--reverse", branch]
    return subprocess.run(log, cwd=root, capture_output=True, text=True, check=True).stdout.split()


def write_asv(
    folder: Path,
    series: dict[str, np.ndarray],
    *,
    workloads: tuple[str, ...] = (),
    machines: list[str] | None = None,
    versions: list[str] | None = None,
    processors: list[str] | None = None,
    commits: list[str] | None = None,
) -> None:
    """Write asv's results; `series` holds values as `[commit]` or `[commit, workload]`."""
    num_commits = len(next(iter(series.values())))
    params = [[repr(workload) for workload in workloads]] if workloads else []
    for place in range(num_commits):
        machine = machines[place] if machines else "runner"
        version = versions[place] if versions else "0.10.2"
        commit = commits[place] if commits else commit_hash(place)
        cpu = processors[place] if processors else "AMD EPYC"
        results = {
            name: _row(np.atleast_1d(values[place]), params, place)
            for name, values in series.items()
        }
        environment = f"virtualenv-py3.11-jax{version}"
        _write(folder / machine / f"{commit[:8]}-{environment}.json", {
            "commit_hash": commit,
            "env_name": environment,
            "date": FIRST_DAY_MS + place * DAY_MS,
            "params": {"machine": machine, "cpu": cpu, "num_cpu": "2", "ram": "25276514304"},
            "python": "3.11",
            "requirements": {"jax": version},
            "env_vars": {},
            "result_columns": list(COLUMNS),
            "results": results,
            "durations": {},
            "version": 2,
        })  # fmt: skip
        of_machine = {"machine": machine, "cpu": "AMD EPYC", "version": 1}
        _write(folder / machine / "machine.json", of_machine)
    described: dict[str, Any] = {"version": 2}
    for name in series:
        unit = "bytes" if ".track_" in name else "seconds"
        described[name] = {"name": name, "unit": unit, "code": CODE, "params": params}
    _write(folder / "benchmarks.json", described)


def _row(values: np.ndarray, params: list[list[str]], place: int) -> list[Any]:
    ends = ([float(value * factor) for value in values] for factor in (0.99, 1.01))
    samples = [[float(value), float(value * 1.003)] for value in values]
    started = FIRST_DAY_MS + place * DAY_MS + 3_600_000
    return [[float(value) for value in values], params, "1", started, 1.0, *ends, samples]


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def noisy(levels: np.ndarray, seed: int, noise: float = 0.015) -> np.ndarray:
    return levels * (1 + noise * np.random.default_rng(seed).standard_normal(len(levels)))


def history(
    num_functions: int, num_workloads: int, num_commits: int, seed: int = 0
) -> dict[str, np.ndarray]:
    """Return noisy series, one in five with a step of up to 12%."""
    rng = np.random.default_rng(seed)
    places = range(num_functions - 1)
    names = [f"suite_{place % 12:02}.Throughput.time_chunk_{place:02}" for place in places]
    at = np.arange(num_commits)[:, None]
    found = {}
    for name in [*names, "suite_00.Throughput.track_temp_bytes"]:
        scale = 10.0 ** rng.uniform(-4, 0, num_workloads)
        noise = 0.0 if ".track_" in name else 0.015
        values = scale * (1 + noise * rng.standard_normal((num_commits, num_workloads)))
        has_moved = rng.random(num_workloads) < 0.2
        steps = np.where(has_moved, rng.uniform(0.9, 1.12, num_workloads), 1.0)
        values *= np.where(at >= rng.integers(10, num_commits, num_workloads), steps, 1.0)
        found[name] = np.round(values * 1e9) if ".track_" in name else values
    return found
