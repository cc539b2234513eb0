"""How often does the gate cry wolf on this machine, and how small a slowdown does it find?

    python -m ci.selftest                                  everything that is still missing
    python -m ci.selftest --runs 100 --bench cartpole      the gate against itself, on these benchmarks
    python -m ci.selftest --runs 0 --pairs 80 --live 10    planted slowdowns alone

Three tables, a row per run, each kept as soon as it is there; a second call goes on where the first was stopped.

    selftest_itself.csv    a tree against itself, same programs timed too; in every second run another core is busy
    selftest_pairs.csv     the log ratio of every pair, with slowdowns planted in a project of five benchmarks
    selftest_live.csv      what the gate said of those slowdowns, run as anybody runs it

From them it prints the false alarms, what the gate's own decisions make of 1,000 draws of the recorded pairs, and each
benchmark's noise with the smallest slowdown that the full number of pairs finds.
"""

import argparse
import contextlib
import csv
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ci import machine
from ci.acceptance import Parser, add_suite_config
from ci.entry import guarded
from ci.errors import PreparationError, UsageError
from ci.planted import BENCHMARKS, Project, make_project
from ci.rules import Rules, find_rules, read_rules
from ci.selftest_tables import false_alarms, found, lived
from ci.sides import commit_of, git
from ci.suite_config import read_config

ROOT = Path(__file__).resolve().parents[1]
PLANTED = (1.10, 1.05, 1.03)
_BATCH = 20  # pairs in one run of the gate: what is lost where it is stopped
_RECORDING_S, _GATE_TIMEOUT_S = 3_000, 3_600
Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """A CSV that grows by whole rows."""

    path: Path

    def rows(self) -> list[dict[str, str]]:
        """Return what is there."""
        if not self.path.is_file():
            return []
        with self.path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def add(self, new: Sequence[Row]) -> None:
        """Append rows; a reader finds all of them or none."""
        rows = [*self.rows(), *new]
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, list(new[0]))
        writer.writeheader()
        writer.writerows(rows)
        part = self.path.with_name(f"{self.path.name}.{os.getpid()}.part")
        part.write_text(text.getvalue(), encoding="utf-8", newline="")
        part.replace(self.path)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; bad input gives one sentence and exit code 2."""
    return guarded(lambda: run(_parse(sys.argv[1:] if argv is None else argv)), "stopped; what was measured is kept")


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(prog="python -m ci.selftest", description=(__doc__ or "").split("\n")[0], allow_abbrev=False)
    add_suite_config(parser)
    parser.add_argument("--runs", type=_count, default=100, help="of the tree against itself (default: 100)")
    parser.add_argument("--bench", default="", metavar="REGEX", help="benchmarks of those runs (default: all)")
    parser.add_argument("--budget", type=float, default=60.0, metavar="SECONDS", help="of one such run (default: 60)")
    parser.add_argument("--pairs", type=_count, default=80, help="recorded for each planted slowdown (default: 80)")
    parser.add_argument("--live", type=_count, default=10, help="whole runs on each planted slowdown (default: 10)")
    parser.add_argument("--output", type=Path, default=Path("results/csv"), metavar="DIR", help="default: results/csv")
    return parser.parse_args(argv)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 0, but got {text!r}")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Measure what is missing and print what all of it says; 1 where a tree against itself was called slower."""
    options.output.mkdir(parents=True, exist_ok=True)
    itself, pairs, live = (Table(options.output / f"selftest_{name}.csv") for name in ("itself", "pairs", "live"))
    rules = _rules(options.suite_config)
    for number in range(len(_alike(itself, options)), options.runs):
        itself.add([_against_itself(number, options)])
        _say(f"against itself: {number + 1} of {options.runs}")
    wanted = [(ratio, kind) for ratio in PLANTED for kind in ("pairs", "live")]
    if any(_missing(ratio, kind, pairs, live, options) for ratio, kind in wanted):
        with tempfile.TemporaryDirectory(prefix="planted-") as folder:
            project = make_project(Path(folder) / "project")
            for ratio in PLANTED:
                _plant(project, ratio, pairs, live, rules, options)
    alike = _alike(itself, options)
    said = false_alarms(alike), found(_here(pairs), rules, PLANTED), lived(_here(live), PLANTED)
    print("\n\n".join(filter(None, said)))
    return 1 if any(row["exit_code"] == "1" for row in alike) else 0


def _here(table: Table) -> list[dict[str, str]]:
    """Return the rows that were measured on such a machine as this."""
    return [row for row in table.rows() if row["cpu"] == machine.describe()["cpu"]]


def _alike(itself: Table, options: argparse.Namespace) -> list[dict[str, str]]:
    """Return the runs against itself that were asked for as these are: other benchmarks err otherwise."""
    asked = {"bench": options.bench, "budget_s": str(options.budget)}
    return [row for row in _here(itself) if all(row[name] == value for name, value in asked.items())]


def _rules(config_file: Path) -> Rules:
    """Read the rules that the gate itself would take.

    Raises:
        UsageError: there is no such suite, or its rules have a mistake.
    """
    if not config_file.is_file():
        raise UsageError(f"there is no {config_file}; name the suite's asv.conf.json with --suite-config.")
    root = Path(git("rev-parse", "--show-toplevel", cwd=config_file.resolve().parent))
    return read_rules(*find_rules(root / read_config(config_file.resolve(), root).folder))


# --- the tree against itself


