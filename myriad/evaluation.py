"""Evaluation: the mean return of whole episodes of a policy, in one compiled program."""

from typing import Any

import jax
import jax.numpy as jnp

from myriad.agents.agent import Learner
from myriad.envs import Environment
from myriad.envs.lanes import LaneEnvironment, Lanes


class Evaluation:
    """`num_episodes` episodes side by side, each in an environment of its own, until every one has ended."""

    def __init__(self, env: Environment, learner: Learner, num_episodes: int, *, max_steps: int, greedy: bool = True):
        self._learner, self._greedy, self._max_steps = learner, greedy, max_steps
        self._envs = LaneEnvironment(env, num_episodes)

    def returns(self, agent: Any, key: jax.Array) -> jax.Array:
        """Return each environment's first episode's return, float32 `[num_episodes]`, nan where `max_steps` cut it."""
        lane = jnp.arange(self._envs.num_envs, dtype=jnp.uint32)
        keys_of = jax.vmap(jax.random.fold_in, in_axes=(None, 0))

        def running(carry: tuple[jax.Array, Lanes, jax.Array]) -> jax.Array:
            step, _, returns = carry
            return (step < self._max_steps) & jnp.any(jnp.isnan(returns))

        def body(carry: tuple[jax.Array, Lanes, jax.Array]) -> tuple[jax.Array, Lanes, jax.Array]:
            step, lanes, returns = carry
            act_key, step_key = (jax.random.fold_in(jax.random.fold_in(key, step), purpose) for purpose in range(2))
            obs: Any = lanes.obs
            action = self._learner.act(agent, act_key, obs, greedy=self._greedy)
            step_keys = keys_of(step_key, lane)
            lanes, _ = self._envs.step(lanes, action, step_keys, step_keys)
            first_ended = jnp.isnan(returns) & (lanes.num_episodes > 0)
            return step + 1, lanes, jnp.where(first_ended, lanes.return_sum, returns)

        lanes = self._envs.reset(keys_of(jax.random.fold_in(key, jnp.uint32(0xFFFFFFFF)), lane))
        start = jnp.zeros((), jnp.uint32), lanes, jnp.full(lane.shape, jnp.nan, jnp.float32)
        return jax.lax.while_loop(running, body, start)[2]
