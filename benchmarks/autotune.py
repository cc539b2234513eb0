"""Measure the autotuner: its duration, and its choice beside a full sweep and the default.

    python benchmarks/autotune.py             three configurations
    python benchmarks/autotune.py --full      3 environments x 3 agents x 2 sizes

The exit code is 1 if a target is missed.

An asv suite and a command line.
"""

import contextlib
import functools
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

from benchmarks.harness.asv_suite import names_of, skip_unless_runnable
from benchmarks.harness.process import Reply
from benchmarks.harness.results import machine_columns, markdown, spread
from benchmarks.harness.worker import seconds_of
from benchmarks.harness.workloads import load
from benchmarks.runner import Run, Script, between, in_turns, switch

_ENVS = ("cartpole-control", "gene-circuit-control", "snake")
_AGENTS = ("dqn", "pqn", "ppo")
_SIZES = (64, 4096)
_STEPS_PER_ENV = 10_000
# The sweep: its rounds, the seconds that they may take, and the seconds that a call should last.
_LEAST_ROUNDS, _MOST_ROUNDS, _SWEEP_S, _CALL_S = 3, 25, 6.0, 0.04
_WORST_REGRET = 0.95
_MEDIAN_REGRET = 0.98
_NO_HARM = 0.98


class Autotune:
    """Seconds to suggest a chunk size that is known."""

    params: ClassVar = names_of("autotune")
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

    params: ClassVar = names_of("autotune")
    param_names: ClassVar = ["workload"]
    version = "1"
    timeout = 300

    def setup(self, workload: str) -> None:
        """Have asv skip what this commit or machine can't run."""
        _tuner(workload)

    def track_cold_s(self, workload: str) -> float:
        """Return what a first tuning takes, with nothing compiled in this process."""
        cold = {"MYRIAD_COMPILATION_CACHE": "off"}
        with mock.patch.dict(os.environ, cold), tempfile.TemporaryDirectory() as folder:
            config, tune, profiles = _tuner(workload, Path(folder))
            start = time.perf_counter()
            tune(config, verbose=False, cache=profiles)
            return time.perf_counter() - start

    track_cold_s.unit = "seconds"  # type: ignore[attr-defined]


def _tuner(workload: str, folder: Path | None = None) -> tuple[Any, Any, Any]:
    """Return a workload's configuration, the function that tunes it, and the cache of profiles.

    The cache is in `folder`, or in the working folder.

    Raises:
        NotImplementedError: this commit or this machine can't run it; asv then skips.
    """
    declared = load().trainings["autotune"][workload]
    skip_unless_runnable(declared)
    from myriad import create_config
    from myriad.autotune import ProfileCache, autotune

    config = create_config(declared.env, declared.agent, declared.num_envs, _STEPS_PER_ENV)
    return config, autotune, ProfileCache((folder or Path.cwd()) / "profiles.json")