def _against_itself(number: int, options: argparse.Namespace) -> Row:
    """Run the gate on the last commit as both sides, in every second run beside a busy core."""
    root = options.suite_config.resolve().parent
    commit = commit_of("HEAD", root)
    flags = ["--base", commit, "--head", commit, "--suite-config", str(options.suite_config.resolve())]
    flags += ["--no-exoneration", "--budget", str(options.budget), "--seed", str(number)]
    flags += ["--bench", options.bench] if options.bench else []
    with _busy_core() if number % 2 else contextlib.nullcontext():
        code, report, seconds = _gate(flags, root)
    verdicts = [row["verdict"] for row in report["rows"] if "log_ratios" in row]
    words = ("slower", "not slower", "faster", "undecided")
    return {
        "run": number + 1,
        "other_core": "busy" if number % 2 else "idle",
        "bench": options.bench,
        "budget_s": options.budget,
        "exit_code": code,
        "seconds": round(seconds, 1),
        "pairs": report["pairs"],
        "benchmarks": len(verdicts),
        **{word.replace(" ", "_"): verdicts.count(word) for word in words},
        "commit": commit[:12],
        "cpu": report["machine"]["cpu"],
        "timestamp": _now(),
    }


@contextlib.contextmanager
def _busy_core() -> Iterator[None]:
    """Keep a core busy that the gate will not choose, since it takes the idlest."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    spin = f"import os\nif hasattr(os, 'sched_setaffinity'): os.sched_setaffinity(0, {{{cores[0]}}})\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", spin])
    try:
        time.sleep(0.2)
        yield
    finally:
        process.kill()
        process.wait()


# --- planted slowdowns


def _missing(ratio: float, kind: str, pairs: Table, live: Table, options: argparse.Namespace) -> int:
    """Return how many pairs, or live runs, a planted slowdown still lacks."""
    table, wanted = (pairs, options.pairs) if kind == "pairs" else (live, options.live)
    name = next(iter(BENCHMARKS))
    there = sum(float(row["planted"]) == ratio and name in row["benchmark"] for row in _here(table))
    return max(0, wanted - there)


def _plant(
    project: Project, ratio: float, pairs: Table, live: Table, rules: Rules, options: argparse.Namespace
) -> None:
    head = project.plant(ratio)
    flags = ["--base", "start", "--head", head, "--suite-config", str(project.root / "asv.conf.json")]
    while missing := _missing(ratio, "pairs", pairs, live, options):
        limits = {"looks": [max(2, min(_BATCH, missing))], "confirm_looks": [2]}  # a test needs two pairs
        pairs.add(_recorded(project, ratio, [*flags, "--rules", str(_rules_file(project, rules, limits))]))
        _say(f"{ratio:g} times: {_missing(ratio, 'pairs', pairs, live, options)} pairs to go")
    while missing := _missing(ratio, "live", pairs, live, options):
        live.add(_live_run(project, ratio, [*flags, "--rules", str(_rules_file(project, rules, {}))]))
        _say(f"{ratio:g} times: {missing - 1} live runs to go")


def _rules_file(project: Project, rules: Rules, limits: dict[str, Any]) -> Path:
    """Write the gate's own verdict and timing, with other looks where pairs are only recorded."""
    verdict = {name: getattr(rules.verdict, name) for name in rules.verdict.__dataclass_fields__} | limits
    timing = {name: getattr(rules.timing, name) for name in rules.timing.__dataclass_fields__}
    if limits:  # what is only recorded is recorded whole
        timing["budget_s"] = _RECORDING_S
    lines = [f"[{name}]" + "".join(f"\n{key} = {_toml(value)}" for key, value in table.items())
             for name, table in (("verdict", verdict), ("timing", timing))]  # fmt: skip
    path = project.root.parent / f"{'recorded' if limits else 'live'}.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def _toml(value: Any) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def _recorded(project: Project, ratio: float, flags: list[str]) -> list[Row]:
    """Record a batch of pairs, whatever they say."""
    _, report, _ = _gate(flags, project.root)
    _check_timed(report)
    measured = round(project.measured(ratio), 4)
    return [
        {
            "planted": ratio,
            "measured": measured,
            "benchmark": row["name"],
            "log_ratio": log_ratio,
            "cpu": report["machine"]["cpu"],
            "timestamp": _now(),
        }
        for row in report["rows"]
        for log_ratio in row["log_ratios"]
    ]


def _live_run(project: Project, ratio: float, flags: list[str]) -> list[Row]:
    """Run the gate as anybody does, and keep what it said of every benchmark."""
    code, report, seconds = _gate(flags, project.root)
    _check_timed(report)
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
            "timestamp": _now(),
        }
        for row in report["rows"]
    ]


def _check_timed(report: dict[str, Any]) -> None:
    """Hold a report to what is recorded of it.

    Raises:
        PreparationError: a benchmark of the planted project has no ratio.
    """
    for row in report["rows"]:
        if "ratio" not in row:
            raise PreparationError(f"{row['name']} was not timed: {'; '.join(row['reasons']) or row['verdict']}.")


def _gate(flags: Sequence[str], folder: Path) -> tuple[int, dict[str, Any], float]:
    """Run the gate in a process of its own; return its exit code, its report and its seconds.

    Raises:
        PreparationError: it left no report.
    """
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="selftest-") as output:
        command = [sys.executable, "-m", "ci.gate", *flags, "--output", output]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
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
            raise PreparationError(f"the gate left no report: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
        return done.returncode, json.loads(report.read_text()), time.monotonic() - start


def _now() -> str:
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
