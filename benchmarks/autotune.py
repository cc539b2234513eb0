"""Measure the autotuner: its duration, and its choice beside a full sweep and the default.

    python benchmarks/autotune.py             three configurations
    python benchmarks/autotune.py --full      4 environments x 3 agents x 2 sizes

The exit code is 1 if a target is missed.

An asv suite and a command line.
"""

if __name__ == "__main__" and not __package__:
    from harness.installed import require_setup  # Python may not find `benchmarks` yet

    require_setup()

import argparse
import contextlib
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.harness import package
from benchmarks.harness.command_line import Parser, command_of, guarded, report
from benchmarks.harness.process.child_process import Reply, run
from benchmarks.harness.process.failures import ChildError
from benchmarks.harness.results import ResultsFile, Row, machine_columns, markdown, new_row, spread
from benchmarks.harness.skipping import skip_unless_runnable
from benchmarks.harness.workloads import load, tier_from_environment

_SCRIPT = "benchmarks/autotune.py"
_ENVS = ("cartpole-control", "gene-circuit-control", "snake", "cartpole-sysid")
_AGENTS = ("dqn", "pqn", "ppo")
_SIZES = (64, 4096)
_SWEEP_SECONDS = 6.0
_STEPS_PER_ENV = 10_000
_WORST_REGRET = 0.95
_MEDIAN_REGRET = 0.98
_NO_HARM = 0.98


class Autotune:
    """Seconds to suggest a chunk size that is known."""

    params: ClassVar = list(load().select_trainings("autotune", tier_from_environment()))
    param_names: ClassVar = ["workload"]
    version = "2"
    timeout = 300

    def setup_cache(self) -> None:
        """Tune every workload into one cache, in the folder that asv copies for each benchmark."""
        for workload in self.params:
            with contextlib.suppress(NotImplementedError):  # `setup` says it
                config, tune, profiles = _tuner(workload)
                tune(config, verbose=False, cache=profiles, seconds=0)

    def setup(self, workload: str) -> None:
        """Read the cache of profiles once."""
        self.config, self.autotune, self.cache = _tuner(workload)

    def time_cached(self, workload: str) -> None:
        """Ask again."""
        self.autotune(self.config, verbose=False, cache=self.cache)


class AutotuneCold:
    """Seconds to suggest a chunk size from nothing, compilation included."""

    params: ClassVar = list(load().select_trainings("autotune", tier_from_environment()))
    param_names: ClassVar = ["workload"]
    version = "1"
    timeout = 300

    def setup(self, workload: str) -> None:
        """Have asv skip what this commit or machine can't run."""
        _tuner(workload)

    def track_cold_s(self, workload: str) -> float:
        """Return what a first tuning takes, with nothing compiled in this process."""
        before = dict(os.environ)
        os.environ["MYRIAD_COMPILATION_CACHE"] = "off"  # cold is cold
        try:
            with tempfile.TemporaryDirectory() as folder:
                config, tune, profiles = _tuner(workload, Path(folder))
                start = time.perf_counter()
                tune(config, verbose=False, cache=profiles)
                return time.perf_counter() - start
        finally:
            os.environ.clear()
            os.environ.update(before)

    track_cold_s.unit = "seconds"  # type: ignore[attr-defined]


def _tuner(workload: str, folder: Path | None = None) -> tuple[Any, Any, Any]:
    """Return a workload's configuration, the function that tunes it, and the cache of profiles.

    The cache is in `folder`, or in the working folder.

    Raises:
        NotImplementedError: this commit or this machine can't run it; asv then skips.
    """
    declared = load().trainings["autotune"][workload]
    skip_unless_runnable(declared)
    ProfileCache = package.find("myriad.autotune:ProfileCache")
    autotune = package.find("myriad.autotune:autotune")
    make_config = package.find("myriad.training.config:make_config")
    config = make_config(declared.env, declared.agent, declared.num_envs, _STEPS_PER_ENV)
    return config, autotune, ProfileCache((folder or Path.cwd()) / "profiles.json")


