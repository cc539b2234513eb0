"""Small trainings, their ends and a small learner that tests share, and what is the same run."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from myriad import create_config, train_and_evaluate
from myriad.agents import Learner
from myriad.training.callbacks import Callback
from tests.bits import assert_same_bits
from tests.learners import SMALL, env_of

# One small layer: what a training does around a network does not depend on its size.
PPO: dict[str, Any] = {"rollout_steps": 8, "agent.num_minibatches": 2, "agent.num_epochs": 2}
# A schedule goes through files, flags, checkpoints and seeds as a number does.
PPO |= {"agent.hidden_sizes": (8,), "agent.clip_epsilon": "linear(0.3, 0)"}
# Four evaluations, which come every 8 updates of PPO.
SIZES: dict[str, Any] = {"num_envs": 4, "steps_per_env": 256, "eval_frequency": 64}
SIZES |= {"eval_rollouts": 4, "env.max_steps": 50}
SEEDS = (3, -5, 2**40)


def small_config(agent="ppo", **fields):
    return create_config("cartpole", agent, **(SIZES | (PPO if agent == "ppo" else {}) | fields))


def config_of(agent, env=None, **changes):
    """Return the configuration of a short training of any learner."""
    sizes: dict[str, Any] = {"num_envs": 4, "total_steps": 1024}
    options = {f"agent.{name}": value for name, value in SMALL[agent].items()}
    return create_config(env or env_of(agent), agent, **sizes | options | changes)


def trained(folder, agent="ppo", **changes):
    """Train so, and return the run's folder."""
    train_and_evaluate(config_of(agent, **changes), folder, quiet=True)
    return folder


def flags_of(fields):
    """Return the words that set these fields on the command line."""
    words = {
        name: [*value] if isinstance(value, tuple) else value for name, value in fields.items()
    }
    return [f"--{name.replace('_', '-')}={value}" for name, value in words.items()]


def assert_same_run(results, whole):
    assert_same_bits(results.agent_state, whole.agent_state)
    assert list(results.training) == list(whole.training)
    assert list(results.evaluations) == list(whole.evaluations)
    rows, expected = (each.run_folder / "metrics.jsonl" for each in (results, whole))
    assert rows.read_bytes() == expected.read_bytes()


class Ends(Callback):
    """Ends a run at one of its evaluations."""

    def __init__(self, end, evaluation):
        self.end = end
        self.evaluation = evaluation

    def on_evaluation(self, run):
        if run.evaluations == self.evaluation:
            self.end(run)


def fail(run):
    """End a run as an error does."""
    raise ZeroDivisionError


class First(Callback):
    """Keeps the agent's state from before the first update."""

    def on_start(self, run):
        self.state = jax.device_get(run.agent_state)
        self.steps = run.steps


@dataclasses.dataclass(frozen=True)
class Counting(Learner[Any]):
    """Counts its updates of two random steps. If it is greedy, it balances a pole."""

    env: Any
    default_num_envs = 4
    metric_names = ("loss",)
    steps_per_update = 2

    def init(self, key, num_envs):
        return {"updates": jnp.zeros((), jnp.float32)}

    def update(self, key, state, batch_state, envs):
        for each in jax.random.split(key):
            act_key, step_key = jax.random.split(each)
            batch_state, _ = envs.step(step_key, batch_state, self.actions(envs.keys(act_key)))
        return {"updates": state["updates"] + 1}, batch_state, {"loss": jnp.float32(2)}

    def act(self, state, key, obs, *, greedy):
        if greedy:
            return (obs[:, 2] + obs[:, 3] > 0).astype(jnp.int32)
        return self.actions(jax.random.split(key, obs.shape[0]))

    def actions(self, keys):
        return jax.vmap(self.env.action_space(self.env.default_params).sample)(keys)
