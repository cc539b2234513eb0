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
        obs: the flattened observations that actions were chosen under, `[T, N, D]`, in the
            environment's dtype.
        final_value: the value of what a step led to where it truncated the episode, before the
            reset; 0 elsewhere, `[T, N]`.
        choice: what the learner keeps of its choice of an action, leaves `[T, N, ...]`.
        reward: `[T, N]`.
        discounted_return: of the running episode, `[T, N]`.
        terminated: whether the process ended, `[T, N]`.
        truncated: whether time was up and the process had not ended, `[T, N]`.
    """

    obs: jax.Array
    final_value: jax.Array
    choice: Any
    reward: jax.Array
    discounted_return: jax.Array
    terminated: jax.Array
    truncated: jax.Array

    @property
    def done(self) -> jax.Array:
        """Whether the episode ended, `[T, N]`."""
        return self.terminated | self.truncated

    def next_value(self, value: jax.Array, last_value: jax.Array) -> jax.Array:
        """Return the value of what each step led to, `[T, N]`; meaningless where it terminated.

        Args:
            value: of `obs`, `[T, N]`.
            last_value: of the observation after the last step, `[N]`.
        """
        following = jnp.concatenate([value[1:], last_value[None]])
        return jnp.where(self.truncated, self.final_value, following)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Cut:
    """Of each environment the last step that truncated an episode and has no value yet.

    An observation of each environment, and not of each step: of a whole rollout, a copy of all
    observations would be left empty but for a few.

    Attributes:
        obs: what the step led to, flattened, `[N, D]`.
        step: which step it was, int32 `[N]`.
        waits: whether there is one, boolean `[N]`.
    """

    obs: jax.Array
    step: jax.Array
    waits: jax.Array


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
    value_of: Callable[[jax.Array], jax.Array],
    *,
    num_steps: int,
    gamma: float,
) -> tuple[BatchState, jax.Array, Trajectory]:
    """Take `num_steps` steps of all environments.

    Args:
        key: random numbers of these steps.
        batch_state: the environments.
        running_return: the discounted return of the running episodes, `[N]`.
        choose: chooses actions.
        step: advances the environments.
        value_of: maps flattened observations `[N, D]` to values, float32 `[N]`, for what a
            truncated episode led to.
        num_steps: `T`.
        gamma: the discount.

    Returns:
        the environments' next state, the discounted return of the running episodes, `[N]`, and the
        trajectory.
    """
    env_index = jnp.arange(running_return.shape[0])

    def value_cut(carry: tuple[jax.Array, _Cut]) -> tuple[jax.Array, _Cut]:
        final_value, cut = carry
        # Not an indexed update, beside which XLA may fuse no outputs.
        is_its_step = jnp.arange(num_steps, dtype=jnp.int32)[:, None] == cut.step
        values = jnp.where(cut.waits & is_its_step, value_of(cut.obs), 0)
        final_value = final_value + values
        return final_value, dataclasses.replace(cut, waits=jnp.zeros_like(cut.waits))

    def advance(
        carry: tuple[BatchState, jax.Array, jax.Array, _Cut], t: jax.Array
    ) -> tuple[tuple[BatchState, jax.Array, jax.Array, _Cut], Any]:
        batch_state, running_return, final_value, cut = carry
        obs: Any = batch_state.obs
        batch_state, choice, result = act_and_step(key, t, batch_state, choose, step)
        done = result.terminated | result.truncated
        discounted, running_return = discounted_return(running_return, result.reward, done, gamma)
        is_cut = result.truncated & ~result.terminated
        # An environment that is truncated a second time has its first value computed now. A loop of
        # one pass or none: many seeds under vmap then skip it where no seed needs it.
        final_value, cut = jax.lax.while_loop(
            lambda carry: jnp.any(carry[1].waits & is_cut), value_cut, (final_value, cut)
        )
        cut = _Cut(
            jnp.where(is_cut[:, None], flatten(result.final_obs), cut.obs),
            jnp.where(is_cut, t.astype(jnp.int32), cut.step),
            cut.waits | is_cut,
        )
        kept = (flatten(obs), choice, result.reward, discounted, result.terminated, is_cut)
        return (batch_state, running_return, final_value, cut), kept

    first_obs: Any = batch_state.obs
    cut = _Cut(
        jnp.zeros_like(flatten(first_obs)),
        jnp.zeros_like(env_index, jnp.int32),
        jnp.zeros_like(env_index, bool),
    )
    final_value = jnp.zeros((num_steps, env_index.size), jnp.float32)
    # Steps are counted from each update on: the update's number is in `key` already.
    steps = jnp.arange(num_steps, dtype=jnp.uint32)
    carry, kept = jax.lax.scan(advance, (batch_state, running_return, final_value, cut), steps)
    batch_state, running_return, final_value, cut = carry
    final_value, _ = jax.lax.while_loop(
        lambda carry: jnp.any(carry[1].waits), value_cut, (final_value, cut)
    )
    obs, choice, reward, discounted, terminated, truncated = kept
    trajectory = Trajectory(obs, final_value, choice, reward, discounted, terminated, truncated)
    return batch_state, running_return, trajectory
