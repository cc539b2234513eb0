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

import argparse
import math
import statistics
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.harness import package
from benchmarks.harness.command_line import Parser, count, guarded
from benchmarks.harness.files import write_rows
from benchmarks.harness.process import child_process
from benchmarks.harness.process.failures import ChildError
from benchmarks.harness.workloads import SuiteError

_SCRIPT = "benchmarks/learning.py"
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


@dataclass(frozen=True)
class Run:
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
    """Trains one target's agent, seed after seed, in programs that are compiled once."""

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
    """Count the runs that reached the target in time and those that held it to the end."""
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
    import jax

    from myriad import create_config, make_key, train_and_evaluate
    from myriad.training.evaluation import Evaluation

    chosen = {"agent.network": network, "eval_rollouts": NUM_EPISODES} | fields
    config = create_config(env, agent, total_steps=total_steps, seed=seed, **chosen)
    with tempfile.TemporaryDirectory() as folder:
        results = train_and_evaluate(config, f"{folder}/run", quiet=True)
    resolved = results.config.resolve()
    env_of_gains: Any = Gains(resolved.env)
    evaluation = Evaluation(
        env_of_gains,
        resolved.learner,
        NUM_EPISODES,
        max_steps=results.config.eval_max_steps,
    )
    gains, _ = jax.jit(evaluation.returns)(results.agent_state, make_key(seed))
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


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Bad input prints one sentence and gives exit code 2."""
    return guarded(_run, argv)


def _parser() -> Parser:
    parser = Parser(_SCRIPT, __doc__)
    parser.add_argument(
        "--agent",
        choices=sorted({p.agent for p in TARGETS}),
        help="check only this agent's targets",
    )
    parser.add_argument(
        "--seeds",
        type=count,
        metavar="N",
        help="trainings per target (default: the target's own number)",
    )
    parser.add_output("training")
    parser.add_argument(
        "--num-envs",
        type=count,
        metavar="N",
        help="instead, train CartPole with the defaults for N environments",
    )
    parser.add_argument(
        "--networks",
        nargs="+",
        metavar="NAME",
        help="instead, train an agent with each of these networks",
    )
    parser.add_argument("--env", help=f"with --networks: the environment (default: {NETWORKS_ENV})")
    parser.add_argument(
        "--steps",
        type=count,
        metavar="N",
        help=f"with --networks: the number of steps (default: {NETWORKS_STEPS:,})",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="with --networks: a field of the training in TOML, such as preset='\"optimized\"'; "
        "NETWORK:NAME=VALUE is for one network",
    )
    return parser


def _run(argv: list[str]) -> bool:
    import myriad

    parser = _parser()
    options = parser.parse_args(argv)
    others = ("num_envs",) if options.networks else ("env", "steps", "set")
    for name in others:
        if getattr(options, name):
            word = "can't be given with" if options.networks else "needs"
            parser.error(f"--{name.replace('_', '-')} {word} --networks")
    if options.networks:
        return _run_networks(options)
    if options.num_envs is not None:
        return _run_defaults(options)
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


def _run_networks(options: argparse.Namespace) -> bool:
    import myriad

    myriad.configure()
    print(
        "| environment | agent | network | seeds | steps | food or gains per episode | return | "
        "steps/s, median |"
    )
    print("|---|---|---|---:|---:|---:|---:|---:|")
    all_runs: list[NetworkRun] = []
    for network in options.networks:
        fields = _fields_of(options.set, network, options.networks)
        runs: list[NetworkRun] = []
        for seed in range(options.seeds or DEFAULTS_SEEDS):
            run = train_network(
                options.env or NETWORKS_ENV,
                options.agent or "ppo",
                network,
                seed,
                options.steps or NETWORKS_STEPS,
                fields,
            )
            runs.append(run)
            # A training may take an hour, so each one is saved as soon as it is done.
            if options.output is not None:
                write_rows(options.output, NetworkRun, [*all_runs, *runs])
        print(network_row(runs), flush=True)
        all_runs += runs
    return True


def _fields_of(given: Sequence[str], network: str, networks: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a training that `--set` sets for a network."""
    fields: dict[str, Any] = {}
    for text in given:
        name, _, value = text.partition("=")
        whose, _, own = name.rpartition(":")
        if whose and whose not in networks:
            known = ", ".join(networks)
            raise SuiteError(f"--set must begin with one of {known}, but got {text!r}.")
        if whose not in ("", network):
            continue
        if own in _OWN_FLAGS:
            raise SuiteError(
                f"--set can't set {own}, use {_OWN_FLAGS[own]} for that; got {text!r}."
            )
        try:
            fields[own] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError as error:
            raise SuiteError(f"--set must be NAME=VALUE in TOML, but got {text!r}.") from error
    return fields


def _run_defaults(options: argparse.Namespace) -> bool:
    agents = [options.agent] if options.agent else sorted({p.agent for p in TARGETS})
    print(
        "| agent | environments | steps | seconds, median (most) | evaluations, at most | "
        "final return, median (least to most) |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    all_runs: list[DefaultRun] = []
    succeeded = True
    for agent in agents:
        asked = {"agent": agent, "num_envs": options.num_envs}
        runs = [
            DefaultRun(**asked, seed=seed, **_in_a_child(asked | {"seed": seed}))
            for seed in range(options.seeds or DEFAULTS_SEEDS)
        ]
        print(defaults_row(runs), flush=True)
        all_runs += runs
        if options.output is not None:
            write_rows(options.output, DefaultRun, all_runs)
        succeeded &= statistics.median(run.final_return for run in runs) >= DEFAULTS_RETURN
    return succeeded


def _in_a_child(request: dict[str, Any]) -> dict[str, Any]:
    target = "benchmarks.learning:train_by_defaults"
    try:
        return child_process.run(target, request, timeout_s=_TIMEOUT_S)
    except ChildError as error:
        raise SuiteError(f"The training of {request} gave no result: {error.reason}.") from error


if __name__ == "__main__":
    sys.exit(main())
