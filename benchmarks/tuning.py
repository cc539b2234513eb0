"""Measure campaigns of `myriad tune`: in one process or in pinned ones, and with an empty cache.

    python benchmarks/tuning.py                         both parts
    python benchmarks/tuning.py --part processes        a process per core against one on all
    python benchmarks/tuning.py --part campaign --runs 1

An asv suite and a command line. `processes` alternates campaigns of one process with those of one
pinned to each core. `campaign` runs 100 trials of the documented space
twice, first with an empty cache. Trials have one training seed. The best trial is not confirmed on
other seeds. The samplers' seeds are fixed, but which results a draw follows depends on the time. So
each run prints the steps that networks of each size were trained for.
"""

import collections
import functools
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.harness.asv_suite import AsvSuite
from benchmarks.harness.process import Reply, run
from benchmarks.harness.results import machine_columns
from benchmarks.harness.workloads import Training, load
from benchmarks.runner import Run, Script, ratio_table, text, whole

PARTS = ("processes", "campaign")
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


class TracedTrial(AsvSuite):
    """Seconds of a trial in a slot of a compiled program, its reset included."""

    suite = "tuning"
    params: ClassVar = [_WORKLOAD]
    param_names: ClassVar = ["workload"]
    version = "1"
    num_updates = 4

    def prepare(self, declared: Training) -> None:
        from myriad import timing

        self.population = _population(declared)
        self.block_until_ready = timing.block_until_ready
        self.options = {name: [value] for name, value in _VALUES.items()}
        self.state = self.population.first_state([0], self.options)
        self.time_trial(declared.name)

    def time_trial(self, workload: str) -> None:
        """Begin a trial in the slot and train it."""
        state = self.population.refill(self.state, [0], [1], self.options)
        state, _ = self.population.run(state, [self.num_updates], [True])
        self.state = self.block_until_ready(state)


def _population(declared: Training) -> Any:
    """Compile the program of a training, with the hyperparameters as its arguments."""
    import myriad.programs  # noqa: F401 (commits without it build a population otherwise)
    from myriad import create_config
    from myriad.training.population import Population

    config = create_config(
        declared.env, declared.agent, total_steps=declared.num_steps, env_options=_OPTIONS
    )
    population = Population(config, 1, tuple(_VALUES))
    population.compile()
    return population


def _measure(running: Run) -> None:
    import myriad

    myriad.configure()
    declared = load().trainings["tuning"][_WORKLOAD]
    measure = {"processes": _processes, "campaign": _campaign}
    for part in running.options.part or PARTS:
        seconds = measure[part](declared, running.options)
        columns = machine_columns() | {"env": declared.env, "agent": declared.agent}
        rows = [
            columns
            | {"arm": f"{part}: {arm}", "run_s": statistics.median(each), "samples": len(each)}
            for arm, each in seconds.items()
        ]
        running.file.add(rows, {"part": part, "seconds": seconds})
        print(f"\n{part}\n\n{ratio_table('arm', seconds, 'seconds (median)')}")


# A part's seconds by arm. The first arm is compared with the second.
_Seconds = dict[str, list[float]]


def _processes(declared: Training, options: Any) -> _Seconds:
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


def _campaign(declared: Training, options: Any) -> _Seconds:
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
    from myriad.tuning import TuneSettings, tune

    with tempfile.TemporaryDirectory() as folder:
        space = fields.pop("space", None)
        settings = TuneSettings(
            env=env,
            agent=agent,
            num_steps=num_steps,
            num_seeds=1,
            fail_if_exists=True,  # so that all processes draw from fixed seeds
            options={f"env.{name}": value for name, value in _OPTIONS.items()},
            output=Path(folder),
            space=None if space is None else Path(space),
            **fields,
        )
        ended = []

        def hear(study: Any, trial: Any) -> None:
            ended.append(time.perf_counter())
            if len(ended) == settings.n_trials:
                signal.raise_signal(signal.SIGTERM)  # ends the campaign here

        with tune(settings, [hear]) as done:
            trials = done.study.get_trials()
            best = done.study.best_trial
        steps = [trial.last_step or 0 for trial in trials]
        # Large networks take far longer, so two runs are only comparable if these are alike.
        steps_of = collections.Counter[str]()
        for trial, taken in zip(trials, steps, strict=True):
            steps_of[str(trial.params.get("agent.hidden_sizes", "the same"))] += taken
        spans = [(t.datetime_start, t.datetime_complete) for t in trials]
        first = min(began for began, _ in spans if began is not None)
        last = max(until for _, until in spans if until is not None)
        return {
            "total_s": max(ended) - start,
            "trials_s": (last - first).total_seconds(),
            "trials": len(ended),
            "failed": sum(trial.state.name == "FAIL" for trial in trials),
            "share_of_steps": sum(steps) / (len(steps) * num_steps),
            "steps_of_network": dict(sorted(steps_of.items())),
            "best": best.value,
            "standard_error": best.user_attrs["score"]["standard_error"],
        }


SCRIPT = Script(
    "tuning",
    __doc__,
    _measure,
    {
        "--part": text("part to measure (default: all)", action="append", choices=PARTS),
        "--runs": whole("rounds, each of which runs everything once (default: 5)", 5),
        "--trials": whole("number of trials in a campaign (default: 100)", 100),
    },
    suite="tuning",
)
main = SCRIPT.main

if __name__ == "__main__":
    sys.exit(main())