@dataclass(frozen=True)
class Trial:
    """One configuration, tuned and swept.

    Attributes:
        env: the environment's name.
        agent: the agent's name.
        num_envs: parallel environments.
        seconds: the duration of the tuning.
        default: the chunk size of an untuned configuration.
        chosen: the chunk size that the tuner chose.
        best: the fastest chunk size of the sweep.
        regret: the chosen size's speed as a share of the best one's, on samples that did not select
            the best.
        tuned: the default's time over the chosen one's, round by round.
        steps_per_s: the rates of the chosen size, round by round.
    """

    env: str
    agent: str
    num_envs: int
    seconds: float
    default: int
    chosen: int
    best: int
    regret: float
    tuned: list[float]
    steps_per_s: list[float]

    @property
    def tuned_spread(self) -> Row:
        """The median of `tuned` and its interval."""
        return spread(self.tuned, "tuned")


def measure(env: str, agent: str, num_envs: int) -> tuple[Trial, Row]:
    """Measure one configuration in a new process. Also return the machine's columns.

    Raises:
        ChildError: it failed.
    """
    request = {"env": env, "agent": agent, "num_envs": num_envs}
    reply = run(
        "benchmarks.autotune:_tuned_and_swept",
        request,
        timeout_s=600,
        MYRIAD_COMPILATION_CACHE="off",
    )
    return Trial(**reply["trial"]), reply["columns"]


def _tuned_and_swept(env: str, agent: str, num_envs: int) -> Reply:
    """Tune without a cache, then sweep every chunk in interleaved rounds. Runs in a child."""
    import myriad

    myriad.configure()
    from myriad.autotune import ProfileCache, autotune
    from myriad.autotune.stretch import Stretch

    make_config = package.find("myriad.training.config:make_config")
    CompiledTraining = package.find("myriad.training.programs:CompiledTraining")

    config = make_config(env, agent, num_envs, _STEPS_PER_ENV)
    with tempfile.TemporaryDirectory() as folder:
        cache = ProfileCache(Path(folder) / "profiles.json")
        start = time.perf_counter()
        result = autotune(config, verbose=False, cache=cache)
        seconds = time.perf_counter() - start
    training = CompiledTraining(result.config.resolve())
    training.compile()
    stretch = Stretch(training)
    # The candidates include the default as the training runs it, unless its calls take too long.
    # Then the largest candidate replaces it, because the overhead of a call hardly matters there.
    sizes = [candidate.chunk_size for candidate in result.candidates]
    resolved = config.resolve()
    default = min(resolved.scan_chunk_size, resolved.eval_frequency, max(sizes))
    times = stretch.times(sizes, _SWEEP_SECONDS)
    chosen = result.scan_chunk_size
    steps = stretch.num_updates * training.steps_per_update
    best, regret = _regret(times, chosen)
    tuned = [d / c for d, c in zip(times[default], times[chosen], strict=True)]
    rates = [steps / chunk_s for chunk_s in times[chosen]]
    trial = Trial(env, agent, num_envs, seconds, default, chosen, best, regret, tuned, rates)
    return {"trial": asdict(trial), "columns": machine_columns()}


def _regret(times: dict[int, list[float]], chosen: int) -> tuple[int, float]:
    """Pick the sweep's winner on half of the rounds. Return its regret on the other half."""
    # A winner picked on all rounds would owe some of its lead to their noise.
    order = list(range(len(times[chosen])))
    random.Random(0).shuffle(order)  # noqa: S311 (an order, no secret)
    picking = order[::2]
    judging = order[1::2]
    best = min(times, key=lambda size: statistics.median(times[size][i] for i in picking))
    return best, statistics.median(times[best][i] / times[chosen][i] for i in judging)


