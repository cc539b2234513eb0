"""Whether agents reach their learning targets, with shipped defaults and fresh seeds.

    python benchmarks/learning.py                  every target, as a table
    python benchmarks/learning.py --agent ppo      those of one agent

Every evaluation is greedy and over 128 episodes. The exit code is 1 where a target is missed. Speed
is measured by throughput.py and training.py.
"""

if __name__ == "__main__" and not __package__:
    from harness.installed import require_setup  # Python may not find `benchmarks` yet

    require_setup()

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.harness import package
from benchmarks.harness.command_line import Parser, count, guarded, writable
from benchmarks.harness.files import write_rows

_SCRIPT = "benchmarks/learning.py"
NUM_EPISODES = 128


@dataclass(frozen=True)
class LearningTarget:
    """What the trainings of one agent in one environment must reach.

    `enough` of `seeds` trainings reach `target_return` within `budget` steps. `enough_final` of
    them have at least the return `final` after `total` steps.
    """

    env: str
    agent: str
    target_return: float
    budget: int
    enough: int
    final: float
    total: int
    enough_final: int
    seeds: int


TARGETS = (
    LearningTarget("cartpole-control", "ppo", 475.0, 50_000, 10, 475.0, 150_000, 10, 10),
    LearningTarget("cartpole-control", "pqn", 475.0, 100_000, 10, 475.0, 300_000, 9, 10),
    LearningTarget("cartpole-control", "dqn", 475.0, 120_000, 9, 475.0, 360_000, 9, 10),
    LearningTarget("pendulum-control", "ppo", -250.0, 150_000, 5, -190.0, 500_000, 5, 5),
)


@dataclass(frozen=True)
class Run:
    """One training: `first` is the steps of all environments when the target was reached."""

    env: str
    agent: str
    num_envs: int
    seed: int
    first: int | None
    total: int
    final_return: float


class Learning:
    """Trains one target's agent, seed after seed, in programs compiled once."""

    def __init__(self, target: LearningTarget):
        import jax

        from myriad import create_config

        Evaluation = package.find("myriad.training.evaluation:Evaluation")
        LearningLoop = package.find("myriad.training.loop:LearningLoop")

        self.target = target
        resolved = create_config(target.env, target.agent).resolve()
        env = resolved.env
        self.num_envs = resolved.num_envs
        self.steps_per_update = resolved.learner.steps_per_update * self.num_envs
        self.num_updates = -(-target.total // self.steps_per_update)
        self.eval_every = max(1, target.budget // 25 // self.steps_per_update)
        learner = resolved.learner.scheduled(self.num_updates)
        loop = LearningLoop(env, learner, self.num_envs)
        self._init, self._run = jax.jit(loop.init), jax.jit(loop.run, donate_argnums=0)
        self._returns = jax.jit(Evaluation(env, learner, NUM_EPISODES, max_steps=10_000).returns)

    def train(self, seed: int) -> Run:
        """Train one seed to the end."""
        import jax
        import numpy as np

        from myriad import make_key

        key = make_key(seed)
        state = self._init(key)
        done = 0
        first = None
        score = float("nan")
        while done < self.num_updates:
            num_updates = min(self.eval_every, self.num_updates - done)
            state, _ = self._run(state, np.int32(num_updates), np.bool_(True))  # noqa: FBT003
            done += num_updates
            score = float(self._returns(state.agent, jax.random.fold_in(key, done))[0].mean())
            if first is None and score >= self.target.target_return:
                first = done * self.steps_per_update
        total = done * self.steps_per_update
        return Run(self.target.env, self.target.agent, self.num_envs, seed, first, total, score)


def kept(target: LearningTarget, runs: Sequence[Run]) -> tuple[int, int]:
    """Count the runs that were in time and those that held to the end."""
    in_time = sum(run.first is not None and run.first <= target.budget for run in runs)
    return in_time, sum(run.final_return >= target.final for run in runs)


def row(target: LearningTarget, runs: Sequence[Run]) -> str:
    """Return a line of the table."""
    in_time, held = kept(target, runs)
    firsts = [run.first for run in runs if run.first is not None]
    first = f"{statistics.median(firsts):,.0f} ({max(firsts):,})" if firsts else "never"
    finals = [run.final_return for run in runs]
    return (
        f"| {target.env} | {target.agent} | {runs[0].num_envs} | "
        f"{target.target_return:g} | {first} | "
        f"{in_time} of {len(runs)} by {target.budget:,} | "
        f"{min(finals):.0f} to {max(finals):.0f} | "
        f"{held} of {len(runs)} at {target.final:g} after {target.total:,} |"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; bad input gives one sentence and exit code 2."""
    return guarded(_run, argv)


def _run(argv: list[str]) -> bool:
    import myriad

    parser = Parser(_SCRIPT, __doc__)
    parser.add_argument(
        "--agent", choices=sorted({p.agent for p in TARGETS}), help="only this agent's targets"
    )
    parser.add_argument(
        "--seeds", type=count, metavar="N", help="trainings each (default: the target's own)"
    )
    parser.add_argument(
        "--output", type=writable, metavar="FILE", help="CSV file, a row per training"
    )
    options = parser.parse_args(argv)
    myriad.configure()
    print(
        "| environment | agent | environments | target | steps to it, median (most) | in time | "
        "final return | held |"
    )
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    all_runs = []
    succeeded = True
    for target in (p for p in TARGETS if options.agent in (None, p.agent)):
        learning = Learning(target)
        runs = [learning.train(seed) for seed in range(options.seeds or target.seeds)]
        print(row(target, runs), flush=True)
        in_time, held = kept(target, runs)
        all_runs += runs
        if options.output is not None:
            write_rows(options.output, Run, all_runs)
        succeeded &= in_time * target.seeds >= target.enough * len(runs)
        succeeded &= held * target.seeds >= target.enough_final * len(runs)
    return succeeded


if __name__ == "__main__":
    sys.exit(main())
