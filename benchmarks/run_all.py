"""Run every suite, one workload after another, and draw the plots.

    python benchmarks/run_all.py              the quick tier
    python benchmarks/run_all.py --full       every size, within 40 minutes on 2 cores
    python benchmarks/run_all.py --only memory --only training
    python benchmarks/run_all.py --published  the figures of results/published, in under an hour

This leaves out the peers' trainings, which comparison.py --training measures. A workload is one
command of one suite, in its own process with limits on memory and time. If one fails, the others go
on. `--published` measures no uncommitted changes.
"""

import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.process import ROOT, Supervised
from benchmarks.harness.programs import machine
from benchmarks.harness.registry import SuiteError, known
from benchmarks.harness.results import CSV_FOLDER, PLOTS_FOLDER, commit, make_folder, samples_beside
from benchmarks.harness.tables import markdown
from benchmarks.harness.worker import ChildError
from benchmarks.harness.workloads import CARTPOLE, load
from benchmarks.plots.draw import PLOTS, draw
from benchmarks.runner import Run, Script, switch, text

_PUBLISHED = ROOT / "results" / "published"
# Scripts by their names for --only.
_SCRIPTS = {
    "throughput": "throughput",
    "comparison": "comparison",
    "memory": "memory_profile",
    "scan_chunk": "scan_chunk",
    "training": "training",
    "learning": "learning",
    "presets": "presets",
}


@dataclass(frozen=True)
class Job:
    """One command of one suite. With `--published` its CSV file has the same `name`."""

    suite: str
    name: str
    arguments: tuple[str, ...]
    timeout_s: float = 600.0


def jobs(*, full: bool) -> Iterator[Job]:
    """Yield the workloads, the quick ones or all, with the cheapest suites first."""
    tier, flags = ("full", ("--full",)) if full else ("quick", ())
    declaration = load()
    yield Job("memory", "memory", ("--profile", "both", *flags))
    yield Job("scan_chunk", "scan_chunk", flags)
    for each in declaration.of("training", tier).values():
        which = ("--agent", each.agent, "--env", each.env)
        yield Job("training", f"training_{each.name}", (*which, "--seeds", "5" if full else "2"))
    for env in dict.fromkeys(each.env for each in declaration.of("throughput", tier).values()):
        yield Job("throughput", f"throughput_{env}", ("--env", env, *flags))
    for size in (f"{each.num_envs}" for each in declaration.of("comparison", tier).values()):
        yield Job("comparison", f"comparison_{size}", ("--num-envs", size))


def published(device: str) -> Iterator[Job]:
    """Yield the runs behind a device's figures of `results/published`, the longest last."""
    yield Job("comparison", f"comparison_{device}", ("--full",), 3_600.0)
    declaration = load()
    declared = declaration.workloads["throughput"]
    peers_and_options = ("--library", "gymnax,gymnax-configured,myriad-jax,myriad-jax-configured")
    # A peer's best chunk is searched among those that ours is measured with.
    for target in declaration.targets:
        workload = declared[target.workload]
        if (workload.env, target.of, target.record) == (CARTPOLE, "gymnax", False):
            sizes = (f"{workload.num_envs}", "--scan-chunk-size", f"{workload.scan_chunk_size}")
            name = f"comparison_chunk_{'_'.join(sizes[::2])}_{device}"
            yield Job("comparison", name, ("--num-envs", *sizes, *peers_and_options), 3_600.0)
    for network in ("64-64", "1024-1024"):
        flags = ("--full", "--policy", network, *peers_and_options)
        yield Job("comparison", f"comparison_policy_{network}_{device}", flags, 3_600.0)
    yield Job("comparison", f"comparison_training_{device}", ("--training",), 3_600.0)
    for env in dict.fromkeys(declared[target.workload].env for target in declaration.targets):
        # An environment of an example has targets alone.
        flags = ("--targets", "--env", env, *(() if ":" in env else ("--full",)))
        name = env.rpartition(".")[2].partition(":")[0].removesuffix("-control").replace("-", "_")
        yield Job("throughput", f"throughput_{name}_{device}", flags, 3_600.0)
    for profile in ("envs", "scan"):
        name = f"memory_{profile}_{device}"
        yield Job("memory", name, ("--profile", profile, "--full"), 3_600.0)
    yield Job("scan_chunk", f"scan_chunk_{device}", ("--full",), 3_600.0)
    yield Job("learning", f"learning_{device}", (), 7_200.0)
    yield Job("presets", f"presets_{device}", ("--full",), 3_600.0)


