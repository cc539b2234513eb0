"""Run every suite, one workload after another, and draw the plots.

    python benchmarks/run_all.py              the quick tier
    python benchmarks/run_all.py --full       every size, within 40 minutes on 2 cores
    python benchmarks/run_all.py --only memory --only compile

This leaves out the peers' trainings and all but three of the autotuner's configurations.
comparison.py --training and autotune.py --full measure those. A workload is one command of one
suite, in its own process with limits on memory and time. A workload that fails is recorded as
failed, and the others go on. Workloads that were already measured at this commit, on this machine
and with these versions are skipped, so a stopped run continues where it was. `--force` measures
them again.
"""

if __name__ == "__main__" and not __package__:
    from harness.installed import require_setup  # Python may not find `benchmarks` yet

    require_setup()

import functools
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import IO, Any

from benchmarks.harness import peers
from benchmarks.harness.files import make_folder, write_text
from benchmarks.harness.process.failures import ChildError
from benchmarks.harness.process.supervisor import ROOT, Supervised
from benchmarks.harness.programs import machine
from benchmarks.harness.results import CSV_FOLDER, PLOTS_FOLDER, commit, markdown
from benchmarks.harness.workloads import known, load
from benchmarks.plots.draw import PLOTS, draw
from benchmarks.runner import SETTINGS, Run, Script, switch, text

_STATE = "run_all.json"
_GUESS_S = 60.0  # the assumed duration of a workload that has never run


@dataclass(frozen=True)
class Job:
    """One command of one suite. Its CSV file has the same `name`."""

    suite: str
    name: str
    arguments: tuple[str, ...]
    timeout_s: float = 600.0

    @property
    def script(self) -> str:
        """The suite's script."""
        return f"benchmarks/{_SCRIPTS[self.suite]}.py"


# Scripts by their names for --only.
_SCRIPTS = {
    "throughput": "throughput",
    "comparison": "comparison",
    "memory": "memory_profile",
    "scan_chunk": "scan_chunk",
    "training": "training",
    "compile": "compile",
    "autotune": "autotune",
}


def jobs(*, full: bool) -> Iterator[Job]:
    """Yield the workloads, the quick ones or all, with the cheapest suites first."""
    tier, flags = ("full", ("--full",)) if full else ("quick", ())
    declaration = load()
    yield Job("memory", "memory", ("--profile", "both", *flags))
    yield Job("scan_chunk", "scan_chunk", flags)
    yield Job("compile", "compile", flags)
    yield Job("autotune", "autotune", ())
    for each in declaration.select_trainings("training", tier).values():
        which = ("--agent", each.agent, "--env", each.env)
        yield Job("training", f"training_{each.name}", (*which, "--seeds", "5" if full else "2"))
    for env in dict.fromkeys(each.env for each in declaration.select("throughput", tier).values()):
        yield Job("throughput", f"throughput_{env}", ("--env", env, *flags))
    for workload in declaration.select("comparison", tier).values():
        yield Job(
            "comparison", f"comparison_{workload.num_envs}", ("--num-envs", str(workload.num_envs))
        )


def _run(run: Run) -> bool:
    options = run.options
    for suite in options.only or ():
        known(suite, _SCRIPTS, "suite")
    make_folder(options.output)
    wanted = [job for job in jobs(full=options.full) if job.suite in (options.only or _SCRIPTS)]
    progress = Progress(options.output / _STATE, wanted, force=options.force)
    for job in progress.to_do():
        progress.add(job, _measure(job, options.output))
    print(_table(wanted, progress))
    _draw(options.output)
    print(f"reproduce with: {run.command}")
    return all(progress.found(job)["status"] == "ok" for job in wanted)


class Progress:
    """A file of finished workloads beside the results, and a progress bar with the time left.

    Args:
        path: the file.
        wanted: the workloads of this run.
        force: whether to measure workloads again that the file holds.
    """

    def __init__(self, path: Path, wanted: Sequence[Job], *, force: bool):
        self._path = path
        self._wanted = wanted
        self._done: dict[str, dict[str, Any]] = _read(path)
        self._here = _here()
        if force:
            self._done = {
                key: value for key, value in self._done.items() if key not in map(self._key, wanted)
            }

    def found(self, job: Job) -> dict[str, Any]:
        """Return a workload's record at this commit. It is empty if the workload has not run."""
        return self._done.get(self._key(job), {})

    def to_do(self) -> Iterator[Job]:
        """Yield the workloads that have not been measured yet, and show the progress."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        left = [job for job in self._wanted if self.found(job).get("status") != "ok"]
        console = Console(stderr=True)
        columns = (
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
        )
        with Bar(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
            task = bar.add_task(
                "", total=len(self._wanted), completed=len(self._wanted) - len(left)
            )
            for number, job in enumerate(left):
                minutes = sum(map(self._guess_s, left[number:])) / 60
                bar.update(task, description=f"{job.name}, about {minutes:.0f} min left")
                if not console.is_terminal:
                    print(
                        f"{number + 1} of {len(left)}: {job.name}, about {minutes:.0f} min left",
                        file=sys.stderr,
                    )
                yield job
                bar.advance(task)

    def add(self, job: Job, found: dict[str, Any]) -> None:
        """Save the outcome of a workload."""
        self._done[self._key(job)] = found
        write_text(self._path, json.dumps(self._done, indent=1))
        if found["status"] != "ok":
            print(f"{job.name}: {found['status']}: {found['reason']}", file=sys.stderr)

    def _guess_s(self, job: Job) -> float:
        """Return a workload's last duration, at any commit."""
        name = f"{job.name} {' '.join(job.arguments)} "
        return next(
            (v["seconds"] for k, v in reversed(self._done.items()) if k.startswith(name)), _GUESS_S
        )

    def _key(self, job: Job) -> str:
        return f"{job.name} {' '.join(job.arguments)} {self._here}"


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        aside = path.replace(path.with_suffix(".broken.json"))
        print(
            f"{path} could not be read and was set aside as {aside.name}; "
            "everything is measured again",
            file=sys.stderr,
        )
        return {}


