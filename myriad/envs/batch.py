"""What a batch of environments carries from step to step, and what a step of it gives.

`VectorEnv` makes these values. Agents read them and don't depend on how it steps.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

# The most returns in one sum. At 2**24, a float32 sum of ones stands still.
MOST_SUMMED = 1 << 22


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class BatchState:
    """The state that each environment carries from step to step. `N` includes padding.

    Attributes:
        env_state: the environment's state, leaves `[N, ...]`.
        obs: the last observation, `[N, *O]`, or None if the agent uses none.
        own_params: the parameters in which environments differ, leaves `[N, ...]`; empty if they
            share all.
        episode_length: steps of the running episode, int32 `[N]`.
        episode_return: rewards of the running episode, float32 `[N]`.
        num_episodes: number of episodes that ended, int32 `[N]`.
        return_sum: the sum of the returns of ended episodes, float32 `[N]`.
    """

    env_state: Any
    obs: jax.Array | None
    own_params: tuple[jax.Array, ...]
    episode_length: jax.Array
    episode_return: jax.Array
    num_episodes: jax.Array
    return_sum: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Transition:
    """One step, as gymnax returns it. In a trajectory each leaf is `[T, N, ...]`.

    `obs` is the observation after the step, from which the next action is chosen. If an episode
    ended, it is the first of the new one. `final_obs` is the observation from before any reset,
    from which a value bootstraps. It is None unless you asked for it.
    """

    obs: jax.Array
    action: jax.Array
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    final_obs: jax.Array | None = None


def select_reset(done: jax.Array, new: Any, old: Any) -> Any:
    """Take `new` where `done`, `[N]`, and `old` elsewhere. Leaves are `[N, ...]` of any rank."""

    def choose(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(done.reshape(done.shape + (1,) * (new.ndim - 1)), new, old)

    return jax.tree.map(choose, new, old)
