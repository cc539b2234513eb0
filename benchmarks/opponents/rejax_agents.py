"""rejax, trained in the same environments from the same seeds: `learning.py --against rejax`.

Without `--seconds` both libraries train with the same hyperparameters for the same number of steps.
With it each library trains with its own defaults for that many seconds, not counting compilation.
rejax runs in its own Python with gymnax 0.0.9. The libraries take turns, seed by seed. All final
policies are evaluated greedily over the same 128 episodes, in the gymnax that is installed here.
"""

import dataclasses
import json
import statistics
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.harness import peers
from benchmarks.harness.process import Conversation
from benchmarks.harness.registry import SuiteError, known
from benchmarks.harness.results import Row, spread
from benchmarks.harness.tables import between, print_headers, print_row
from benchmarks.runner import Run

PEER = "rejax"
NUM_EPISODES = 128
_SEEDS = 5
NUM_STEPS = {"ppo": 1_000_000, "dqn": 1_000_000, "sac": 12_000}
_TIMEOUT_S = 3_600.0
# A training of so many steps is timed, to find how many steps fit into the given seconds: Myriad's
# and rejax's. rejax's DQN copies its whole buffer at each step, which takes about a thousand times
# as long as a step of PPO.
_TRIED_STEPS = {"ppo": (50_000, 131_072), "dqn": (50_000, 4_096), "sac": (10_000, 10_000)}
CONTINUOUS = ("Pendulum-v1", "MountainCarContinuous-v0")
CLASSIC = ("CartPole-v1", "Acrobot-v1", "Pendulum-v1", "MountainCar-v0", "MountainCarContinuous-v0")
PICTURES = (
    *("Catch-bsuite", "Breakout-MinAtar", "Asterix-MinAtar", "SpaceInvaders-MinAtar"),
    "Freeway-MinAtar",
)
# gymnax's environments by name, and one of brax.
ENVS = {
    "ppo": (*CLASSIC, *PICTURES),
    "dqn": tuple(name for name in (*CLASSIC, *PICTURES) if name not in CONTINUOUS),
    "sac": ("Pendulum-v1", "brax:inverted_pendulum"),
}
ALL_ENVS = tuple(dict.fromkeys(name for names in ENVS.values() for name in names))
# rejax's policies are judged in a different game than they learned, because gymnax 0.0.9 has one
# more column of aliens at the start.
OTHER_DYNAMICS = ("SpaceInvaders-MinAtar",)
# Hyperparameters by Myriad's names. They are rejax's defaults, with half of PPO's epochs. rejax
# copies DQN's whole buffer at each step of the environments. So DQN has a smaller buffer here,
# steps more environments at once, and learns correspondingly more in between.
HYPERPARAMETERS: dict[str, dict[str, Any]] = {
    "ppo": {
        "num_envs": 64,
        "rollout_steps": 64,
        "num_epochs": 4,
        "num_minibatches": 16,
        "learning_rate": 3e-4,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "clip_epsilon": 0.2,
        "entropy_coef": 0.01,
        "value_coef": 0.5,
        "normalize_observations": True,
        "normalize_rewards": True,
    },
    "dqn": {
        "num_envs": 256,
        "gradient_steps": 32,
        "batch_size": 64,
        "buffer_size": 16_384,
        "learning_starts": 2_048,
        "learning_rate": 3e-4,
        "gamma": 0.99,
        "double": True,
        "polyak": 0.95,
        "target_period": 1,
        "epsilon_start": 1.0,
        "epsilon_end": 0.05,
        "normalize_observations": True,
        "normalize_rewards": True,
    },
    # The buffer holds the whole training. Both would need more time with a larger one, rejax most.
    "sac": {
        "num_envs": 1,
        "gradient_steps": 1,
        "batch_size": 256,
        "buffer_size": 16_384,
        "learning_starts": 1_000,
        "learning_rate": 3e-4,
        "gamma": 0.99,
        "polyak": 0.995,
    },
}
EXPLORED = 0.1  # the share of the steps during which DQN's epsilon falls
# What rejax does without a setting, or with its defaults.
_OF_BOTH = {
    "optimizer_epsilon": 1e-8,
    "max_grad_norm": float("inf"),
    "anneal_updates": None,
    "activation": "silu",
    "hidden_sizes": (64, 64),
}
OF_REJAX: dict[str, dict[str, Any]] = {
    # rejax also halves the squared error
    "ppo": _OF_BOTH | {"value_clip": 0.2, "value_coef": 0.25},
    # gymnax 0.0.9 ends an episode at its time limit
    "dqn": _OF_BOTH | {"n_step": 1, "bootstrap_truncated": False},
    "sac": {"hidden_sizes": (64, 64), "activation": "relu"},
}


