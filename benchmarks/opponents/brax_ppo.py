"""brax's own PPO in `ant`, by steps and by seconds: `learning.py --against brax`.

It needs `pip install -e '.[brax]'`. Both have the same hyperparameters and the backend `spring`.
With `--own`, Myriad scales rewards as by default, and brax multiplies them by 10 and has its own
networks, as in its documentation. They take turns, each training in a new process with an empty
cache. The same program plays greedy episodes of 1,000 steps with the policies of both. Seconds
count from the process's start, compiling included and evaluations excluded.
"""

import functools
import math
import statistics
import tempfile
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from benchmarks.harness import process
from benchmarks.harness.process import Reply
from benchmarks.harness.tables import print_headers, print_row
from benchmarks.runner import Run

NUM_EPISODES = 32
NUM_POINTS = 8
NUM_ENVS = 256
ROLLOUT_STEPS = 16
NUM_EPOCHS = 4
NUM_MINIBATCHES = 16
HIDDEN_SIZES = (64, 64)
# Ours and brax's, with the values that brax documents for ant. Its batches are larger there, for 50
# million steps.
SHARED = {
    ("learning_rate", "learning_rate"): 3e-4,
    ("gamma", "discounting"): 0.97,
    ("gae_lambda", "gae_lambda"): 0.95,
    ("clip_epsilon", "clipping_epsilon"): 0.3,
    ("entropy_coef", "entropy_cost"): 1e-2,
    ("normalize_observations", "normalize_observations"): True,
}
# What brax does without a setting: it halves both the squared error of values and its weight, and
# its first deviation is softplus(0).
OF_BRAX = {
    "value_coef": 0.25,
    "anneal_updates": None,
    "optimizer_epsilon": 1e-8,
    "max_grad_norm": math.inf,
    "squash_actions": True,
    "first_log_std": math.log(math.log(2)),
    "activation": "silu",
}
_NUM_STEPS = 1_000_000
_SEEDS = 2
_TIMEOUT_S = 7_200.0


class Curve:
    """The points of a training: steps, seconds, processor seconds and mean return."""

    def __init__(self, started: float):
        self.points: list[list[float]] = []
        self._started = started
        self._skipped = [0.0, 0.0]

    def add(self, steps: int, evaluate: Callable[[], Any]) -> None:
        """Add the point after so many steps, and leave out the seconds of its evaluation."""
        before = self._now()
        seconds = [now - skipped for now, skipped in zip(before, self._skipped, strict=True)]
        self.points.append([steps, *seconds, float(evaluate())])
        self._skipped = [now - each for now, each in zip(self._now(), seconds, strict=True)]

    def _now(self) -> list[float]:
        return [time.time() - self._started, time.process_time()]