def _tuned_and_swept(env: str, agent: str, num_envs: int) -> Reply:
    """Tune without a cache, then sweep every chunk in interleaved rounds. Runs in a child."""
    import myriad

    myriad.configure()
    from myriad.autotune import ProfileCache, autotune
    from myriad.programs import TrainingProgram

    config = myriad.create_config(env, agent, num_envs, _STEPS_PER_ENV)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        cache = ProfileCache(Path(folder) / "profiles.json")
        result = autotune(config, verbose=False, cache=cache)
        tuning_s = time.perf_counter() - start
    training = TrainingProgram(config)
    training.warm_up()
    # The candidates include the default as the training runs it, unless its calls take too long.
    # Then the largest candidate replaces it, because the overhead of a call hardly matters there.
    sizes = [candidate.chunk_size for candidate in result.candidates]
    default = min(config.scan_chunk_size, config.eval_frequency, max(sizes))
    steps_in_update = training.steps_per_update // num_envs
    # Every size takes the same updates, which last long enough in calls of the largest one.
    num_updates = max(sizes) // steps_in_update
    seconds_in_one = seconds_of(training.run_updates, num_updates, num_updates)
    num_updates *= max(1, round(_CALL_S / seconds_in_one))
    samplers = {
        size: functools.partial(
            seconds_of, training.run_updates, num_updates, size // steps_in_update
        )
        for size in sizes
    }
    times = in_turns(samplers, _MOST_ROUNDS, least_rounds=_LEAST_ROUNDS, budget_s=_SWEEP_S)
    chosen = result.scan_chunk_size
    best, regret = _regret(times, chosen)
    rates = [num_updates * training.steps_per_update / chunk_s for chunk_s in times[chosen]]
    return {
        "columns": machine_columns(),
        "seconds": tuning_s,
        "default": default,  # the chunk size of an untuned configuration
        "chosen": chosen,
        "best": best,  # the fastest chunk size of the sweep
        "regret": regret,  # the chosen size's speed as a share of the best one's
        # the default's time over the chosen one's, round by round
        "tuned": [d / c for d, c in zip(times[default], times[chosen], strict=True)],
        "steps_per_s": rates,
    }


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
    return iter(grid if full else grid[::8])


def _measure(run: Run) -> bool:
    lines = []
    found = []
    for env, agent, size in configurations(full=run.options.full):
        request = {"env": env, "agent": agent, "num_envs": size}
        reply = run.attempt(
            "benchmarks.autotune:_tuned_and_swept",
            request,
            {"library": "myriad"} | request,
            timeout_s=600,
            MYRIAD_COMPILATION_CACHE="off",
        )
        if reply is None:
            continue
        found.append(reply)
        tuned = between(spread(reply["tuned"], "tuned"), "tuned", ".3f")
        # `run_s` is the tuning's duration, and the rate is the chosen chunk's.
        row = reply.pop("columns") | request | spread(reply["steps_per_s"], "steps_per_s")
        row |= {"num_steps": _STEPS_PER_ENV, "run_s": reply["seconds"]}
        row["scan_chunk_size"] = reply["chosen"]
        row["reason"] = (
            f"the sweep's best is {reply['best']}; chosen / best {reply['regret']:.3f}, "
            f"chosen / default {reply['default']} {tuned}"
        )
        run.file.add([row], request | reply)
        sizes = [f"{reply[name]:,}" for name in ("default", "chosen", "best")]
        where = [env, agent, f"{size:,}", f"{reply['seconds']:.1f}"]
        lines.append([*where, *sizes, f"{reply['regret']:.3f}", tuned])
    if found:
        headers = ["environment", "agent", "environments", "tuned in, s", "default", "chosen"]
        print(markdown([*headers, "sweep's best", "chosen / best", "chosen / default"], lines))
        regrets = [reply["regret"] for reply in found]
        tunings = [statistics.median(reply["tuned"]) for reply in found]
        for name, each in (("chosen / best", regrets), ("chosen / default", tunings)):
            print(f"{name}: worst {min(each):.3f}, median {statistics.median(each):.3f}")
    return all(row["status"] == "ok" for row in run.file.rows) and kept(found)


def kept(found: Sequence[Reply]) -> bool:
    """Whether the targets are met: little regret, and nothing surely slower than untuned."""
    regrets = [reply["regret"] for reply in found]
    tuned = [spread(reply["tuned"], "tuned") for reply in found]
    small = min(regrets) >= _WORST_REGRET and statistics.median(regrets) >= _MEDIAN_REGRET
    harmless = all(each["tuned_high"] >= _NO_HARM for each in tuned)
    return small and harmless and statistics.median(each["tuned"] for each in tuned) >= 1.0


SCRIPT = Script(
    "autotune",
    __doc__,
    _measure,
    {"--full": switch("measure all 18 configurations instead of three")},
    suite="autotune",
)
main = SCRIPT.main

if __name__ == "__main__":
    sys.exit(main())
