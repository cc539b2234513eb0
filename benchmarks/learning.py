"""Train agents, and compare their returns with targets or with other libraries.

    python benchmarks/learning.py                     every learning target, on fresh seeds
    python benchmarks/learning.py --agent ppo         the targets of one agent
    python benchmarks/learning.py --published         returns that others published
    python benchmarks/learning.py --against rejax     rejax's PPO, DQN and SAC

Evaluations are greedy. The exit code is 1 if a target is missed. throughput.py and training.py
measure speed.
"""

import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.harness.registry import SuiteError
from benchmarks.harness.results import Row
from benchmarks.harness.tables import print_headers, print_row
from benchmarks.opponents import published, rejax_agents
from benchmarks.runner import Run, Script, agent, text, whole

NUM_EPISODES = 128


@dataclass(frozen=True)
class LearningTarget:
    """The return that one agent's trainings in one environment must reach.

    `enough` of `seeds` trainings must reach `target_return` within `budget` steps. `enough_final`
    of them must have at least the return `final` after `total` steps.
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


def train(target: LearningTarget, seeds: Iterable[int]) -> Iterator[Row]:
    """Train one target's agent, seed after seed, in a program that is compiled once.

    A row holds the steps of all environments until the target was reached as `first`.
    """
    import jax

    from myriad import create_config, make_key, make_train

    # The defaults are those of the default length, which the target cuts short.
    config = create_config(target.env, target.agent)
    num_envs: Any = config.num_envs
    lengths = {
        "steps_per_env": -(-target.total // num_envs),
        "eval_frequency": max(1, target.budget // 25 // num_envs),
        "eval_rollouts": NUM_EPISODES,
        "num_devices": 1,
    }
    training = make_train(create_config(**config.fields() | lengths))
    compiled = jax.jit(training)
    for seed in seeds:
        scores = compiled(make_key(seed))["eval_return"].mean(axis=1)
        reached = training.steps[scores >= target.target_return]
        yield {
            "env": target.env,
            "agent": target.agent,
            "num_envs": num_envs,
            "seed": seed,
            "first": int(reached[0]) if len(reached) else None,
            "total": int(training.steps[-1]),
            "final_return": float(scores[-1]),
        }


def check_targets(run: Run) -> bool:
    """Train every target's agent. Whether enough trainings reached and held it."""
    targets = [target for target in TARGETS if run.options.agent in (None, target.agent)]
    if not targets:
        raise SuiteError(f"no learning target is about {run.options.agent}.")
    headers = ["environment", "agent", "environments", "target", "steps to it, median (most)"]
    print_headers(*headers, "in time", "final return", "held")
    succeeded = True
    for target in targets:
        runs = list(train(target, range(run.options.seeds or target.seeds)))
        in_time = sum(each["first"] is not None and each["first"] <= target.budget for each in runs)
        held = sum(each["final_return"] >= target.final for each in runs)
        firsts = [each["first"] for each in runs if each["first"] is not None]
        finals = [each["final_return"] for each in runs]
        print_row(
            target.env,
            target.agent,
            runs[0]["num_envs"],
            f"{target.target_return:g}",
            f"{statistics.median(firsts):,.0f} ({max(firsts):,})" if firsts else "never",
            f"{in_time} of {len(runs)} by {target.budget:,}",
            f"{min(finals):.0f} to {max(finals):.0f}",
            f"{held} of {len(runs)} at {target.final:g} after {target.total:,}",
        )
        run.save(*runs)
        succeeded &= in_time * target.seeds >= target.enough * len(runs)
        succeeded &= held * target.seeds >= target.enough_final * len(runs)
    return succeeded


OPPONENTS: dict[str, Callable[[Run], bool | None]] = {
    "targets": check_targets,
    "rejax": rejax_agents.compare,
}


def _run(run: Run) -> bool | None:
    import myriad

    myriad.configure()
    if run.options.published is not None:  # it may be empty, for all rows
        return published.compare(run)
    return OPPONENTS[run.options.against](run)


def _mode(options: Any) -> str:
    if options.published is not None:
        return "--published"
    return "" if options.against == "targets" else f"--against {options.against}"


SCRIPT = Script(
    "learning",
    __doc__,
    _run,
    {
        "--against": text(
            "whom to compare with (default: targets)", "targets", choices=[*OPPONENTS]
        ),
        "--published": text(
            "instead, train these rows of published.toml, or all", nargs="*", metavar="NAME"
        ),
        "--agent": text("train only this agent", type=agent),
        "--seeds": whole("trainings of each agent (default: 3, 5 or 10)"),
        "--env": text("train only in this environment (repeatable)", action="append"),
        "--steps": whole("steps of each training (default: the opponent's)"),
        "--seconds": whole("against rejax: train each library's own defaults for S seconds"),
    },
    exclusive=(("--against", "--published"),),
    mode=_mode,
    goes_with={
        "--agent": ("", "--against rejax"),
        "--env": ("--against rejax",),
        "--steps": ("--against rejax",),
        "--seconds": ("--against rejax",),
    },
    writes="training",
)
main = SCRIPT.main

if __name__ == "__main__":
    sys.exit(main())
