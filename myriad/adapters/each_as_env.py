"""Agents of one environment as environments of a batch. The adapter of JaxMARL uses it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from myriad.errors import InvalidArgumentError


def each_as_env(joint: Callable[[Any, Any], Any], num_agents: int) -> Callable[[Any, Any], Any]:
    """Return a function of one agent for a function of all agents of an environment.

    In a batch under `jax.vmap`, each `num_agents` rows in order are the agents of one environment.
    The other arguments, such as its key and its state, are those of its first row. Alone, without a
    batch, all agents do the same, and the results are those of the first.

    Args:
        joint: maps what agents bring, leaves `[num_agents, ...]`, and what they share to a pair of
            results: what differs by agent, leaves `[num_agents, ...]`, and what they share.
        num_agents: how many agents.
    """

    @jax.custom_batching.custom_vmap
    def alone(own: Any, shared: Any) -> Any:
        same = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_agents, *leaf.shape)), own)
        own, shared = joint(same, shared)
        return jax.tree.map(lambda leaf: leaf[0], own), shared

    @alone.def_vmap
    def in_batch(axis_size: int, is_batched: Any, own: Any, shared: Any) -> Any:
        if axis_size % num_agents:
            raise InvalidArgumentError(
                f"num_envs, eval_rollouts and the tiles of a Rollout must be multiples of "
                f"{num_agents}, since each agent of an environment counts as one, but one of them "
                f"is {axis_size}."
            )

        def filled(leaf: jax.Array, has_axis: bool) -> jax.Array:  # noqa: FBT001
            return leaf if has_axis else jnp.broadcast_to(leaf, (axis_size, *leaf.shape))

        own, shared = jax.tree.map(filled, (own, shared), tuple(is_batched))
        own = jax.tree.map(lambda leaf: leaf.reshape(-1, num_agents, *leaf.shape[1:]), own)
        own, shared = jax.vmap(joint)(own, jax.tree.map(lambda leaf: leaf[::num_agents], shared))
        own = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), own)
        shared = jax.tree.map(lambda leaf: jnp.repeat(leaf, num_agents, axis=0), shared)
        return (own, shared), jax.tree.map(lambda _: True, (own, shared))

    return alone
