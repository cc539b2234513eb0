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
from myriad.agents.minibatches import is_narrow
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
class _Pending:
    """The last truncated step of each environment whose value is not computed yet.

    It holds one observation of each environment. Few steps truncate an episode, so one of each step
    would be mostly empty.

    Attributes:
        obs: what the step led to, flattened, `[N, D]`.
        step: which step it was, int32 `[N]`.
        waits: whether there is one, boolean `[N]`.
    """

    obs: jax.Array
    step: jax.Array
    waits: jax.Array

    @classmethod
    def none(cls, obs: jax.Array) -> "_Pending":
        """Return that of environments none of which was truncated; `obs` is like theirs."""
        num_envs = obs.shape[0]
        return cls(jnp.zeros_like(obs), jnp.zeros(num_envs, jnp.int32), jnp.zeros(num_envs, bool))

    def with_step(self, t: jax.Array, is_cut: jax.Array, obs: jax.Array) -> "_Pending":
        """Put step `t` of the environments that it truncated in the place of what they had."""
        return _Pending(
            jnp.where(is_cut[:, None], obs, self.obs),
            jnp.where(is_cut, t.astype(jnp.int32), self.step),
            self.waits | is_cut,
        )


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


def collect_by_shard(
    learner: Any,
    key: jax.Array,
    batch_state: BatchState,
    running_return: jax.Array,
    choose_in: Callable[[Any], Choose],
    step: EnvStep,
    value_of: Callable[[jax.Array], jax.Array],
) -> tuple[BatchState, jax.Array, Trajectory]:
    """Do what `collect` does in each shard, by a key of its own.

    `learner` has `shards`, `rollout_steps` and `gamma`. `choose_in` maps a shard, as `Shards.each`
    hands it out, to its `choose`. The other arguments are those of `collect`, of all shards.
    """

    def of_shard(shard: Any, batch_state: BatchState, running_return: jax.Array) -> Any:
        return collect(
            learner.shards.key(key, shard),
            batch_state,
            running_return,
            choose_in(shard),
            step,
            value_of,
            num_steps=learner.rollout_steps,
            gamma=learner.gamma,
        )

    return learner.shards.each(of_shard, batch_state, running_return)


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
        value_of: maps what truncated steps led to, flattened, `[N, D]`, to values, float32 `[N]`.
        num_steps: `T`.
        gamma: the discount.

    Returns:
        the environments' next state, the discounted return of the running episodes, `[N]`, and the
        trajectory.
    """
    first_obs: Any = batch_state.obs
    # Wide observations of every step would take too much memory; narrow ones cost less than loops.
    pending = None if is_narrow(flatten(first_obs)) else _Pending.none(flatten(first_obs))

    def advance(carry: Any, t: jax.Array) -> tuple[Any, Any]:
        batch_state, running_return, final_value, pending = carry
        obs: Any = batch_state.obs
        batch_state, choice, result = act_and_step(key, t, batch_state, choose, step)
        done = result.terminated | result.truncated
        discounted, running_return = discounted_return(running_return, result.reward, done, gamma)
        is_cut = result.truncated & ~result.terminated
        final_obs = flatten(result.final_obs)
        if pending is not None:
            final_value, pending = _valued(final_value, pending, is_cut, value_of)
            pending = pending.with_step(t, is_cut, final_obs)
            final_obs = None
        kept = (flatten(obs), choice, result.reward, discounted, result.terminated, is_cut)
        return (batch_state, running_return, final_value, pending), (kept, final_obs)

    final_value = jnp.zeros((num_steps, running_return.shape[0]), jnp.float32)
    # Steps are counted from each update on: the update's number is in `key` already.
    steps = jnp.arange(num_steps, dtype=jnp.uint32)
    carry, (kept, final_obs) = jax.lax.scan(
        advance, (batch_state, running_return, final_value, pending), steps
    )
    batch_state, running_return, final_value, pending = carry
    obs, choice, reward, discounted, terminated, truncated = kept
    if pending is None:
        final_value = _values_of_cuts(final_obs, truncated, value_of)
    else:
        final_value, _ = _valued(final_value, pending, pending.waits, value_of)
    trajectory = Trajectory(obs, final_value, choice, reward, discounted, terminated, truncated)
    return batch_state, running_return, trajectory


def _valued(
    final_value: jax.Array,
    pending: _Pending,
    is_due: jax.Array,
    value_of: Callable[[jax.Array], jax.Array],
) -> tuple[jax.Array, _Pending]:
    """Compute the values of all pending steps if any of them `is_due`, `[N]`, and empty them.

    An environment that is truncated a second time needs its place, so its first value is due.
    """

    def value(carry: tuple[jax.Array, _Pending]) -> tuple[jax.Array, _Pending]:
        final_value, pending = carry
        final_value = _at_step(final_value, pending.step, pending.waits, value_of(pending.obs))
        return final_value, dataclasses.replace(pending, waits=jnp.zeros_like(pending.waits))

    # A loop of one pass or none: many seeds under vmap then skip it where none needs it.
    return jax.lax.while_loop(
        lambda carry: jnp.any(carry[1].waits & is_due), value, (final_value, pending)
    )


def _values_of_cuts(
    final_obs: jax.Array, truncated: jax.Array, value_of: Callable[[jax.Array], jax.Array]
) -> jax.Array:
    """Return the values of `final_obs`, `[T, N, D]`, where `truncated`, `[T, N]`, and else 0.

    Each round values one step of every environment. Few steps truncate, so there are few rounds.
    """
    env_index = jnp.arange(truncated.shape[1])

    def value_one(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        final_value, left = carry
        step = jnp.argmax(left, axis=0).astype(jnp.int32)
        values = value_of(final_obs[step, env_index])
        return (
            _at_step(final_value, step, jnp.any(left, axis=0), values),
            left & ~_is_step(step, left.shape[0]),
        )

    final_value, _ = jax.lax.while_loop(
        lambda carry: jnp.any(carry[1]),
        value_one,
        (jnp.zeros(truncated.shape, jnp.float32), truncated),
    )
    return final_value


def _at_step(
    final_value: jax.Array, step: jax.Array, counts: jax.Array, values: jax.Array
) -> jax.Array:
    """Add `values` at each environment's `step` where it `counts`, all `[N]`, to `[T, N]`."""
    # Not an indexed update, beside which XLA may fuse no outputs.
    return final_value + jnp.where(counts & _is_step(step, final_value.shape[0]), values, 0)


def _is_step(step: jax.Array, num_steps: int) -> jax.Array:
    return jnp.arange(num_steps, dtype=jnp.int32)[:, None] == step
