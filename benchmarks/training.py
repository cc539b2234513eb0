"""Measure whole trainings: seconds to a target return, including compilation, and steps/s.

    python benchmarks/training.py                  the quick trainings of suite.toml, two seeds each
    python benchmarks/training.py --full           all of them, five seeds each
    python benchmarks/training.py --agent dqn --seeds 3

An asv suite and a command line. Each seed runs in a new process without a cache. Its clock starts
with the process, and stops when the evaluation that reached the target has been written.
comparison.py measures the trainings of peers.
"""

import sys
from typing import Any, ClassVar

from benchmarks.harness.asv_suite import AsvSuite, names_of
from benchmarks.harness.results import Row
from benchmarks.harness.trainings import trained, trainings_table
from benchmarks.harness.workloads import Training, chosen
from benchmarks.runner import AGENT, ENV, Run, Script, switch, whole

_WINDOW = 8  # the fewest updates in a call


class TrainingLoop(AsvSuite):
    """Seconds of the trainer's loop over a few updates, including the host's part."""

    suite = "training"
    params: ClassVar = names_of(suite)
    version = "1"

    def prepare(self, declared: Training) -> None:
        from myriad import create_config
        from myriad.programs import TrainingProgram

        self.training = TrainingProgram(create_config(**fields_of(declared, seed=0)))
        self.training.start()
        self.time_updates(declared.name)

    def time_updates(self, workload: str) -> None:
        """Train over a window; the report that ends it has been fetched, so the device is done."""
        self.training.run_updates(max(_WINDOW, self.training.updates_per_call))

    def program(self, workload: str) -> Any:
        """Return the compiled updates, for the gate."""
        return self.training.updates


def fields_of(training: Training, seed: int) -> dict[str, Any]:
    """Return a training as `create_config` takes it."""
    return {
        "env": training.env,
        "agent": training.agent,
        "num_envs": training.num_envs,
        "total_steps": training.num_steps,
        "target_return": training.target_return,
        "seed": seed,
    }


def _measure(run: Run) -> None:
    """Train every seed in a new process, and save its row."""
    options = run.options
    found: dict[tuple[str, ...], list[Row]] = {}
    for training in chosen("training", options):
        # A published time to a target return is the median of at least five seeds.
        for seed in range(options.seeds or (5 if options.full else 2)):
            row = trained(fields_of(training, seed), run.file, {"training": training.name})
            found.setdefault((training.env, training.agent), []).append(row)
    print(trainings_table(("environment", "agent"), found))


SCRIPT = Script(
    "training",
    __doc__,
    _measure,
    {
        "--full": switch("run every training of suite.toml, with five seeds each"),
        "--agent": AGENT,
        "--env": ENV,
        "--seeds": whole("seeds of each training (default: 2, or 5 with --full)"),
    },
    suite="training",
)
main = SCRIPT.main

if __name__ == "__main__":
    sys.exit(main())
