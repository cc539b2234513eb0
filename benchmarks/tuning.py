"""Measure trials of `myriad tune` per minute: in one program, in pinned processes, in a campaign.

    python benchmarks/tuning.py                         all parts
    python benchmarks/tuning.py --part programs         a program per trial against arguments
    python benchmarks/tuning.py --part processes        a process per core against one on all
    python benchmarks/tuning.py --part campaign --runs 1

An asv suite and a command line. `programs` alternates a trial whose hyperparameters are arguments
of a compiled program with one that compiles its own. `processes` alternates campaigns of one
process with those of one pinned to each core. `campaign` runs 100 trials of the documented space
twice, first with an empty cache. Trials have one training seed. The best trial is not confirmed on
other seeds.
"""

if __name__ == "__main__" and not __package__:
    from harness.installed import require_setup  # Python may not find `benchmarks` yet

    require_setup()

import argparse
import functools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.harness import package
from benchmarks.harness.command_line import Parser, command_of, count, guarded, report
from benchmarks.harness.process.child_process import Reply, run
from benchmarks.harness.results import ResultsFile, Row, machine_columns, markdown, new_row, spread
from benchmarks.harness.skipping import skip_unless_runnable
from benchmarks.harness.workloads import Training, load

_SCRIPT = "benchmarks/tuning.py"
PARTS = ("programs", "processes", "campaign")
_WORKLOAD = "bucket-brigade-ppo"
_OPTIONS = {"scenario": "easy"}
_TIMEOUT_S = 1_200.0
# With 24, loading the programs would take most of the time in both arms.
_TRIALS_OF_PROCESSES = 240
# A quick space in which all trials have the same shapes, so that trials differ only in arguments.
_ONE_SHAPE = """
[fixed]
num_envs = 16
rollout_steps = 64
"agent.num_minibatches" = 8
"agent.hidden_sizes" = [64, 64]
[parameters]
"agent.learning_rate" = { low = 1e-5, high = 1e-3, log = true }
"agent.num_epochs" = { low = 3, high = 10 }
"agent.gamma" = { low = 0.95, high = 0.999 }
"""
_VALUES = {"learning_rate": 3e-4, "num_epochs": 4, "gamma": 0.99}


class TracedTrial:
    """Seconds of a trial in a slot of a compiled program, its reset included."""

    params: ClassVar = [_WORKLOAD]
    param_names: ClassVar = ["workload"]
    version = "1"
    timeout = 300
    num_updates = 4
    prepared = False

    def setup(self, workload: str) -> None:
        """Compile once: asv calls this before every sample."""
        if self.prepared:
            return
        declared = load().trainings["tuning"][workload]
        skip_unless_runnable(declared)
        self.population = _population(declared, _VALUES)
        self.block_until_ready = package.find("myriad.timing:block_until_ready")
        self.options = {name: [value] for name, value in _VALUES.items()}
        self.state = self.population.first_state([0], self.options)
        self.time_trial(workload)
        self.prepared = True

    def time_trial(self, workload: str) -> None:
        """Begin a trial in the slot and train it."""
        state = self.population.refill(self.state, [0], [1], self.options)
        state, _ = self.population.run(state, [self.num_updates], [True])
        self.state = self.block_until_ready(state)