def config_of(num_steps: int, *, own: bool) -> Any:
    """Return our configuration, with as many steps as brax takes: whole intervals of updates."""
    from myriad import create_config

    interval = NUM_POINTS * NUM_ENVS * ROLLOUT_STEPS
    agent = {ours: value for (ours, _), value in SHARED.items()} | OF_BRAX
    agent |= {"normalize_rewards": own}
    agent |= {"num_epochs": NUM_EPOCHS, "num_minibatches": NUM_MINIBATCHES}
    agent |= {"rollout_steps": ROLLOUT_STEPS, "hidden_sizes": HIDDEN_SIZES}
    fields = {f"agent.{name}": value for name, value in agent.items()}
    fields |= {"num_envs": NUM_ENVS, "total_steps": -(-num_steps // interval) * interval}
    fields |= {"env.backend": "spring", "eval_rollouts": NUM_EPISODES}
    # brax also draws each environment's first state once.
    fields |= {"env.reset_pool": NUM_ENVS}
    return create_config("brax:ant", "ppo", **fields)


def ours(started: float, num_steps: int, seed: int, *, own: bool) -> Reply:
    """Train with Myriad. Runs in a child."""
    import myriad
    from myriad.programs import TrainingProgram

    myriad.configure()
    curve = Curve(started)
    training = TrainingProgram(config_of(num_steps, own=own))
    training.start(seed)
    num_updates = training.num_updates // NUM_POINTS

    def evaluate() -> Any:
        return training.evaluate()[0].mean()

    for point in range(1, NUM_POINTS + 1):
        training.run_updates(num_updates)
        steps = point * num_updates * training.steps_per_update
        curve.add(steps, evaluate)
    return {"points": curve.points}


def theirs(started: float, num_steps: int, seed: int, *, own: bool) -> Reply:
    """Train with brax. Runs in a child."""
    import jax
    import jax.numpy as jnp
    from brax import envs  # type: ignore[import-not-found]
    from brax.training.agents.ppo import networks, train  # type: ignore[import-not-found]

    from myriad.programs import episode_returns

    curve = Curve(started)
    config = config_of(num_steps, own=own)

    @functools.partial(jax.jit, static_argnums=0)
    def mean_return(make_policy: Any, params: Any) -> Any:
        choose = make_policy(params, deterministic=True)
        policy = SimpleNamespace(uses_observation=True, act=lambda key, obs: choose(obs, key)[0])
        return episode_returns(config.environment, policy, NUM_EPISODES).mean()

    def evaluate(steps: int, make_policy: Any, params: Any) -> None:
        if steps:
            curve.add(steps, functools.partial(mean_return, make_policy, params))

    def device_put_replicated(tree: Any, devices: Any) -> Any:
        # As brax's next states are placed, or its second epoch would compile again.
        copies = jax.pmap(lambda _: tree, axis_name="i", devices=devices)
        return copies(jnp.arange(len(devices)))

    small_networks = functools.partial(
        networks.make_ppo_networks,
        policy_hidden_layer_sizes=HIDDEN_SIZES,
        value_hidden_layer_sizes=HIDDEN_SIZES,
    )
    # brax 0.14.2 calls it, and JAX 0.10 has removed it.
    jax.device_put_replicated = device_put_replicated
    train.train(
        envs.get_environment("ant", backend="spring"),
        num_steps,
        episode_length=1000,
        num_envs=NUM_ENVS,
        unroll_length=ROLLOUT_STEPS,
        batch_size=NUM_ENVS // NUM_MINIBATCHES,
        num_minibatches=NUM_MINIBATCHES,
        num_updates_per_batch=NUM_EPOCHS,
        reward_scaling=10.0 if own else 1.0,
        network_factory=networks.make_ppo_networks if own else small_networks,
        seed=seed,
        num_evals=NUM_POINTS + 1,
        run_evals=False,
        policy_params_fn=evaluate,
        **{theirs: value for (_, theirs), value in SHARED.items()},
    )
    return {"points": curve.points}


TRAINERS = {"myriad": ours, "brax": theirs}


def compare(run: Run) -> None:
    """Train with both, seed after seed, and print a line per point of their curves."""
    options = run.options
    curves: dict[str, list[Any]] = {name: [] for name in TRAINERS}
    for seed in range(options.seeds or _SEEDS):
        for name, trainer in TRAINERS.items():
            target = f"benchmarks.opponents.brax_ppo:{trainer.__name__}"
            request = {"num_steps": options.steps or _NUM_STEPS, "seed": seed, "own": options.own}
            with tempfile.TemporaryDirectory() as folder:
                request["started"] = time.time()
                reply = process.run(
                    target, request, timeout_s=_TIMEOUT_S, MYRIAD_COMPILATION_CACHE=folder
                )
            curves[name].append(reply["points"])
            columns = ("steps", "seconds", "processor_s", "return")
            named = {"library": name, "seed": seed}
            points = [dict(zip(columns, each, strict=True)) for each in reply["points"]]
            run.save(*(named | point for point in points))
    columns = ("return, mean (least to most)", "seconds", "processor seconds")
    print_headers("steps", *(f"{name}: {column}" for name in TRAINERS for column in columns))
    for points in zip(*(zip(*curve, strict=True) for curve in curves.values()), strict=True):
        cells = []
        for of_library in points:
            steps, *seconds, returns = zip(*of_library, strict=True)
            cells = cells or [f"{steps[0]:,.0f}"]
            span = f"{min(returns):.0f} to {max(returns):.0f}"
            cells += [f"{statistics.mean(returns):.0f} ({span})"]
            cells += [f"{statistics.median(each):.0f}" for each in seconds]
        print_row(*cells)
