"""Make one run of the gate for `ci.validation.selftest`, and return it as rows.

It runs on a tree against itself, or on a planted slowdown.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perfgate.errors import PreparationError
from perfgate.source.git import commit_of

ROOT = Path(__file__).resolve().parents[2]
_GATE_TIMEOUT_S = 3_600
Row = dict[str, Any]


def against_itself(
    suite_config: Path, bench: str, budget_s: float, number: int
) -> tuple[Row, list[Row]]:
    """Run the gate with one commit as both sides. A core is kept busy in every second run.

    Returns:
        how run `number` ended, and its pairs.
    """
    root = suite_config.parent
    commit = commit_of("HEAD", root)
    flags = ["--base", commit, "--head", commit, "--suite-config", str(suite_config)]
    flags += ["--time-identical", "--undecided", "stop"]
    flags += ["--budget", str(budget_s), "--seed", str(number)]
    flags += ["--bench", bench] if bench else []
    with _busy_core() if number % 2 else contextlib.nullcontext():
        code, report, seconds = run_gate(flags, root)
    timed = [row for row in report["rows"] if "log_ratios" in row]
    verdicts = [row["verdict"] for row in timed]
    words = ("slower", "not slower", "faster", "undecided")
    run = {"run": number + 1, "other_core": "busy" if number % 2 else "idle"}
    here = {"commit": commit[:12], "cpu": report["machine"]["cpu"], "timestamp": now()}
    ended = {
        "bench": bench,
        "budget_s": budget_s,
        "exit_code": code,
        "seconds": round(seconds, 1),
        "pairs": report["pairs"],
        "benchmarks": len(verdicts),
        **{word.replace(" ", "_"): verdicts.count(word) for word in words},
    }
    pairs = [
        run | {"benchmark": row["name"], "log_ratio": log_ratio} | here
        for row in timed
        for log_ratio in (*row["log_ratios"], *row["confirming_log_ratios"])
    ]
    return run | ended | here, pairs


@contextlib.contextmanager
def _busy_core() -> Iterator[None]:
    """Keep a core busy. The gate will not choose it, since it takes the idlest one."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    pin = f"os.sched_setaffinity(0, {{{cores[0]}}})"
    spin = f"import os\nif hasattr(os, 'sched_setaffinity'): {pin}\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", spin])
    try:
        time.sleep(0.2)
        yield
    finally:
        process.kill()
        process.wait()


def on_planted(root: Path, ratio: float, head: str, budget_s: float) -> list[Row]:
    """Run the gate on a head that does `ratio` times the work, and return every verdict.

    Raises:
        PreparationError: the gate left no report, or a benchmark has no ratio in it.
    """
    flags = ["--base", "start", "--head", head, "--suite-config", str(root / "asv.conf.json")]
    code, report, seconds = run_gate([*flags, "--budget", str(budget_s)], root)
    for row in report["rows"]:
        if "ratio" not in row:
            raise PreparationError(
                f"{row['name']} was not timed: {'; '.join(row['reasons']) or row['verdict']}."
            )
    return [
        {
            "planted": ratio,
            "benchmark": row["name"],
            "verdict": row["verdict"],
            "ratio": round(row["ratio"], 4),
            "low": round(row["low"], 4),
            "high": round(row["high"], 4),
            "pairs": len(row["log_ratios"]) + len(row["confirming_log_ratios"]),
            "exit_code": code,
            "seconds": round(seconds, 1),
            "cpu": report["machine"]["cpu"],
            "timestamp": now(),
        }
        for row in report["rows"]
    ]


def run_gate(flags: Sequence[str], folder: Path) -> tuple[int, dict[str, Any], float]:
    """Run the gate in a new process. Return its exit code, its report and its seconds.

    Raises:
        PreparationError: it left no report.
    """
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="selftest-") as output:
        command = [sys.executable, "-m", "perfgate", *flags, "--output", output]
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        options: Any = {"cwd": folder, "env": os.environ | {"PYTHONPATH": path}, "text": True}
        try:
            done = subprocess.run(
                command, capture_output=True, timeout=_GATE_TIMEOUT_S, check=False, **options
            )
        except subprocess.TimeoutExpired:
            raise PreparationError(f"the gate did not end within {_GATE_TIMEOUT_S:,} s.") from None
        report = Path(output) / "gate.json"
        if not report.is_file():
            raise PreparationError(
                f"the gate left no report: {(done.stderr.strip().splitlines() or ['?'])[-1]}"
            )
        return done.returncode, json.loads(report.read_text()), time.monotonic() - start


def now() -> str:
    """Return the current time in the tables' format."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