def _here() -> str:
    """Return a short text that identifies commit, machine, versions and settings.

    A measurement is only valid for the same values of these.

    Raises:
        SuiteError: there is no such device.
    """
    versions = sorted(f"{each.name}=={each.version}" for each in distributions())
    installed = {name: peers.is_installed(name) for name in peers.declared()}
    settings = {name: os.environ.get(name) for name in SETTINGS}
    shared = [machine()["columns"], sys.version, versions, installed, settings]
    return f"{_tree()} {hashlib.sha256(json.dumps(shared).encode()).hexdigest()[:12]}"


@functools.cache
def _tree() -> str:
    """Return the commit, with a hash of the changed files."""
    name = commit()
    if not name.endswith("-dirty"):
        return name
    git = ["git", "-C", str(ROOT)]
    changes = b"".join(
        subprocess.run([*git, *command], capture_output=True, check=True).stdout
        for command in (["diff", "HEAD"], ["status", "--porcelain"])
    )
    return f"{name}-{hashlib.sha256(changes).hexdigest()[:12]}"


def _measure(job: Job, folder: Path) -> dict[str, Any]:
    """Run a workload's command and return how it ended. Its rows, if any, are in `folder`."""
    start = time.monotonic()
    script = str(ROOT / job.script)
    command = [sys.executable, script, *job.arguments, "--output", str(folder)]
    status = "ok"
    reason = ""
    with tempfile.TemporaryFile("w+") as log, Supervised(command, log=log) as child:
        try:
            if code := child.wait(job.timeout_s):
                status = "failed"
                reason = _reason(code, log)
        except ChildError as error:
            status = error.status
            reason = error.reason
    return {
        "status": status,
        "reason": reason,
        "seconds": time.monotonic() - start,
        "command": " ".join(["python", job.script, *job.arguments]),
    }


def _reason(code: int, log: IO[str]) -> str:
    """Say how a command failed, from its exit code and its output."""
    if code < 0:
        return f"ended by signal {-code}"
    log.seek(0)
    lines = log.read().strip().splitlines() or ["no message"]
    return f"exit code {code}: {lines[-1] if code == 2 else _first_complaint(lines)}"


def _first_complaint(lines: Sequence[str]) -> str:
    """Return the line that a command wrote about a row that failed."""
    return next(
        (line for line in lines if ": failed: " in line or ": refused: " in line), lines[-1]
    )


def _table(wanted: Sequence[Job], progress: Progress) -> str:
    """Return a line per workload, with its outcome and duration."""
    rows = []
    for job in wanted:
        found = progress.found(job)
        rows.append([job.name, found["status"], f"{found['seconds']:.0f}", found["reason"] or "-"])
    return markdown(["workload", "status", "s", "reason"], rows)


def _draw(folder: Path) -> None:
    """Draw all plots that the folder's rows allow."""
    from myriad.errors import MyriadError

    plots = PLOTS_FOLDER if folder == CSV_FOLDER else folder
    try:
        for path in draw(folder, plots, list(PLOTS)):
            print(path)
    except MyriadError as error:
        print(f"no plot: {error}", file=sys.stderr)


SCRIPT = Script(
    "run_all",
    __doc__,
    _run,
    {
        "--full": switch("run the full tier instead of the quick one"),
        "--force": switch("measure again what is already measured"),
        "--only": text(
            f"run only this suite: one of {', '.join(_SCRIPTS)} (repeatable)",
            action="append",
            metavar="SUITE",
        ),
        "--output": text(
            "folder of the CSV files (default: results/csv)",
            CSV_FOLDER,
            type=Path,
            metavar="FOLDER",
        ),
    },
)
main = SCRIPT.main

if __name__ == "__main__":
    sys.exit(main())
