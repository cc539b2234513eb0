"""Check that agents reach their learning targets, with shipped defaults and fresh seeds.

    python benchmarks/learning.py                         every target, as a table
    python benchmarks/learning.py --agent ppo             the targets of one agent
    python benchmarks/learning.py --num-envs 100000       the defaults for so many environments
    python benchmarks/learning.py --networks mlp cnn      networks in snake, or in --env

Every evaluation is greedy, over 128 episodes. The exit code is 1 if a target is missed.
throughput.py and training.py measure speed.
"""

if __name__ == "__main__" and not __package__:
    from harness.installed import require_setup  # Python may not find `benchmarks` yet

    require_setup()

import math
import statistics
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.harness.process import child
from benchmarks.harness.process.failures import ChildError
from benchmarks.harness.workloads import SuiteError
from benchmarks.runner import Run, Script, text, whole

NUM_EPISODES = 128
DEFAULTS_ENV = "cartpole-control"
DEFAULTS_RETURN = 475.0
DEFAULTS_SEEDS = 3
NETWORKS_ENV = "snake"
NETWORKS_STEPS = 2_000_000
# Fields that have their own flag, which goes with --networks.
_OWN_FLAGS = {
    "env": "--env",
    "agent": "--agent",
    "agent.network": "--networks",
    "seed": "--seeds",
    "total_steps": "--steps",
}
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


@dataclass(frozen=True)
class TargetRun:
    """One training. `first` counts the steps of all environments until the target was reached."""

    env: str
    agent: str
    num_envs: int
    seed: int
    first: int | None
    total: int
    final_return: float


@dataclass(frozen=True)
class DefaultRun:
    """One training of CartPole with defaults for everything but the number of environments.

    `seconds` is the time of the whole run with compiling, and `evaluate_s` that of its evaluations.
    """

    agent: str
    num_envs: int
    seed: int
    steps: int
    seconds: float
    evaluate_s: float
    final_return: float


@dataclass(frozen=True)
class NetworkRun:
    """One training of an agent with one network.

    `gains` is the mean sum of positive rewards in a greedy episode, which in snake is the food.
    `steps_per_s` leaves out compiling and evaluating.
    """

    env: str
    agent: str
    network: str
    seed: int
    steps: int
    gains: float
    final_return: float
    steps_per_s: float


class Learning:
    """Trains one target's agent, seed after seed, in a program that is compiled once."""

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

    def train(self, seed: int) -> TargetRun:
        """Train one seed to the end."""
        from myriad import make_key

        scores = self._train(make_key(seed))["eval_return"].mean(axis=1)
        reached = self._steps[scores >= self.target.target_return]
        return TargetRun(
            self.target.env,
            self.target.agent,
            self.num_envs,
            seed,
            int(reached[0]) if len(reached) else None,
            int(self._steps[-1]),
            float(scores[-1]),
        )


def kept(target: LearningTarget, runs: Sequence[TargetRun]) -> tuple[int, int]:
    """Count the runs that reached the target in time and those that held it to the end."""
    in_time = sum(run.first is not None and run.first <= target.budget for run in runs)
    return in_time, sum(run.final_return >= target.final for run in runs)


def row(target: LearningTarget, runs: Sequence[TargetRun]) -> str:
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


def defaults_row(runs: Sequence[DefaultRun]) -> str:
    """Return a line of the table of defaults."""
    finals = [run.final_return for run in runs]
    seconds = [run.seconds for run in runs]
    share = max(run.evaluate_s / run.seconds for run in runs)
    return (
        f"| {runs[0].agent} | {runs[0].num_envs:,} | {runs[0].steps:,} | "
        f"{statistics.median(seconds):.0f} ({max(seconds):.0f}) | {share:.0%} | "
        f"{statistics.median(finals):.0f} ({min(finals):.0f} to {max(finals):.0f}) |"
    )


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
) -> NetworkRun:
    """Train an agent with a network, and evaluate it at the end."""
    from myriad import create_config, load_agent, train_and_evaluate
    from myriad.programs import episode_returns

    chosen = {"agent.network": network, "eval_rollouts": NUM_EPISODES} | fields
    config = create_config(env, agent, total_steps=total_steps, seed=seed, **chosen)
    with tempfile.TemporaryDirectory() as folder:
        results = train_and_evaluate(config, f"{folder}/run", quiet=True)
        _, made, policy = load_agent(f"{folder}/run", trust=True)
    gains = episode_returns(
        Gains(made), policy, NUM_EPISODES, seed, max_steps=results.config.eval_max_steps
    )
    last = results.evaluations[-1]
    return NetworkRun(
        env,
        agent,
        network,
        seed,
        last["steps"],
        float(gains.mean()),
        last["return"],
        results.timings.steps_per_s,
    )


