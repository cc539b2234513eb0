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
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ci.validation.planted import PlantedProject
from perfgate.config import Rules
from perfgate.errors import PreparationError
from perfgate.source.git import commit_of

ROOT = Path(__file__).resolve().parents[2]
_RECORDING_S, _GATE_TIMEOUT_S = 3_000, 3_600
Row = dict[str, Any]


@dataclass(frozen=True)
class AgainstItself:
    """A run of the gate with one commit as both sides."""

    suite_config: Path
    bench: str
    budget_s: float

    def run(self, number: int) -> tuple[Row, list[Row]]:
        """Return how run `number` ended, and its pairs. A core is kept busy in every second run."""
        root = self.suite_config.parent
        commit = commit_of("HEAD", root)
        flags = ["--base", commit, "--head", commit, "--suite-config", str(self.suite_config)]
        flags += ["--time-identical", "--undecided", "stop"]
        flags += ["--budget", str(self.budget_s), "--seed", str(number)]
        flags += ["--bench", self.bench] if self.bench else []
        with _busy_core() if number % 2 else contextlib.nullcontext():
            code, report, seconds = run_gate(flags, root)
        timed = [row for row in report["rows"] if "log_ratios" in row]
        verdicts = [row["verdict"] for row in timed]
        words = ("slower", "not slower", "faster", "undecided")
        here = {"commit": commit[:12], "cpu": report["machine"]["cpu"], "timestamp": now()}
        core = "busy" if number % 2 else "idle"
        ended = {
            "run": number + 1,
            "other_core": core,
            "bench": self.bench,
            "budget_s": self.budget_s,
            "exit_code": code,
            "seconds": round(seconds, 1),
            "pairs": report["pairs"],
            "benchmarks": len(verdicts),
            **{word.replace(" ", "_"): verdicts.count(word) for word in words},
            **here,
        }
        pairs = [
            {
                "run": number + 1,
                "other_core": core,
                "benchmark": row["name"],
                "log_ratio": log_ratio,
                **here,
            }
            for row in timed
            for log_ratio in (*row["log_ratios"], *row["confirming_log_ratios"])
        ]
        return ended, pairs


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


@dataclass(frozen=True)
class Planted:
    """A project whose head does `ratio` times the work, and the rules that judge it."""

    project: PlantedProject
    rules: Rules
    ratio: float
    head: str

    def record(self, num_pairs: int) -> list[Row]:
        """Return `num_pairs` pairs, but at least the two that a test needs, whatever they show."""
        _, report, _ = self._gate({"looks": [max(2, num_pairs)], "confirm_looks": [2]})
        measured = round(self.project.measured(self.ratio), 4)
        return [
            {
                "planted": self.ratio,
                "measured": measured,
                "benchmark": row["name"],
                "log_ratio": log_ratio,
                "cpu": report["machine"]["cpu"],
                "timestamp": now(),
            }
            for row in report["rows"]
            for log_ratio in row["log_ratios"]
        ]

    def live(self) -> list[Row]:
        """Run the gate in the ordinary way, and return its verdict on every benchmark."""
        code, report, seconds = self._gate({})
        return [
            {
                "planted": self.ratio,
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

    def _gate(self, limits: dict[str, Any]) -> tuple[int, dict[str, Any], float]:
        """Run the gate on the planted head.

        Raises:
            PreparationError: it left no report, or a benchmark has no ratio in it.
        """
        root = self.project.root
        flags = [
            "--base",
            "start",
            "--head",
            self.head,
            "--suite-config",
            str(root / "asv.conf.json"),
        ]
        code, report, seconds = run_gate([*flags, "--rules", str(self._write_rules(limits))], root)
        for row in report["rows"]:
            if "ratio" not in row:
                raise PreparationError(
                    f"{row['name']} was not timed: {'; '.join(row['reasons']) or row['verdict']}."
                )
        return code, report, seconds

    def _write_rules(self, limits: dict[str, Any]) -> Path:
        """Write the gate's own verdict and timing rules, with these limits to record pairs."""
        verdict = asdict(self.rules.verdict)
        timing = asdict(self.rules.timing)
        if limits:  # pairs that are only recorded must not stop early
            timing["budget_s"] = _RECORDING_S
            timing["run_s"] = 0
        lines = []
        for name, table in (("verdict", verdict | limits), ("timing", timing)):
            lines += [f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in table.items())]
        path = self.project.root.parent / f"{'recorded' if limits else 'live'}.toml"
        path.write_text("\n".join(lines) + "\n")
        return path


def _toml(value: Any) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def run_gate(flags: Sequence[str], folder: Path) -> tuple[int, dict[str, Any], float]:
    """Run the gate in a new process. Return its exit code, its report and its seconds.

    Raises:
        PreparationError: it left no report.
    """
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="selftest-") as output:
        command = [sys.executable, "-m", "perfgate", *flags, "--output", output]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        }
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=_GATE_TIMEOUT_S,
                check=False,
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
