"""Test the gate with changes that people really commit: `python -m ci.validation.mutants`.

    python -m ci.validation.mutants                  each change on the benchmarks that it concerns
    python -m ci.validation.mutants --unseen         changes whose author had not seen the gate
    python -m ci.validation.mutants --ordinary --plain --busy 2
                                                     ordinary changes, by the command of a pull
                                                     request, beside two busy processes

The changes are in mutants.toml, unseen.toml and ordinary.toml. A harmful change must fail with its
cause named. A harmless change must pass. Each row of the table is saved as soon as it is measured,
so a stopped run continues where it was.
"""

import argparse
import contextlib
import csv
import io
import json
import math
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from perfgate.files import replace_text

ROOT = Path(__file__).resolve().parents[2]
MUTANTS = Path(__file__).with_name("mutants.toml")
UNSEEN = Path(__file__).with_name("unseen.toml")
ORDINARY = Path(__file__).with_name("ordinary.toml")


@dataclass(frozen=True)
class Mutant:
    """One change, and the verdict that the gate must give; see mutants.toml."""

    name: str
    file: str
    old: str
    new: str
    bench: str = ""
    cause: str = ""
    timing: bool = False
    also: tuple[dict[str, str], ...] = ()

    @property
    def edits(self) -> list[tuple[str, str, str]]:
        """The file, the old text and the new one of each edit."""
        more = [(each["file"], each["old"], each["new"]) for each in self.also]
        return [(self.file, self.old, self.new), *more]

    def apply(self, root: Path) -> None:
        """Change the files.

        Raises:
            ValueError: a file no longer holds the text to change.
        """
        for file, old, new in self.edits:
            text = (root / file).read_text(encoding="utf-8")
            if old not in text:
                raise ValueError(
                    f"{file} no longer holds the text that {self.name!r} changes: {old!r}."
                )
            (root / file).write_text(text.replace(old, new), encoding="utf-8")


def mutants(file: Path = MUTANTS) -> list[Mutant]:
    """Read all mutants."""
    return [
        Mutant(name, **table)
        for name, table in tomllib.loads(file.read_text(encoding="utf-8")).items()
    ]


def judge(mutant: Mutant, root: Path, *, is_plain: bool, busy: int) -> dict[str, object]:
    """Run the gate on a clean copy of the repository with the change, and return its row."""
    subprocess.run(["git", "checkout", "--quiet", "."], cwd=root, check=True)
    mutant.apply(root)
    command = [sys.executable, "-m", "perfgate", "--base", "HEAD"]
    if not is_plain:
        command += ["--bench", mutant.bench, *([] if mutant.timing else ["--no-timing"])]
    gate = ROOT / "ci" / "gate"
    environment = os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{gate}"}
    start, before = time.monotonic(), _others_seconds()
    with _busy(busy):
        done = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, check=False
        )
        seconds, others = time.monotonic() - start, _others_seconds() - before
    report = (
        json.loads((root / ".asv" / "gate" / "gate.json").read_text())
        if done.returncode in (0, 1, 3)
        else {}
    )
    wanted = 1 if mutant.cause else 0
    named = bool(mutant.cause) and re.search(mutant.cause, done.stdout) is not None
    verdicts = Counter(row["verdict"] for row in report.get("rows", []))
    return {
        "mutant": mutant.name,
        "busy": busy,
        "wanted": wanted,
        "exit_code": done.returncode,
        "cause_named": named,
        "verdicts": "; ".join(f"{count} {word}" for word, count in sorted(verdicts.items())),
        "worst": round(report.get("worst", 0.0), 4),
        "seconds": round(seconds, 1),
        "others": round(others / seconds, 2),
        "kept": done.returncode == wanted and (named or not mutant.cause),
        "commit": report.get("base", "")[:12],
        "date": datetime.now(UTC).date().isoformat(),
    }


def _others_seconds() -> float:
    """Return the processor seconds of everything on this machine but our own finished children."""
    stat = Path("/proc/stat")
    if not stat.is_file():
        return math.nan
    user, nice, system = (int(ticks) for ticks in stat.read_text().split()[1:4])
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (user + nice + system) / os.sysconf("SC_CLK_TCK") - own.ru_utime - own.ru_stime


@contextlib.contextmanager
def _busy(count: int) -> Iterator[None]:
    """Keep so many processes at work."""
    spin = [sys.executable, "-c", "while True: sum(range(10_000))"]
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            process = stack.enter_context(subprocess.Popen(spin))
            stack.callback(process.kill)
        yield


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Return 1 if a verdict of the gate is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m ci.validation.mutants", description=str(__doc__).split("\n")[0]
    )
    parser.add_argument("names", nargs="*", help="names of the changes to test (default: all)")
    parser.add_argument(
        "--unseen",
        action="store_true",
        help="test the changes of unseen.toml, whose author had not seen the gate",
    )
    parser.add_argument("--ordinary", action="store_true", help="test the changes of ordinary.toml")
    parser.add_argument(
        "--plain",
        action="store_true",
        help="run the command of a pull request, with all benchmarks",
    )
    parser.add_argument(
        "--busy", type=int, default=0, metavar="N", help="busy processes beside it (default: 0)"
    )
    parser.add_argument("--output", type=Path, help="CSV file (default: in results/csv)")
    options = parser.parse_args(argv)
    file = UNSEEN if options.unseen else ORDINARY if options.ordinary else MUTANTS
    name = "gate_runs" if options.plain else file.stem
    options.output = options.output or ROOT / "results" / "csv" / f"{name}.csv"
    options.output.parent.mkdir(parents=True, exist_ok=True)
    saved = options.output.read_text("utf-8") if options.output.is_file() else ""
    rows = list(csv.DictReader(io.StringIO(saved, newline="")))
    known = {row["mutant"] for row in rows if row.get("busy", "0") == str(options.busy)}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        root = Path(folder) / "myriad"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(root)], check=True)
        for mutant in mutants(file):
            if mutant.name in known or (options.names and mutant.name not in options.names):
                continue
            found = judge(mutant, root, is_plain=options.plain, busy=options.busy)
            rows.append({name: str(value) for name, value in found.items()})
            text = io.StringIO(newline="")
            writer = csv.DictWriter(text, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
            replace_text(options.output, text.getvalue())  # a reader finds all of it or nothing
            print("kept  " if found["kept"] else "MISSED", *list(found.values())[:-3], flush=True)
    harmful = [row for row in rows if row["wanted"] == "1"]
    found = sum(row["exit_code"] == "1" for row in harmful)
    named = sum(row["kept"] == "True" for row in harmful)
    passed = sum(row["kept"] == "True" for row in rows if row["wanted"] == "0")
    print(
        f"{found} of {len(harmful)} harmful changes fail, {named} with their cause; "
        f"{passed} of {len(rows) - len(harmful)} harmless ones pass"
    )
    return 0 if all(row["kept"] == "True" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
