"""Train agents, and compare their returns with targets, networks, players or other libraries.

    python benchmarks/learning.py                        every learning target, on fresh seeds
    python benchmarks/learning.py --agent ppo            the targets of one agent
    python benchmarks/learning.py --num-envs 100000      the defaults for so many environments
    python benchmarks/learning.py --networks mlp cnn     networks in snake, or in --env
    python benchmarks/learning.py --against scripted     the best controllers and scripted players
    python benchmarks/learning.py --against rejax        rejax's PPO, DQN and SAC
    python benchmarks/learning.py --against brax         brax's own PPO in ant

Evaluations are greedy. The exit code is 1 if a target is missed. throughput.py and training.py
measure speed.
"""

import statistics
import sys
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.harness import process
from benchmarks.harness.registry import SuiteError
from benchmarks.harness.results import Row
from benchmarks.harness.tables import print_headers, print_row
from benchmarks.harness.worker import ChildError
from benchmarks.opponents import brax_ppo, rejax_agents, scripted
from benchmarks.runner import Run, Script, agent, switch, text, whole

NUM_EPISODES = 128
DEFAULTS_ENV = "cartpole-control"
DEFAULTS_RETURN = 475.0
NETWORKS_ENV = "snake"
NETWORKS_STEPS = 2_000_000
_SEEDS = 3
_TIMEOUT_S = 3_600.0


# --- against targets


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
    targets = [target for target in TARGETS if run.options.agent in (None, target.agent)]
    if not targets:
        raise SuiteError(f"no learning target is about {run.options.agent}.")
    headers = ["environment", "agent", "environments", "target", "steps to it, median (most)"]
    print_headers(*headers, "in time", "final return", "held")
    succeeded = True
    for target in targets:
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


# --- variants of a training: numbers of environments, and networks


def check_defaults(run: Run) -> bool:
    """Train CartPole by the defaults for `--num-envs`. Whether the median seeds solve it."""
    agents = [run.options.agent] if run.options.agent else ["dqn", "ppo", "pqn"]
    sizes = {"env": DEFAULTS_ENV, "num_envs": run.options.num_envs}
    medians = compare_variants(run, [sizes | {"agent": agent} for agent in agents])
    return min(medians) >= DEFAULTS_RETURN


def compare_networks(run: Run) -> bool:
    """Train an agent with each network."""
    options = run.options
    (env,) = options.env or [NETWORKS_ENV]
    common = {"env": env, "agent": options.agent or "ppo"}
    common["total_steps"] = options.steps or NETWORKS_STEPS
    compare_variants(
        run,
        [
            common
            | {"agent.network": network}
            | fields_of(options.set or (), network, options.networks)
            for network in options.networks
        ],
    )
    return True


def compare_variants(run: Run, variants: Sequence[dict[str, Any]]) -> list[float]:
    """Train variants, given by their fields, and print them. Return their median final returns."""
    headers = ["environment", "agent", "variant", "seeds", "steps", "seconds, median (most)"]
    headers += ["evaluations, at most", "food or gains per episode"]
    print_headers(*headers, "final return, median", "mean", "steps/s, median")
    medians = []
    for fields in variants:
        runs: list[Row] = []
        for seed in range(run.options.seeds or _SEEDS):
            request = {"fields": fields | {"seed": seed}}
            try:
                found = process.run("benchmarks.learning:train", request, timeout_s=_TIMEOUT_S)
            except ChildError as error:
                raise SuiteError(
                    f"The training of {request} gave no result: {error.reason}."
                ) from error
            network = {"network": fields.get("agent.network", "")}
            runs.append({"env": fields["env"], "agent": fields["agent"]} | network | found)
            run.save(runs[-1])  # now, since a training may take an hour
        seconds = [each["seconds"] for each in runs]
        medians.append(statistics.median(each["final_return"] for each in runs))
        print_row(
            fields["env"],
            fields["agent"],
            fields.get("agent.network") or f"{fields['num_envs']:,} environments",
            len(runs),
            f"{runs[0]['steps']:,}",
            f"{statistics.median(seconds):.0f} ({max(seconds):.0f})",
            f"{max(each['evaluate_s'] / each['seconds'] for each in runs):.0%}",
            _mean(runs, "gains"),
            f"{medians[-1]:.0f}",
            _mean(runs, "final_return"),
            f"{statistics.median(each['steps_per_s'] for each in runs):,.0f}",
        )
    return medians


