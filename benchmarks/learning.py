"""Check that agents reach their learning targets, with shipped defaults and fresh seeds.

    python benchmarks/learning.py                         every target, as a table
    python benchmarks/learning.py --agent ppo             the targets of one agent
    python benchmarks/learning.py --num-envs 100000       the defaults for so many environments
    python benchmarks/learning.py --networks mlp cnn      networks in snake, or in --env

Every evaluation is greedy, over 128 episodes. The exit code is 1 if a target is missed.
throughput.py and training.py measure speed.
"""

import statistics
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.harness import process
from benchmarks.harness.libraries import SuiteError
from benchmarks.harness.results import Row
from benchmarks.harness.worker import ChildError
from benchmarks.runner import Run, Script, print_headers, print_row, text, whole

NUM_EPISODES = 128
DEFAULTS_ENV = "cartpole-control"
DEFAULTS_RETURN = 475.0
DEFAULTS_SEEDS = 3
NETWORKS_ENV = "snake"
NETWORKS_STEPS = 2_000_000
_TIMEOUT_S = 3_600.0


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
_AGENTS = sorted({target.agent for target in TARGETS})


class Learning:
    """Trains one target's agent, seed after seed, in a program that is compiled once.

    A row holds the steps of all environments until the target was reached as `first`.
    """

    def __init__(self, target: LearningTarget):
        import jax

        from myriad import create_config, make_train

        self.target = target
        # The defaults are those of the default length, which the target cuts short.
        config = create_config(target.env, target.agent)
        self.num_envs: Any = config.num_envs
        lengths = {
            "steps_per_env": -(-target.total // self.num_envs),
            "eval_frequency": max(1, target.budget // 25 // self.num_envs),
            "eval_rollouts": NUM_EPISODES,
            "num_devices": 1,
        }
        config = create_config(**config.fields() | lengths)
        train = make_train(config)
        self._steps = train.steps
        self._train = jax.jit(train)

    def train(self, seed: int) -> Row:
        """Train one seed to the end."""
        from myriad import make_key

        scores = self._train(make_key(seed))["eval_return"].mean(axis=1)
        reached = self._steps[scores >= self.target.target_return]
        return {
            "env": self.target.env,
            "agent": self.target.agent,
            "num_envs": self.num_envs,
            "seed": seed,
            "first": int(reached[0]) if len(reached) else None,
            "total": int(self._steps[-1]),
            "final_return": float(scores[-1]),
        }


def kept(target: LearningTarget, runs: Sequence[Row]) -> tuple[int, int]:
    """Count the runs that reached the target in time and those that held it to the end."""
    in_time = sum(run["first"] is not None and run["first"] <= target.budget for run in runs)
    return in_time, sum(run["final_return"] >= target.final for run in runs)


def check_targets(run: Run) -> bool:
    """Train every target's agent. Whether enough trainings reached and held it."""
    headers = ["environment", "agent", "environments", "target", "steps to it, median (most)"]
    print_headers(*headers, "in time", "final return", "held")
    succeeded = True
    for target in (each for each in TARGETS if run.options.agent in (None, each.agent)):
        learning = Learning(target)
        runs = [learning.train(seed) for seed in range(run.options.seeds or target.seeds)]
        in_time, held = kept(target, runs)
        firsts = [each["first"] for each in runs if each["first"] is not None]
        finals = [each["final_return"] for each in runs]
        print_row(
            target.env,
            target.agent,
            learning.num_envs,
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


def train_by_defaults(agent: str, num_envs: int, seed: int) -> dict[str, float]:
    """Train with all of Myriad's defaults, in a new process."""
    import jax

    from myriad import configure, create_config, evaluate, train_and_evaluate

    configure()
    config = create_config(DEFAULTS_ENV, agent, num_envs=num_envs, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        results = train_and_evaluate(config, f"{folder}/run", quiet=True)
    returns = evaluate(results.config, results.agent_state, NUM_EPISODES)
    return {
        "steps": results.evaluations[-1]["steps"],
        "seconds": results.timings.total_s,
        "evaluate_s": results.timings.evaluate_s,
        "final_return": float(jax.numpy.mean(returns)),
    }


def check_defaults(run: Run) -> bool:
    """Train CartPole by the defaults for `--num-envs`. Whether the median seeds solve it."""
    headers = ["agent", "environments", "steps", "seconds, median (most)", "evaluations, at most"]
    print_headers(*headers, "final return, median (least to most)")
    succeeded = True
    for agent in [run.options.agent] if run.options.agent else _AGENTS:
        runs = []
        for seed in range(run.options.seeds or DEFAULTS_SEEDS):
            request = {"agent": agent, "num_envs": run.options.num_envs, "seed": seed}
            target = "benchmarks.learning:train_by_defaults"
            try:
                found = process.run(target, request, timeout_s=_TIMEOUT_S)
            except ChildError as error:
                raise SuiteError(
                    f"The training of {request} gave no result: {error.reason}."
                ) from error
            runs.append(request | found)
        finals = [each["final_return"] for each in runs]
        seconds = [each["seconds"] for each in runs]
        print_row(
            agent,
            f"{run.options.num_envs:,}",
            f"{runs[0]['steps']:,}",
            f"{statistics.median(seconds):.0f} ({max(seconds):.0f})",
            f"{max(each['evaluate_s'] / each['seconds'] for each in runs):.0%}",
            f"{statistics.median(finals):.0f} ({min(finals):.0f} to {max(finals):.0f})",
        )
        run.save(*runs)
        succeeded &= statistics.median(finals) >= DEFAULTS_RETURN
    return succeeded


class Gains:
    """An environment that keeps only positive rewards."""

    def __init__(self, env: Any):
        self._env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def step(self, *args: Any) -> Any:
        """Step the environment, and set negative rewards to 0."""
        import jax.numpy as jnp

        obs, state, reward, *rest = self._env.step(*args)
        return obs, state, jnp.maximum(reward, 0), *rest


def train_network(
    env: str, agent: str, network: str, seed: int, total_steps: int, fields: dict[str, Any]
) -> Row:
    """Train an agent with a network, and evaluate it at the end.

    `gains` is the mean sum of positive rewards in a greedy episode, which in snake is the food.
    `steps_per_s` leaves out compiling and evaluating.
    """
    from myriad import create_config, load_agent, train_and_evaluate
    from myriad.programs import episode_returns

    chosen = {"env": env, "agent": agent, "agent.network": network, "seed": seed}
    chosen |= {"total_steps": total_steps, "eval_rollouts": NUM_EPISODES}
    config = create_config(**chosen | fields)
    with tempfile.TemporaryDirectory() as folder:
        results = train_and_evaluate(config, f"{folder}/run", quiet=True)
        _, made, policy = load_agent(f"{folder}/run", trust=True)
    gains = episode_returns(
        Gains(made), policy, NUM_EPISODES, seed, max_steps=results.config.eval_max_steps
    )
    last = results.evaluations[-1]
    return {
        "env": env,
        "agent": agent,
        "network": network,
        "seed": seed,
        "steps": last["steps"],
        "gains": float(gains.mean()),
        "final_return": last["return"],
        "steps_per_s": results.timings.steps_per_s,
    }


def compare_networks(run: Run) -> bool:
    """Train an agent with each network, and print means over seeds with their 95% intervals."""
    options = run.options
    fields = {name: _fields_of(options.set, name, options.networks) for name in options.networks}
    headers = ["environment", "agent", "network", "seeds", "steps", "food or gains per episode"]
    print_headers(*headers, "return", "steps/s, median")
    env = options.env or NETWORKS_ENV
    agent = options.agent or "ppo"
    steps = options.steps or NETWORKS_STEPS
    for network in options.networks:
        runs: list[Row] = []
        for seed in range(options.seeds or DEFAULTS_SEEDS):
            runs.append(train_network(env, agent, network, seed, steps, fields[network]))
            run.save(runs[-1])  # now, since a training may take an hour
        speed = statistics.median(each["steps_per_s"] for each in runs)
        gains, returns = (_mean(runs, name) for name in ("gains", "final_return"))
        sizes = (len(runs), f"{runs[0]['steps']:,}")
        print_row(env, agent, network, *sizes, gains, returns, f"{speed:,.0f}")
    return True


def _mean(runs: Sequence[Row], name: str) -> str:
    """Write the mean of a column with its 95% interval. One value has none."""
    from myriad.timing import mean_interval

    values = [run[name] for run in runs]
    low, high = mean_interval(values)
    interval = f" ({low:.2f} to {high:.2f})" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{interval}"


def _fields_of(given: Sequence[str], network: str, networks: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a training that `--set` sets for a network."""
    fields: dict[str, Any] = {}
    for setting in given:
        name, _, value = setting.partition("=")
        whose, _, own = name.rpartition(":")
        if whose and whose not in networks:
            known = ", ".join(networks)
            raise SuiteError(f"--set must begin with one of {known}, but got {setting!r}.")
        if whose not in ("", network):
            continue
        try:
            fields[own] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError as error:
            raise SuiteError(f"--set must be NAME=VALUE in TOML, but got {setting!r}.") from error
    return fields


def _run(run: Run) -> bool:
    import myriad

    if run.options.num_envs is not None:
        return check_defaults(run)
    myriad.configure()
    return compare_networks(run) if run.options.networks else check_targets(run)


def _refuses(options: Any) -> str | None:
    for name in ("num_envs",) if options.networks else ("env", "steps", "set"):
        if getattr(options, name):
            word = "can't be given with" if options.networks else "needs"
            return f"--{name.replace('_', '-')} {word} --networks"
    return None


SCRIPT = Script(
    "learning",
    __doc__,
    _run,
    {
        "--agent": text("check only this agent's targets", choices=_AGENTS),
        "--seeds": whole("trainings per target (default: the target's own number)"),
        "--num-envs": whole("instead, train CartPole with the defaults for N environments"),
        "--networks": text(
            "instead, train an agent with each of these networks", nargs="+", metavar="NAME"
        ),
        "--env": text(f"with --networks: the environment (default: {NETWORKS_ENV})"),
        "--steps": whole(f"with --networks: the number of steps (default: {NETWORKS_STEPS:,})"),
        "--set": text(
            "with --networks: a field of the training in TOML, such as preset='\"optimized\"'; "
            "NETWORK:NAME=VALUE is for one network",
            [],
            action="append",
            metavar="NAME=VALUE",
        ),
    },
    writes="training",
    refuses=_refuses,
)
main = SCRIPT.main

if __name__ == "__main__":
    sys.exit(main())
