"""Collecting experience: how every learner steps the batch of environments and what it keeps.

PPO and PQN are `RolloutLearner`s, which collect whole trajectories. DQN and SAC take single steps
and write them into their buffers. In docstrings `T` is the number of steps, `N` the number of
environments and `D` the size of a flattened observation.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from myriad.agents.agent import Count, Environments, Fraction, Positive, Repetitions, State
from myriad.agents.gradients import WHOLE_TRAINING, GradientLearner, ManyUpdates
from myriad.agents.minibatches import is_narrow, require_whole_parts
from myriad.agents.networks.mlp import flatten
from myriad.agents.normalization import discounted_return
from myriad.envs.vector import BatchState, Transition
from myriad.errors import InvalidArgumentError
from myriad.ranges import INT32

# Folded into a key for each purpose, so that no two draws share a stream.
_ACT, _STEP = range(2)

# Maps keys `[N]` and observations `[N, *O]` to actions `[N, *A]` and to what the learner keeps.
Choose = Callable[[jax.Array, jax.Array], tuple[jax.Array, Any]]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Trajectory:
    """Consecutive steps of every environment.

    Attributes:
        obs: the flattened observations from which actions were chosen, `[T, N, D]`, in the
            environment's dtype.
        final_value: the value of the last observation, before the reset, where a step truncated the
            episode; 0 elsewhere, `[T, N]`.
        choice: what the learner keeps of its choice of an action, leaves `[T, N, ...]`.
        reward: the rewards, `[T, N]`.
        discounted_return: the discounted return of the running episode, `[T, N]`.
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
        """Return the value after each step, `[T, N]`. It is meaningless after a termination.

        Args:
            value: the value of `obs`, `[T, N]`.
            last_value: the value of the observation after the last step, `[N]`.
        """
        following = jnp.concatenate([value[1:], last_value[None]])
        return jnp.where(self.truncated, self.final_value, following)


class _Pending(NamedTuple):
    """The last truncated step of each environment whose value is not computed yet.

    It holds one observation of each environment. Few steps truncate an episode, so an array over
    all steps would be mostly empty.

    Attributes:
        obs: the observation after the step, before the reset, flattened, `[N, D]`.
        step: the number of the step, int32 `[N]`.
        waits: whether there is such a step, boolean `[N]`.
    """

    obs: jax.Array
    step: jax.Array
    waits: jax.Array


def act_and_step(
    key: jax.Array, t: jax.Array, batch_state: BatchState, choose: Choose, envs: Environments
) -> tuple[BatchState, Any, Transition]:
    """Take step `t` of all environments. Return their state, what `choose` keeps, and the step."""
    act_key, step_key = (
        jax.random.fold_in(jax.random.fold_in(key, t), purpose) for purpose in (_ACT, _STEP)
    )
    obs: Any = batch_state.obs
    action, choice = choose(envs.keys(act_key), obs)
    batch_state, transition = envs.step(step_key, batch_state, action)
    return batch_state, choice, transition