@dataclasses.dataclass(frozen=True)
class Question:
    """What to train. `seconds` is None if hyperparameters and steps are equal."""

    env: str
    agent: str
    num_steps: int
    seconds: float | None
    seeds: Sequence[int]

    @property
    def our_env(self) -> str:
        """Our name of the environment."""
        return self.env if ":" in self.env else f"gymnax:{self.env}"

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """The shared hyperparameters by our names, without those for other kinds of observation."""
        values = dict(HYPERPARAMETERS[self.agent])
        if self.env in PICTURES:
            values |= {"normalize_observations": False, "normalize_rewards": False}
        return values


def config_of(question: Question, num_steps: int) -> Any:
    """Return our configuration: the shared hyperparameters, or all defaults."""
    from myriad import create_config

    chosen: dict[str, Any] = {}
    if question.seconds is None:
        values = question.hyperparameters | OF_REJAX[question.agent]
        own = {"num_envs", "rollout_steps", "batch_size", "buffer_size"}
        chosen = {name if name in own else f"agent.{name}": values[name] for name in values}
        if question.agent == "dqn":
            chosen["agent.exploration_steps"] = int(EXPLORED * num_steps)
    return create_config(question.our_env, question.agent, total_steps=num_steps, **chosen)


def ours(question: Question) -> Iterator[Row]:
    """Train with Myriad, seed after seed, in programs that are compiled once.

    A row's `final_return` is the mean over `NUM_EPISODES` greedy episodes of its final policy.
    """
    from myriad import evaluate
    from myriad.programs import TrainingProgram

    def timed(training: Any, seed: int) -> float:
        start = time.perf_counter()
        training.start(seed)
        training.run_updates(training.num_updates)
        return time.perf_counter() - start

    num_steps = question.num_steps
    if question.seconds is not None:
        tried, _ = _TRIED_STEPS[question.agent]
        seconds = timed(TrainingProgram(config_of(question, tried)), 0)
        num_steps = round(tried * question.seconds / seconds)
    training = TrainingProgram(config_of(question, num_steps))
    for seed in question.seeds:
        seconds = timed(training, seed)
        returns = evaluate(training.config, training.state.agent, NUM_EPISODES)
        yield {
            "library": "myriad",
            "seed": seed,
            "steps": training.num_updates * training.steps_per_update,
            "seconds": seconds,
            "final_return": float(returns.mean()),
        }


def theirs(question: Question) -> Iterator[Row]:
    """Train with rejax in its own process, then judge its policies here."""
    import numpy as np

    hyperparameters: dict[str, Any] = {}
    if question.seconds is None:
        hyperparameters = question.hyperparameters
        if question.agent == "dqn":
            hyperparameters["exploration_fraction"] = EXPLORED
    request = {
        "env": question.env.replace(":", "/"),
        "agent": question.agent,
        "hyperparameters": hyperparameters,
        "num_steps": question.num_steps,
        "tried_steps": _TRIED_STEPS[question.agent][1],
        "seconds": question.seconds,
    }
    judge = _judge(question, normalized=bool(hyperparameters.get("normalize_observations")))
    command, path = peers.command(PEER, "benchmarks.libraries.rejax_policies", json.dumps(request))
    with Conversation(command, path) as rejax:
        steps = rejax.reply(_TIMEOUT_S)["num_steps"]
        for seed in question.seeds:
            reply = rejax.ask({"seed": seed}, _TIMEOUT_S)
            policy = {name: np.array(value, np.float32) for name, value in reply["policy"].items()}
            yield {
                "library": PEER,
                "seed": seed,
                "steps": steps,
                "seconds": reply["seconds"],
                "final_return": float(judge(policy)),
            }


