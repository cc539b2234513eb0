"""Measure whole trainings: seconds to a target return, including compilation, and steps/s.

    python benchmarks/training.py                  the quick trainings of suite.toml, two seeds each
    python benchmarks/training.py --full           all of them, five seeds each
    python benchmarks/training.py --agent dqn --seeds 3

An asv suite and a command line. Each seed runs in a new process without a cache. Its clock starts
with the process, and stops when the evaluation that reached the target has been written.
comparison.py measures the trainings of peers.
"""

if __name__ == "__main__" and not __package__:
    from harness.installed import require_setup  # Python may not find `benchmarks` yet

    require_setup()

import argparse
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, ClassVar

from benchmarks.harness import package
from benchmarks.harness.command_line import Parser, command_of, count, guarded, report
from benchmarks.harness.process.child_process import run
from benchmarks.harness.process.failures import ChildError
from benchmarks.harness.results import ResultsFile, Row, markdown, new_row
from benchmarks.harness.skipping import skip_unless_runnable, skip_unless_several_cores
from benchmarks.harness.trainings import chosen, train_to_target
from benchmarks.harness.workloads import Training, load, tier_from_environment

_SCRIPT = "benchmarks/training.py"
_TIMEOUT_S = 600.0


class TrainingLoop:
    """Seconds of the trainer's loop over a few updates, including the host's part."""

    params: ClassVar = list(load().select_trainings("training", tier_from_environment()))
    param_names: ClassVar = ["workload"]
    version = "1"
    timeout = 300
    prepared = ""
    window = 8  # the fewest updates in a call

    def setup(self, workload: str) -> None:
        """Compile and warm up, once: asv calls this before every sample."""
        if self.prepared == workload:
            return
        declared = load().trainings["training"][workload]
        skip_unless_runnable(declared)
        CompiledTraining = package.find("myriad.training.programs:CompiledTraining")
        self.training = CompiledTraining(self.config(declared).resolve())
        self.training.compile()
        self.state = self.training.first_state()
        self.time_updates(workload)
        self.prepared = workload

    def time_updates(self, workload: str) -> None:
        """Train over a window; the report that ends it has been fetched, so the device is done."""
        end = max(self.window, self.training.chunk)
        self.state, _ = self.training.run_window(self.state, 0, end, lambda report, done: None)

    def program(self, workload: str) -> Any:
        """Return the compiled updates, for the gate."""
        return self.training.run

    def config(self, declared: Training) -> Any:
        """Return the configuration of the training."""
        return _config(declared, seed=0)


class SeveralCores(TrainingLoop):
    """Seconds of an update that is large enough for all cores. gate.toml unpins it."""

    params: ClassVar = ["cartpole-ppo"]
    window = 1

    def setup(self, workload: str) -> None:
        """Compile and warm up, once: asv calls this before every sample."""
        skip_unless_runnable(load().trainings["training"][workload])
        skip_unless_several_cores()
        super().setup(workload)

    def config(self, declared: Training) -> Any:
        """Return a configuration whose minibatches are large enough to be shared."""
        from myriad import create_config

        large: dict[str, Any] = {
            "rollout_steps": 16,
            "agent.num_epochs": 1,
            "agent.num_minibatches": 2,
        }
        return create_config(declared.env, declared.agent, 1_024, 256, 16, **large)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Bad input prints one sentence and gives exit code 2."""
    return guarded(_run, argv)


def _run(argv: list[str]) -> bool:
    options = _parse(argv)
    trainings = chosen(load().trainings["training"], options, "training")
    file = ResultsFile("training", options.output, command_of(_SCRIPT, argv))
    for training in trainings:
        # A published time to a target return is the median of at least five seeds.
        for seed in range(options.seeds or (5 if options.full else 2)):
            _train(training, seed, file)
    print(table(file.rows))
    return report(file)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(_SCRIPT, __doc__)
    parser.add_argument(
        "--full", action="store_true", help="run every training of suite.toml, with five seeds each"
    )
    parser.add_argument("--agent", help="run only this agent's trainings")
    parser.add_argument("--env", help="run only trainings in this environment")
    parser.add_argument(
        "--seeds",
        type=count,
        metavar="N",
        help="seeds of each training (default: 2, or 5 with --full)",
    )
    parser.add_output()
    return parser.parse_args(argv)


def _train(training: Training, seed: int, file: ResultsFile) -> None:
    """Train one seed in a new process, and save its row."""
    request = asdict(training) | {"seed": seed, "started": time.time()}
    columns: Row = {"library": "myriad", "env": training.env, "agent": training.agent}
    with tempfile.TemporaryDirectory() as folder:
        try:
            columns |= run(
                "benchmarks.training:train_once",
                {"request": request, "folder": folder},
                timeout_s=_TIMEOUT_S,
                MYRIAD_COMPILATION_CACHE=folder,
            )
        except ChildError as error:
            columns |= error.columns
    row = new_row("training", file.timestamp, **columns)
    file.add_rows([row], {"training": training.name, "seed": seed, "columns": columns})


def train_once(request: dict[str, Any], folder: str) -> Row:
    """Train one seed as a user would, and return the columns of its row. Runs in a child."""
    import myriad

    myriad.configure()
    seed = request.pop("seed")
    started = request.pop("started")
    training = Training(
        **{**request, "tiers": tuple(request["tiers"]), "devices": tuple(request["devices"])}
    )
    return train_to_target(_config(training, seed), started, folder)


def _config(training: Training, seed: int) -> Any:
    from myriad import create_config

    config = create_config(
        training.env,
        training.agent,
        training.num_envs,
        target_return=training.target_return,
        seed=seed,
    )
    if training.num_steps is None:
        return config
    steps_per_env = training.num_steps // config.resolve().num_envs
    return config.model_copy(update={"steps_per_env": steps_per_env})


def table(rows: Sequence[Row]) -> str:
    """Return a line per training, with its seconds to the target and of compiling over seeds."""
    headers = [
        "environment",
        "agent",
        "seeds",
        "s to target (least to most)",
        "of it compiling",
        "steps",
        "steps/s",
    ]
    kinds = dict.fromkeys((row["env"], row["agent"]) for row in rows)
    return markdown(
        headers,
        [
            _line(kind, [row for row in rows if (row["env"], row["agent"]) == kind])
            for kind in kinds
        ],
    )


def _line(kind: tuple[str, str], rows: Sequence[Row]) -> list[str]:
    done = [row for row in rows if row["status"] == "ok"]
    missed = len(rows) - len(done)
    if missed >= len(
        done
    ):  # then all seeds have no median, and that of the successful ones would look too good
        return [*kind, f"{len(done)} of {len(rows)}", "not reached by half of them", "-", "-", "-"]
    seconds = sorted([*(row["run_s"] for row in done), *[math.inf] * missed])
    compile_s, steps, rate = (
        statistics.median(row[name] for row in done)
        for name in ("compile_s", "num_steps", "steps_per_s")
    )
    most = "never" if missed else f"{seconds[-1]:.2f}"
    middle = f"{statistics.median(seconds):.2f} ({seconds[0]:.2f} to {most})"
    return [
        *kind,
        f"{len(done)} of {len(rows)}",
        middle,
        f"{compile_s:.2f}",
        f"{steps:,.0f}",
        f"{rate:,.0f}",
    ]


if __name__ == "__main__":
    sys.exit(main())