def configurations(*, full: bool) -> Iterator[tuple[str, str, int]]:
    """Yield all combinations of environments, agents and sizes, or three of them."""
    grid = [(env, agent, size) for env in _ENVS for agent in _AGENTS for size in _SIZES]
    return iter(grid if full else grid[:: len(grid) // 3][:3])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Bad input prints one sentence and gives exit code 2."""
    return guarded(_run, argv)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(_SCRIPT, __doc__)
    parser.add_argument(
        "--full", action="store_true", help="measure all 24 configurations instead of three"
    )
    parser.add_output()
    return parser.parse_args(argv)


def _run(argv: list[str]) -> bool:
    options = _parse(argv)
    file = ResultsFile("autotune", options.output, command_of(_SCRIPT, argv))
    trials = []
    for env, agent, size in configurations(full=options.full):
        try:
            trial, columns = measure(env, agent, size)
        except ChildError as error:
            lost = {"env": env, "agent": agent, "num_envs": size} | error.columns
            file.add_rows([new_row("autotune", file.timestamp, library="myriad", **lost)], lost)
            continue
        trials.append(trial)
        file.add_rows([_row(trial, columns, file.timestamp)], asdict(trial))
    if trials:
        print(table(trials))
    return report(file) and kept(trials)


def _row(trial: Trial, columns: Row, timestamp: str) -> Row:
    """Return a trial's row.

    `run_s` is the tuning's duration, and the rate is the chosen chunk's.
    """
    tuned = trial.tuned_spread
    reason = (
        f"the sweep's best is {trial.best}; chosen / best {trial.regret:.3f}, "
        f"chosen / default {trial.default} "
        f"{tuned['tuned']:.3f} ({tuned['tuned_low']:.3f} to {tuned['tuned_high']:.3f})"
    )
    configuration = {
        "env": trial.env,
        "agent": trial.agent,
        "num_envs": trial.num_envs,
        "num_steps": _STEPS_PER_ENV,
    }
    measured = spread(trial.steps_per_s, "steps_per_s") | {
        "run_s": trial.seconds,
        "scan_chunk_size": trial.chosen,
    }
    return new_row("autotune", timestamp, **columns, **configuration, **measured, reason=reason)


def table(trials: Sequence[Trial]) -> str:
    """Return a line per configuration, followed by the worst and the median of both ratios."""
    headers = [
        "environment",
        "agent",
        "environments",
        "tuned in, s",
        "default",
        "chosen",
        "sweep's best",
    ]
    headers += ["chosen / best", "chosen / default"]
    regrets = [trial.regret for trial in trials]
    tuned = [trial.tuned_spread["tuned"] for trial in trials]
    return (
        f"{markdown(headers, [_line(trial) for trial in trials])}\n"
        f"chosen / best: worst {min(regrets):.3f}, median {statistics.median(regrets):.3f}\n"
        f"chosen / default: worst {min(tuned):.3f}, median {statistics.median(tuned):.3f}"
    )


def _line(trial: Trial) -> list[str]:
    tuned = trial.tuned_spread
    harm = f"{tuned['tuned']:.3f} ({tuned['tuned_low']:.3f} to {tuned['tuned_high']:.3f})"
    sizes = [
        f"{trial.num_envs:,}",
        f"{trial.seconds:.1f}",
        f"{trial.default:,}",
        f"{trial.chosen:,}",
        f"{trial.best:,}",
    ]
    return [trial.env, trial.agent, *sizes, f"{trial.regret:.3f}", harm]


def kept(trials: Sequence[Trial]) -> bool:
    """Whether the targets are met: little regret, and nothing surely slower than untuned."""
    regrets = [trial.regret for trial in trials]
    tuned = [trial.tuned_spread for trial in trials]
    small = min(regrets) >= _WORST_REGRET and statistics.median(regrets) >= _MEDIAN_REGRET
    harmless = all(each["tuned_high"] >= _NO_HARM for each in tuned)
    return small and harmless and statistics.median(each["tuned"] for each in tuned) >= 1.0


if __name__ == "__main__":
    sys.exit(main())
