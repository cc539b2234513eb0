"""Collecting experience: how every learner steps the batch of environments and what it keeps.

PPO and PQN collect whole trajectories. DQN takes single steps and writes them into its buffer. In
docstrings `T` is the steps, `N` the environments and `D` the size of a flattened observation.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from myriad.agents.agent import EnvStep
from myriad.agents.networks import flatten
from myriad.agents.normalization import discounted_return
from myriad.envs.vector import BatchState, Transition

# One key per purpose: no two draws share a stream.
_ACT, _STEP = range(2)

# Chooses under the key and observations `[N, *O]`: an action `[N, *A]`, and what to keep of it.
Choose = Callable[[jax.Array, jax.Array], tuple[jax.Array, Any]]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Trajectory:
    """Consecutive steps of every environment.

    Attributes:
        obs: the flattened observations that actions were chosen under, `[T, N, D]`.
        final_obs: what each step led to, before any reset, `[T, N, D]`.
        choice: what the learner keeps of its choice of an action, leaves `[T, N, ...]`.
        reward: `[T, N]`.
        discounted_return: of the running episode, `[T, N]`.
        terminated: whether the process ended, `[T, N]`.
        truncated: whether time was up, `[T, N]`.
    """

    obs: jax.Array
    final_obs: jax.Array
    choice: Any
    reward: jax.Array
    discounted_return: jax.Array
    terminated: jax.Array
    truncated: jax.Array

    @property
    def done(self) -> jax.Array:
        """Whether the episode ended, `[T, N]`."""
        return self.terminated | self.truncated


def act_and_step(
    key: jax.Array, t: jax.Array, batch_state: BatchState, choose: Choose, step: EnvStep
) -> tuple[BatchState, Any, Transition]:
    """Take step `t` of all environments; return their state, what `choose` keeps, and the step."""
    act_key, step_key = (
        jax.random.fold_in(jax.random.fold_in(key, t), purpose) for purpose in (_ACT, _STEP)
    )
    obs: Any = batch_state.obs
    action, choice = choose(act_key, obs)
    batch_state, transition = step(step_key, batch_state, action)
    return batch_state, choice, transition


def collect(
    key: jax.Array,
    batch_state: BatchState,
    running_return: jax.Array,
    choose: Choose,
    step: EnvStep,
    *,
    num_steps: int,
    gamma: float,
) -> tuple[BatchState, jax.Array, Trajectory]:
    """Take `num_steps` steps of all environments.

    Returns:
        the environments' next state, the discounted return of the running episodes, `[N]`, and the
        trajectory.
    """

    def advance(
        carry: tuple[BatchState, jax.Array], t: jax.Array
    ) -> tuple[tuple[BatchState, jax.Array], Trajectory]:
        batch_state, running_return = carry
        obs: Any = batch_state.obs
        batch_state, choice, result = act_and_step(key, t, batch_state, choose, step)
        done = result.terminated | result.truncated
        discounted, running_return = discounted_return(running_return, result.reward, done, gamma)
        kept = Trajectory(
            obs=flatten(obs),
            final_obs=flatten(result.final_obs),
            choice=choice,
            reward=result.reward,
            discounted_return=discounted,
            terminated=result.terminated,
            truncated=result.truncated,
        )
        return (batch_state, running_return), kept

    # Steps are counted from each update on: the update's number is in `key` already.
    steps = jnp.arange(num_steps, dtype=jnp.uint32)
    carry, trajectory = jax.lax.scan(advance, (batch_state, running_return), steps)
    return *carry, trajectory