def _run(run: Run) -> bool:
    from myriad.errors import MyriadError

    options = run.options
    for suite in options.only or ():
        known(suite, _SCRIPTS, "suite")
    if options.published and (not commit() or commit().endswith("-dirty")):
        raise SuiteError(
            f"--published measures a commit alone, but the tree is {commit() or 'no repository'}: "
            "commit or remove your changes."
        )
    if options.published:
        # Not beside the old figures: the first new file would be an uncommitted change.
        options.output /= "published"
    make_folder(options.output)
    device = machine()["columns"]["device"]
    every = published(device) if options.published else jobs(full=options.full)
    wanted = [job for job in every if job.suite in (options.only or _SCRIPTS)]
    rows = []
    for number, job in enumerate(wanted, 1):
        print(f"{number} of {len(wanted)}: {job.name}", file=sys.stderr)
        start = time.monotonic()
        file = options.output / (f"{job.name}.csv" if options.published else "")
        status, reason = _measure(job, file)
        rows.append([job.name, status, f"{time.monotonic() - start:.0f}", reason or "-"])
        if status != "ok":
            print(f"{job.name}: {status}: {reason}", file=sys.stderr)
    print(markdown(["workload", "status", "s", "reason"], rows))
    plots = PLOTS_FOLDER if options.output == CSV_FOLDER else options.output
    succeeded = all(status == "ok" for _, status, *_ in rows)
    try:
        for path in draw(options.output, plots, list(PLOTS)):
            print(path)
    except MyriadError as error:
        print(f"no plot: {error}", file=sys.stderr)
    print(f"reproduce with: {run.command}")
    if options.published and succeeded:
        _publish(options.output, [job.name for job in wanted])
    return succeeded


def _publish(folder: Path, names: Sequence[str]) -> None:
    """Copy files and plots to `results/published`, without the paths of this machine."""
    for path in (folder / f"{name}.csv" for name in names):
        shutil.copy(path, _PUBLISHED)
        samples = samples_beside(path)
        if samples.is_file():
            text = samples.read_text(encoding="utf-8")
            cleaned = text.replace(f" --output {path} --force", "")
            (_PUBLISHED / samples.name).write_text(cleaned, encoding="utf-8")
    for path in folder.glob("*.png"):
        shutil.copy(path, _PUBLISHED)


def _measure(job: Job, output: Path) -> tuple[str, str]:
    """Run a workload's command. Return its status and the reason. Its rows are in `output`."""
    script = ROOT / "benchmarks" / f"{_SCRIPTS[job.suite]}.py"
    command = [sys.executable, str(script), *job.arguments, "--output", str(output)]
    command += ["--force"] if output.suffix else []
    with Supervised(command) as child:
        try:
            code = child.wait(job.timeout_s)
        except ChildError as error:
            return error.status, error.reason
        if not code:
            return "ok", ""
        if code == 1:
            # A target that is missed is published, too.
            return "ok" if output.suffix else "failed", "exit code 1: its rows say why"
        return "failed", child.last_words()


SCRIPT = Script(
    "run_all",
    __doc__,
    _run,
    {
        "--full": switch("run the full tier instead of the quick one"),
        "--published": switch("measure what results/published holds, on a committed tree"),
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
    exclusive=[("--full", "--published")],
)
main = SCRIPT.main

if __name__ == "__main__":
    sys.exit(main())