def network_row(runs: Sequence[NetworkRun]) -> str:
    """Return a line of the table of networks, with means over seeds and their 95% intervals."""
    first = runs[0]
    speed = statistics.median(run.steps_per_s for run in runs)
    gains = mean_interval([run.gains for run in runs])
    returns = mean_interval([run.final_return for run in runs])
    return (
        f"| {first.env} | {first.agent} | {first.network} | {len(runs)} | {first.steps:,} | "
        f"{gains} | {returns} | {speed:,.0f} |"
    )


def mean_interval(values: Sequence[float]) -> str:
    """Return a mean with its 95% interval from Student's distribution.

    One value has no interval.
    """
    from scipy import stats

    mean = statistics.fmean(values)
    if len(values) == 1:
        return f"{mean:.2f}"
    error = statistics.stdev(values) / math.sqrt(len(values))
    half = float(stats.t.ppf(0.975, len(values) - 1)) * error
    return f"{mean:.2f} ({mean - half:.2f} to {mean + half:.2f})"


def _run(run: Run) -> bool:
    import myriad

    if run.options.num_envs is None:
        myriad.configure()
    if run.options.networks:
        return _run_networks(run)
    return _run_targets(run) if run.options.num_envs is None else _run_defaults(run)


def _refuses(options: Any) -> str | None:
    for name in ("num_envs",) if options.networks else ("env", "steps", "set"):
        if getattr(options, name):
            word = "can't be given with" if options.networks else "needs"
            return f"--{name.replace('_', '-')} {word} --networks"
    return None


def _run_targets(run: Run) -> bool:
    print(
        "| environment | agent | environments | target | steps to it, median (most) | in time | "
        "final return | held |"
    )
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    succeeded = True
    for target in (p for p in TARGETS if run.options.agent in (None, p.agent)):
        learning = Learning(target)
        runs = [learning.train(seed) for seed in range(run.options.seeds or target.seeds)]
        print(row(target, runs), flush=True)
        run.save(*runs)
        in_time, held = kept(target, runs)
        succeeded &= in_time * target.seeds >= target.enough * len(runs)
        succeeded &= held * target.seeds >= target.enough_final * len(runs)
    return succeeded


def _run_networks(run: Run) -> bool:
    options = run.options
    networks = options.networks
    fields = {network: _fields_of(options.set, network, networks) for network in networks}
    print(
        "| environment | agent | network | seeds | steps | food or gains per episode | return | "
        "steps/s, median |"
    )
    print("|---|---|---|---:|---:|---:|---:|---:|")
    for network in networks:
        runs: list[NetworkRun] = []
        for seed in range(options.seeds or DEFAULTS_SEEDS):
            trained = train_network(
                options.env or NETWORKS_ENV,
                options.agent or "ppo",
                network,
                seed,
                options.steps or NETWORKS_STEPS,
                fields[network],
            )
            runs.append(trained)
            run.save(trained)  # now, since a training may take an hour
        print(network_row(runs), flush=True)
    return True


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
        if own in _OWN_FLAGS:
            raise SuiteError(
                f"--set can't set {own}, use {_OWN_FLAGS[own]} for that; got {setting!r}."
            )
        try:
            fields[own] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError as error:
            raise SuiteError(f"--set must be NAME=VALUE in TOML, but got {setting!r}.") from error
    return fields


def _run_defaults(run: Run) -> bool:
    print(
        "| agent | environments | steps | seconds, median (most) | evaluations, at most | "
        "final return, median (least to most) |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    succeeded = True
    for agent in [run.options.agent] if run.options.agent else _AGENTS:
        runs = []
        for seed in range(run.options.seeds or DEFAULTS_SEEDS):
            request = {"agent": agent, "num_envs": run.options.num_envs, "seed": seed}
            target = "benchmarks.learning:train_by_defaults"
            try:
                found = child.run(target, request, timeout_s=_TIMEOUT_S)
            except ChildError as error:
                raise SuiteError(
                    f"The training of {request} gave no result: {error.reason}."
                ) from error
            runs.append(DefaultRun(**request, **found))
        print(defaults_row(runs), flush=True)
        run.save(*runs)
        succeeded &= statistics.median(run.final_return for run in runs) >= DEFAULTS_RETURN
    return succeeded


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