@dataclasses.dataclass(frozen=True)
class RolloutLearner(GradientLearner[State]):
    """A learner that collects a rollout and then passes over it in minibatches.

    Attributes:
        rollout_steps: steps of every environment between updates, `T`.
        num_epochs: passes over the batch.
        num_minibatches: gradient steps in each pass. It must divide the batch.
        learning_rate: learning rate of the optimiser.
        anneal_updates: updates over which the learning rate falls linearly to 0; "training" for the
            whole training, None for a constant rate.
        gamma: the discount.
        normalize_rewards: scale rewards by the running deviation of the discounted return.
    """

    rollout_steps: Count = 64
    num_epochs: Repetitions = 8
    num_minibatches: Count = 8
    learning_rate: Positive = 5e-4
    anneal_updates: ManyUpdates = WHOLE_TRAINING
    gamma: Fraction = 0.99
    normalize_rewards: bool = True
    default_num_envs: ClassVar[int] = 16
    many_steps_per_env: ClassVar[int] = 768
    per_device: ClassVar[frozenset[str] | None] = frozenset({"running_return"})

    @property
    def steps_per_update(self) -> int:
        return self.rollout_steps

    @property
    def num_envs_multiple(self) -> int:
        """Enough environments for whole minibatches that divide into whole parts."""
        return self.num_minibatches * self.gradient_accumulation

    def require_num_envs(self, num_envs: int) -> None:
        """Raise InvalidArgumentError unless the batch divides into minibatches and their parts."""
        rows = num_envs * self.rollout_steps
        if rows > INT32:
            rule = f"must be at most {INT32:,}"
            raise InvalidArgumentError("num_envs x rollout_steps", rule, rows)
        if rows % self.num_minibatches:
            rule = f"must divide the batch of num_envs x rollout_steps = {rows}"
            raise InvalidArgumentError("num_minibatches", rule, self.num_minibatches)
        require_whole_parts(rows // self.num_minibatches, self.gradient_accumulation)

    def rollout(
        self,
        key: jax.Array,
        state: Any,
        batch_state: BatchState,
        envs: Environments,
        choose: Choose,
        value_of: Callable[[jax.Array], jax.Array],
    ) -> tuple[Any, BatchState, Trajectory]:
        """Take `rollout_steps` steps of all environments.

        Args:
            key: the key of these steps.
            state: the learner's state, of which `running_return` changes.
            batch_state: the state of the environments.
            envs: the environments.
            choose: chooses actions.
            value_of: maps flattened observations after truncated steps, `[N, D]`, to float32 `[N]`.

        Returns:
            the next state, the environments' next state, and the trajectory.
        """
        first_obs = flatten(batch_state.obs)
        num_envs = first_obs.shape[0]
        # Wide observations of every step would take too much memory, so their values are computed
        # in the loop. Narrow ones are kept, which costs less.
        pending = None
        if not is_narrow(first_obs):
            no_step, none_waits = jnp.zeros(num_envs, jnp.int32), jnp.zeros(num_envs, bool)
            pending = _Pending(jnp.zeros_like(first_obs), no_step, none_waits)

        def advance(carry: Any, t: jax.Array) -> tuple[Any, Any]:
            batch_state, running_return, final_value, pending = carry
            obs: Any = batch_state.obs
            batch_state, choice, result = act_and_step(key, t, batch_state, choose, envs)
            done = result.terminated | result.truncated
            reward = result.reward
            discounted, running_return = discounted_return(running_return, reward, done, self.gamma)
            is_cut = result.truncated & ~result.terminated
            final_obs = flatten(result.final_obs)
            if pending is not None:
                final_value, pending = _valued(final_value, pending, is_cut, value_of)
                pending = _Pending(
                    jnp.where(is_cut[:, None], final_obs, pending.obs),
                    jnp.where(is_cut, t.astype(jnp.int32), pending.step),
                    pending.waits | is_cut,
                )
                final_obs = None
            kept = (flatten(obs), choice, reward, discounted, result.terminated, is_cut)
            return (batch_state, running_return, final_value, pending), (kept, final_obs)

        final_value = jnp.zeros((self.rollout_steps, num_envs), jnp.float32)
        # Steps count from 0 in each update, whose number is already folded into `key`.
        steps = jnp.arange(self.rollout_steps, dtype=jnp.uint32)
        carry, (kept, final_obs) = jax.lax.scan(
            advance, (batch_state, state.running_return, final_value, pending), steps
        )
        batch_state, running_return, final_value, pending = carry
        obs, choice, reward, discounted, terminated, truncated = kept
        if pending is None:
            final_value = _values_of_cuts(final_obs, truncated, value_of)
        else:
            final_value, _ = _valued(final_value, pending, pending.waits, value_of)
        trajectory = Trajectory(obs, final_value, choice, reward, discounted, terminated, truncated)
        return dataclasses.replace(state, running_return=running_return), batch_state, trajectory


def _valued(
    final_value: jax.Array,
    pending: _Pending,
    is_due: jax.Array,
    value_of: Callable[[jax.Array], jax.Array],
) -> tuple[jax.Array, _Pending]:
    """Compute and clear the values of all pending steps, if any of them `is_due`, `[N]`.

    A value is due when its environment is truncated a second time, since it has only one place.
    """

    def value(carry: tuple[jax.Array, _Pending]) -> tuple[jax.Array, _Pending]:
        final_value, pending = carry
        final_value = _at_step(final_value, pending.step, pending.waits, value_of(pending.obs))
        return final_value, pending._replace(waits=jnp.zeros_like(pending.waits))

    # A loop of at most one pass and not a cond, so that many seeds under vmap skip it if none needs
    # it. Under vmap, a cond would compute both branches.
    return jax.lax.while_loop(
        lambda carry: jnp.any(carry[1].waits & is_due), value, (final_value, pending)
    )


def _values_of_cuts(
    final_obs: jax.Array, truncated: jax.Array, value_of: Callable[[jax.Array], jax.Array]
) -> jax.Array:
    """Return the values of `final_obs`, `[T, N, D]`, where `truncated`, `[T, N]`, and 0 elsewhere.

    A round computes one step of every environment. Few steps truncate, so there are few rounds.
    """
    env_index = jnp.arange(truncated.shape[1])

    def value_one(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        final_value, left = carry
        # The first that is left. A minimum, and no argmax, which lets no outputs be fused.
        steps = jnp.arange(len(left), dtype=jnp.int32)[:, None]
        step = jnp.min(jnp.where(left, steps, len(left) - 1), axis=0)
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
    # A select and not an indexed update, since a program with those can't have fused outputs (see
    # `myriad.engine.fusion`).
    return final_value + jnp.where(
        counts[None] & _is_step(step, final_value.shape[0]), values[None], 0
    )


def _is_step(step: jax.Array, num_steps: int) -> jax.Array:
    return jnp.arange(num_steps, dtype=jnp.int32)[:, None] == step[None]
