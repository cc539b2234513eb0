"""Whether agents learn as promised: fresh seeds, shipped defaults, greedy evaluation of 128 episodes each time.

    python benchmarks/learning.py                  every promise, as a table; exit code 1 where one is missed
    python benchmarks/learning.py --agent ppo      those about one agent

No speed is measured here: see throughput.py for that.
"""

import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.harness import package
from benchmarks.harness.command_line import Parser, count, guarded

_SCRIPT = "benchmarks/learning.py"
NUM_EPISODES = 128


@dataclass(frozen=True)
class Promise:
    """`enough` of `seeds` trainings reach `target` within `budget` steps, and hold `final` after `total` steps."""

    env: str
    agent: str
    target: float
    budget: int
    enough: int
    final: float
    total: int
    enough_final: int
    seeds: int


PROMISES = (
    Promise("cartpole-control", "ppo", 475.0, 50_000, 10, 475.0, 150_000, 10, 10),
    Promise("cartpole-control", "pqn", 475.0, 100_000, 10, 475.0, 300_000, 9, 10),
    Promise("cartpole-control", "dqn", 475.0, 120_000, 9, 475.0, 360_000, 9, 10),
    Promise("pendulum-control", "ppo", -250.0, 150_000, 5, -190.0, 500_000, 5, 5),
)


@dataclass(frozen=True)
class Run:
    """One training: `first` is the steps, of all environments, at the first evaluation at the target."""

    env: str
    agent: str
    num_envs: int
    seed: int
    first: int | None
    total: int
    final_return: float


class Learning:
    """Trains one promise's agent, seed after seed, in programs compiled once."""

    def __init__(self, promise: Promise):
        import jax

        from myriad import create_config

        Evaluation = package.load("myriad.training.evaluation").Evaluation
        LearningLoop = package.load("myriad.training.loop").LearningLoop

        self.promise = promise
        resolved = create_config(promise.env, promise.agent).resolve()
        env = resolved.env
        learner = resolved.learner
        self.num_envs = resolved.num_envs
        self.steps_per_update = learner.steps_per_update * self.num_envs
        self.num_updates = -(-promise.total // self.steps_per_update)
        self.eval_every = max(1, promise.budget // 25 // self.steps_per_update)
        learner = learner.scheduled(self.num_updates)
        loop = LearningLoop(env, learner, self.num_envs)
        self._init, self._run = jax.jit(loop.init), jax.jit(loop.run, donate_argnums=0)
        self._returns = jax.jit(Evaluation(env, learner, NUM_EPISODES, max_steps=10_000).returns)

    def train(self, seed: int) -> Run:
        """Train one seed to the end."""
        import jax
        import numpy as np

        from myriad import make_key

        key, done, first, score = make_key(seed), 0, None, float("nan")
        state = self._init(key)
        while done < self.num_updates:
            num_updates = min(self.eval_every, self.num_updates - done)
            state, _ = self._run(state, np.int32(num_updates), np.bool_(True))  # noqa: FBT003
            done += num_updates
            score = float(self._returns(state.agent, jax.random.fold_in(key, done))[0].mean())
            if first is None and score >= self.promise.target:
                first = done * self.steps_per_update
        total = done * self.steps_per_update
        return Run(self.promise.env, self.promise.agent, self.num_envs, seed, first, total, score)


def kept(promise: Promise, runs: Sequence[Run]) -> tuple[int, int]:
    """Count the runs that were in time and those that held to the end."""
    in_time = sum(run.first is not None and run.first <= promise.budget for run in runs)
    return in_time, sum(run.final_return >= promise.final for run in runs)


def row(promise: Promise, runs: Sequence[Run]) -> str:
    """Return a line of the table."""
    in_time, held = kept(promise, runs)
    firsts = [run.first for run in runs if run.first is not None]
    first = f"{statistics.median(firsts):,.0f} ({max(firsts):,})" if firsts else "never"
    finals = [run.final_return for run in runs]
    return (
        f"| {promise.env} | {promise.agent} | {runs[0].num_envs} | {promise.target:g} | {first} | "
        f"{in_time} of {len(runs)} by {promise.budget:,} | {min(finals):.0f} to {max(finals):.0f} | "
        f"{held} of {len(runs)} at {promise.final:g} after {promise.total:,} |"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; bad input gives one sentence and exit code 2."""
    return guarded(_run, argv)


def _run(argv: list[str]) -> bool:
    import myriad
    from myriad.files import write_errors_explained

    parser = Parser(_SCRIPT, __doc__)
    parser.add_argument(
        "--agent", choices=sorted({p.agent for p in PROMISES}), help="only this agent's promises"
    )
    parser.add_argument(
        "--seeds", type=count, metavar="N", help="trainings each (default: what was promised for)"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="CSV file, a row per training")
    options = parser.parse_args(argv)
    if options.output is not None:
        with write_errors_explained(options.output):  # before hours of training, not after
            options.output.open("a").close()
    myriad.configure()
    print(
        "| environment | agent | environments | target | steps to it, median (most) | in time | final return | held |"
    )
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    all_runs, succeeded = [], True
    for promise in (p for p in PROMISES if options.agent in (None, p.agent)):
        learning = Learning(promise)
        runs = [learning.train(seed) for seed in range(options.seeds or promise.seeds)]
        print(row(promise, runs), flush=True)
        in_time, held = kept(promise, runs)
        all_runs += runs
        if options.output is not None:
            write(options.output, all_runs)
        succeeded &= in_time * promise.seeds >= promise.enough * len(runs)
        succeeded &= held * promise.seeds >= promise.enough_final * len(runs)
    return succeeded


def write(path: Path, runs: Sequence[Run]) -> None:
    """Write a CSV file, atomically."""
    from myriad.training.history import History

    History([asdict(run) for run in runs]).to_csv(path)


if __name__ == "__main__":
    sys.exit(main())