def train(fields: Mapping[str, Any]) -> Row:
    """Train as a user would, and evaluate the agent at the end. Runs in a new process.

    `gains` is the mean sum of positive rewards in a greedy episode, which in snake is the food.
    `steps_per_s` leaves out compiling and evaluating.
    """
    import myriad
    from myriad.programs import episode_returns

    myriad.configure()
    with tempfile.TemporaryDirectory() as folder:
        config = myriad.create_config(**fields)
        results = myriad.train_and_evaluate(config, f"{folder}/run", quiet=True)
        config, env, policy = myriad.load_agent(f"{folder}/run", trust=True)
    seed, max_steps = config.seed, config.eval_max_steps
    gains = episode_returns(Gains(env), policy, NUM_EPISODES, seed, max_steps=max_steps)
    returns = myriad.evaluate(results.config, results.agent_state, NUM_EPISODES)
    return {
        "num_envs": config.num_envs,
        "seed": seed,
        "steps": results.evaluations[-1]["steps"],
        "seconds": results.timings.total_s,
        "evaluate_s": results.timings.evaluate_s,
        "steps_per_s": results.timings.steps_per_s,
        "gains": float(gains.mean()),
        "final_return": float(returns.mean()),
    }


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


def _mean(runs: Sequence[Row], name: str) -> str:
    """Write the mean of a column with its 95% interval. One value has none."""
    from myriad.timing import mean_interval

    values = [run[name] for run in runs]
    low, high = mean_interval(values)
    interval = f" ({low:.2f} to {high:.2f})" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{interval}"


def fields_of(given: Sequence[str], network: str, networks: Sequence[str]) -> dict[str, Any]:
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


# --- the command line


@dataclass(frozen=True)
class Opponent:
    """What trained agents are compared with.

    Attributes:
        compare: trains, prints and saves, and says whether the exit code is 0.
        flags: the flags that it reads, besides --seeds.
    """

    compare: Callable[[Run], bool | None]
    flags: frozenset[str]


OPPONENTS = {
    "targets": Opponent(check_targets, frozenset({"agent"})),
    "defaults": Opponent(check_defaults, frozenset({"agent", "num_envs"})),
    "networks": Opponent(compare_networks, frozenset({"agent", "networks", "env", "steps", "set"})),
    "scripted": Opponent(scripted.compare, frozenset({"env", "steps", "preset"})),
    "rejax": Opponent(rejax_agents.compare, frozenset({"env", "agent", "steps", "seconds"})),
    "brax": Opponent(brax_ppo.compare, frozenset({"steps", "own"})),
}
_FLAGS = sorted(frozenset[str]().union(*(each.flags for each in OPPONENTS.values())))


def _against(options: Any) -> str:
    """Return the opponent that the flags choose."""
    implied = {"networks": options.networks, "defaults": options.num_envs}
    return options.against or next((name for name, value in implied.items() if value), "targets")


def _run(run: Run) -> bool | None:
    import myriad

    opponent = _against(run.options)
    if opponent != "defaults":
        myriad.configure()
    return OPPONENTS[opponent].compare(run)


def _refuses(options: Any) -> str | None:
    opponent = _against(options)
    for name in _FLAGS:
        if getattr(options, name) and name not in OPPONENTS[opponent].flags:
            takers = [each for each, takes in OPPONENTS.items() if name in takes.flags]
            return f"--{name.replace('_', '-')} goes with {' or '.join(takers)}, not {opponent}"
    if opponent == "networks" and len(options.env or ()) > 1:
        return "--networks takes one --env"
    return None


SCRIPT = Script(
    "learning",
    __doc__,
    _run,
    {
        "--against": text(
            "whom to compare with (default: targets)", choices=["targets", *[*OPPONENTS][3:]]
        ),
        "--agent": text("train only this agent", type=agent),
        "--seeds": whole("trainings of each agent (default: 2 to 10)"),
        "--num-envs": whole("instead, train CartPole with the defaults for N environments"),
        "--networks": text(
            "instead, train an agent with each of these networks", nargs="+", metavar="NAME"
        ),
        "--env": text("train only in this environment (repeatable)", action="append"),
        "--steps": whole("steps of each training (default: the opponent's)"),
        "--set": text(
            "with --networks: a field of the training in TOML, such as preset='\"optimized\"'; "
            "NETWORK:NAME=VALUE is for one network (repeatable)",
            action="append",
            metavar="NAME=VALUE",
        ),
        "--preset": text("against scripted: preset whose values the agents get"),
        "--seconds": whole("against rejax: train each library's own defaults for S seconds"),
        "--own": switch("against brax: each library's own scale of rewards, and brax's networks"),
    },
    writes="training",
    refuses=_refuses,
)
main = SCRIPT.main

if __name__ == "__main__":
    sys.exit(main())