class RejaxPolicy:
    """Acts greedily like rejax's networks: the best action, or the mean.

    `layers` are kernels and biases by number, and the moments of the observations. SAC's hidden
    layers and its output differ from those of the other agents.
    """

    uses_observation = True

    def __init__(self, layers: dict[str, Any], space: Any, agent: str, *, normalized: bool):
        self._layers = layers
        self._space = space
        self._is_sac = agent == "sac"
        self._normalized = normalized

    def act(self, key: Any, obs: Any) -> Any:
        """Return the action for one observation."""
        import jax
        import jax.numpy as jnp

        layers = self._layers
        hidden = obs.reshape(-1).astype(jnp.float32)
        if self._normalized:
            mean, var = (layers[name].reshape(-1) for name in ("mean", "var"))
            hidden = (hidden - mean) / jnp.sqrt(var + 1e-8)
        last = sum(name.startswith("kernel") for name in layers) - 1
        activation = jax.nn.relu if self._is_sac else jax.nn.silu
        for i in range(last):
            hidden = activation(hidden @ layers[f"kernel{i}"] + layers[f"bias{i}"])
        output = hidden @ layers[f"kernel{last}"] + layers[f"bias{last}"]
        if hasattr(self._space, "n"):
            return jnp.argmax(output)
        low, high = self._space.low, self._space.high
        if self._is_sac:
            output = low + (jnp.tanh(output) + 1) / 2 * (high - low)
        return jnp.clip(output, low, high).reshape(self._space.shape)


def _judge(question: Question, *, normalized: bool) -> Any:
    """Return a function from rejax's layers to the mean return, over `evaluate`'s episodes."""
    import jax

    from myriad import make_env
    from myriad.programs import episode_returns

    made = make_env(question.our_env)
    space = made.action_space(made.default_params)

    def mean_return(layers: dict[str, Any]) -> Any:
        policy = RejaxPolicy(layers, space, question.agent, normalized=normalized)
        return episode_returns(made, policy, NUM_EPISODES).mean()

    return jax.jit(mean_return)


def cells(env: str, agent: str, runs: Sequence[Row]) -> list[str]:
    """Return a line of the table: both libraries, their difference and the ratio of their rates."""
    from scipy import stats

    by_library = [[run for run in runs if run["library"] == name] for name in ("myriad", PEER)]
    returns = [[run["final_return"] for run in each] for each in by_library]
    found = [f"{env} *" if env in OTHER_DYNAMICS else env, agent]
    for each, values in zip(by_library, returns, strict=True):
        seconds = statistics.median(run["seconds"] for run in each)
        found.append(f"{statistics.mean(values):z.1f} ({min(values):z.1f} to {max(values):z.1f})")
        found += [f"{each[0]['steps']:,}", f"{seconds:.0f}"]
    difference = f"{statistics.mean(returns[0]) - statistics.mean(returns[1]):+.1f}"
    if len({*returns[0]}) > 1 or len({*returns[1]}) > 1:
        # This is Welch's interval, because the libraries' seeds scatter differently. All seeds of
        # one library may even agree.
        with warnings.catch_warnings(action="ignore"):
            low, high = stats.ttest_ind(*returns, equal_var=False).confidence_interval(0.95)
        difference += f" ({low:+.1f} to {high:+.1f})"
    ours, theirs = ([run["steps"] / run["seconds"] for run in each] for each in by_library)
    ratios = spread([a / b for a, b in zip(ours, theirs, strict=True)], "ratio")
    return [*found, difference, between(ratios, "ratio")]


def compare(run: Run) -> None:
    """Train with both libraries, seed after seed, and print a line per environment and agent."""
    options = run.options
    envs = [known(env, ALL_ENVS, "environment") for env in options.env or ALL_ENVS]
    agents = [*HYPERPARAMETERS]
    if options.agent:
        agents = [known(options.agent, agents, "agent beside rejax")]
    if not peers.is_installed(PEER):
        raise SuiteError(f"{PEER} is not installed; {peers.how_to_install(PEER)}.")
    both = (f"{name}: return, mean (least to most)" for name in ("myriad", PEER))
    each = (name for library in both for name in (library, "steps", "seconds"))
    print_headers("environment", "agent", *each, "difference (95%)", f"steps/s, times {PEER}'s")
    for env, agent in ((env, agent) for env in envs for agent in agents if env in ENVS[agent]):
        num_steps = options.steps or NUM_STEPS[agent]
        seeds = range(options.seeds or _SEEDS)
        question = Question(env, agent, num_steps, options.seconds, seeds)
        where = {"env": env, "agent": agent}
        pairs = zip(ours(question), theirs(question), strict=True)
        found = [where | each for pair in pairs for each in pair]
        print_row(*cells(env, agent, found))
        run.save(*found)