def _population(declared: Training, traced: Mapping[str, Any], **fields: Any) -> Any:
    """Compile the program of a training, with these hyperparameters as its arguments."""
    # This comes first, because a commit without populations may lack these fields of a
    # configuration too.
    kind = package.find("myriad.training.population:Population")
    config = package.find("myriad:create_config")(
        declared.env,
        declared.agent,
        total_steps=declared.num_steps,
        env_options=_OPTIONS,
        **fields,
    )
    population = kind(config.resolve(), 1, tuple(traced))
    population.compile()
    return population


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Bad input prints one sentence and gives exit code 2."""
    return guarded(_run, argv)


def _run(argv: list[str]) -> bool:
    import myriad

    options = _parse(argv)
    file = ResultsFile("tuning", options.output, command_of(_SCRIPT, argv))
    myriad.configure()
    declared = load().trainings["tuning"][_WORKLOAD]
    measure = {"programs": _programs, "processes": _processes, "campaign": _campaign}
    for part in options.part or PARTS:
        _write(part, measure[part](declared, options), declared, file)
    return report(file)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(_SCRIPT, __doc__)
    parser.add_argument(
        "--part", action="append", choices=PARTS, help="part to measure (default: all)"
    )
    parser.add_argument(
        "--runs",
        type=count,
        default=5,
        help="rounds, each of which runs everything once (default: 5)",
    )
    parser.add_argument(
        "--trials", type=count, default=100, help="number of trials in a campaign (default: 100)"
    )
    parser.add_output()
    return parser.parse_args(argv)


# A part's seconds by arm. The first arm is compared with the second.
_Seconds = dict[str, list[float]]


def _programs(declared: Training, options: argparse.Namespace) -> _Seconds:
    """Time a trial with arguments and one with its own program, in turns."""
    seconds: _Seconds = {"program for each trial": [], "arguments": []}
    shared = _population(declared, _VALUES)
    state = shared.first_state([0], {name: [value] for name, value in _VALUES.items()})
    block = package.find("myriad.timing:block_until_ready")
    uncached = package.find("myriad.xla:without_compilation_cache")
    for number in range(options.runs):
        values = _VALUES | {"learning_rate": 3e-4 + 1e-5 * number}
        start = time.perf_counter()
        given = {name: [value] for name, value in values.items()}
        state = shared.refill(state, [0], [number], given)
        state, _ = shared.run(state, [shared.num_updates], [True])
        block(state)
        seconds["arguments"].append(time.perf_counter() - start)
        start = time.perf_counter()
        named = {f"agent.{name}": value for name, value in values.items()}
        with uncached():
            own = _population(declared, {}, **named)
        first = own.first_state([number])
        block(own.run(first, [own.num_updates], [True]))
        seconds["program for each trial"].append(time.perf_counter() - start)
    return seconds


def _processes(declared: Training, options: argparse.Namespace) -> _Seconds:
    """Time campaigns of one process on all cores, and of one process per core, in turns."""
    seconds: _Seconds = {"one process": [], "a process on each core": []}
    with tempfile.TemporaryDirectory() as folder:
        space = Path(folder) / "space.toml"
        space.write_text(_ONE_SHAPE, encoding="utf-8")
        measure = functools.partial(
            _launch,
            declared,
            Path(folder) / "cache",
            space=str(space),
            n_trials=_TRIALS_OF_PROCESSES,
            pruner="none",
        )
        for n_jobs in (1, -1):  # so that the cache holds every program
            measure(n_jobs=n_jobs)
        for _ in range(options.runs):
            for arm, n_jobs in zip(seconds, (1, -1), strict=True):
                seconds[arm].append(measure(n_jobs=n_jobs)["trials_s"])
    return seconds


def _campaign(declared: Training, options: argparse.Namespace) -> _Seconds:
    """Time campaigns of the documented space, first with an empty cache and then again."""
    seconds: _Seconds = {"nothing compiled": [], "compiled": []}
    shares = []
    for _ in range(options.runs):
        with tempfile.TemporaryDirectory() as folder:
            for arm in seconds:
                reply = _launch(declared, Path(folder), n_trials=options.trials, n_jobs=-1)
                seconds[arm].append(reply["total_s"])
                shares.append(reply["share_of_steps"])
                print(f"{arm}: {reply}")
    print(f"share of steps that pruning leaves: {min(shares):.2f} to {max(shares):.2f}")
    return seconds


def _launch(declared: Training, cache: Path, **fields: Any) -> Reply:
    request = {
        "env": declared.env,
        "agent": declared.agent,
        "num_steps": declared.num_steps,
        "fields": fields,
    }
    return run(
        "benchmarks.tuning:_in_child",
        request,
        timeout_s=_TIMEOUT_S,
        MYRIAD_COMPILATION_CACHE=str(cache),
    )


def _in_child(env: str, agent: str, num_steps: int, fields: dict[str, Any]) -> Reply:
    """Run the trials of a campaign, including imports."""
    start = time.perf_counter()
    import myriad

    myriad.configure()
    settings_of = package.find("myriad.tuning.settings:TuneSettings")
    with tempfile.TemporaryDirectory() as folder:
        space = fields.pop("space", None)
        settings = settings_of(
            env=env,
            agent=agent,
            num_steps=num_steps,
            num_seeds=1,
            options={f"env.{name}": value for name, value in _OPTIONS.items()},
            output=Path(folder),
            space=None if space is None else Path(space),
            **fields,
        ).completed()
        events: list[tuple[float, str]] = []
        study = _trials(settings, lambda event: events.append((time.perf_counter(), event.kind)))
        ends = [at for at, kind in events if kind in ("completed", "pruned", "failed")]
        began = min(at for at, kind in events if kind == "started")
        steps = [trial.user_attrs.get("steps", 0) for trial in study.get_trials()]
        best = study.best_trial
        return {
            "total_s": max(ends) - start,
            "trials_s": max(ends) - began,
            "trials": len(ends),
            "failed": sum(kind == "failed" for _, kind in events),
            "share_of_steps": sum(steps) / (len(steps) * num_steps),
            "best": best.value,
            "standard_error": best.user_attrs["standard_error"],
        }


def _trials(settings: Any, on_event: Callable[[Any], None]) -> Any:
    """Run the trials of a campaign without the final evaluation, and return the study."""
    space = package.find("myriad.tuning.session:load_space")(settings)
    study = package.find("myriad.tuning.study:open_study")(settings, space)
    if settings.n_jobs == 1:
        package.find("myriad.tuning.campaign:run")(study, settings, space, on_event)
    else:
        package.find("myriad.tuning.workers:run_workers")(study, settings, space, on_event)
    return study


def _write(part: str, seconds: _Seconds, declared: Training, file: ResultsFile) -> None:
    columns = machine_columns() | {"env": declared.env, "agent": declared.agent}
    rows: list[Row] = [
        new_row(
            "tuning",
            file.timestamp,
            arm=f"{part}: {arm}",
            run_s=statistics.median(each),
            samples=len(each),
            **columns,
        )
        for arm, each in seconds.items()
    ]
    file.add_rows(rows, {"part": part, "seconds": seconds})
    first, second = seconds.values()
    ratios = spread([one / other for one, other in zip(first, second, strict=True)], "ratio")
    lines = [[arm, f"{statistics.median(each):,.2f}"] for arm, each in seconds.items()]
    lines.append(
        [
            "the first over the second",
            f"{ratios['ratio']:.2f} ({ratios['ratio_low']:.2f} to {ratios['ratio_high']:.2f})",
        ]
    )
    print(f"\n{part}\n")
    print(markdown(("arm", "seconds (median)"), lines))


if __name__ == "__main__":
    sys.exit(main())
