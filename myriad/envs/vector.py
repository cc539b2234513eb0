"""Many copies of one environment that step together, each with auto-reset."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from myriad.engine.vector_math import vectorized_method
from myriad.envs.environment import Environment, require_32_bits
from myriad.errors import InvalidArgumentError

# Each column of an observation is a selection of its own. More would take long to compile.
_MOST_COLUMNS = 32
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


class Parameters:
    """An environment's parameters. Environments share a leaf, or each has its own.

    Args:
        env: the environment.
        num_envs: number of environments, without padding.
        params: a pytree like `env.default_params`. A leaf with one more axis, `[num_envs, ...]`,
            differs by environment.

    Raises:
        InvalidArgumentError: `params` has another type than the environment's, or a leaf has
            another shape.
    """

    def __init__(self, env: Environment, num_envs: int, params: Any = None):
        defaults, self._structure = jax.tree.flatten(env.default_params)
        params = env.default_params if params is None else params
        paths, structure = jax.tree_util.tree_flatten_with_path(params)
        if structure != self._structure:
            expected = type(env.default_params).__name__
            raise InvalidArgumentError(
                "params", f"must be a {expected} for {env}, but got {type(params).__name__}."
            )
        self._leaves = [leaf for _, leaf in paths]
        self._axes = [
            _batch_axis(path, leaf, default, num_envs)
            for (path, leaf), default in zip(paths, defaults, strict=True)
        ]
        # Shared parameters are not in the state. They are constants of the program, so that XLA
        # computes their reciprocals and products once, at compile time.
        self.own = tuple(
            jnp.asarray(leaf)
            for leaf, axis in zip(self._leaves, self._axes, strict=True)
            if axis == 0
        )
        self.in_axes = jax.tree.unflatten(self._structure, self._axes) if self.own else None

    def of(self, own: tuple[jax.Array, ...]) -> Any:
        """Return the parameters of environments with their own parameters `own` filled in."""
        rest = iter(own)
        leaves = [
            next(rest) if axis == 0 else leaf
            for leaf, axis in zip(self._leaves, self._axes, strict=True)
        ]
        return jax.tree.unflatten(self._structure, leaves)


class VectorEnv:
    """`num_envs` copies of `env` with auto-reset. `keep_obs` is False if no agent uses `obs`."""

    def __init__(
        self, env: Environment, num_envs: int, params: Any = None, *, keep_obs: bool = True
    ):
        require_32_bits()
        self.env = env
        self.num_envs = num_envs
        self.keep_obs = keep_obs
        self.params = Parameters(env, num_envs, params)

    @vectorized_method
    def reset(self, keys: jax.Array, own_params: tuple[jax.Array, ...] = ()) -> BatchState:
        """Reset every environment with its key, `[N]`."""
        reset = jax.vmap(self.env.reset, in_axes=(0, self.params.in_axes))
        obs, env_state = reset(keys, self.params.of(own_params))
        num_envs = keys.shape[0]
        # Give each leaf a strong dtype, since after a weakly typed one the chunk compiles twice.
        return BatchState(
            env_state,
            obs if self.keep_obs else None,
            own_params,
            episode_length=jnp.zeros(num_envs, jnp.int32),
            episode_return=jnp.zeros(num_envs, jnp.float32),
            num_episodes=jnp.zeros(num_envs, jnp.int32),
            return_sum=jnp.zeros(num_envs, jnp.float32),
        )

    @vectorized_method
    def step(
        self,
        batch_state: BatchState,
        action: jax.Array,
        step_keys: jax.Array,
        reset_keys: jax.Array,
    ) -> tuple[BatchState, Transition]:
        """Advance by one step with auto-reset. `action` is `[N, *A]`, and keys are `[N]`."""
        params = self.params.of(batch_state.own_params)
        in_axes = self.params.in_axes
        step: Any = jax.vmap(
            lambda *args: tuple(self.env.step(*args)), (0, 0, 0, in_axes), (-1, 0, 0, 0, 0, 0)
        )
        final_obs, env_state, reward, terminated, truncated, _ = step(
            step_keys, batch_state.env_state, action, params
        )
        done = terminated | truncated
        # Reset every environment and select, since a branch under vmap would compute both as well.
        reset: Any = jax.vmap(lambda *args: tuple(self.env.reset(*args)), (0, in_axes), (-1, 0))
        reset_obs, reset_state = reset(reset_keys, params)
        obs = jax.tree.map(partial(_select_obs, done), reset_obs, final_obs)
        final_obs = jax.tree.map(_envs_first, final_obs)
        episode_return = batch_state.episode_return + reward
        next_state = BatchState(
            env_state=select_reset(done, reset_state, env_state),
            obs=obs if self.keep_obs else None,
            own_params=batch_state.own_params,
            episode_length=jnp.where(done, 0, batch_state.episode_length + 1),
            episode_return=jnp.where(done, 0, episode_return),
            num_episodes=batch_state.num_episodes + done,
            return_sum=batch_state.return_sum + jnp.where(done, episode_return, 0),
        )
        return next_state, Transition(obs, action, reward, terminated, truncated, final_obs)


def _select_obs(done: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
    """Do as `select_reset` with leaves `[..., N]`, and return `[N, ...]`."""
    if new.ndim == 2 and 0 < len(new) <= _MOST_COLUMNS:
        # Columns often share the selections of the state, and then XLA only has to interleave them.
        # Recorded steps of CartPole got 1.3 times as fast.
        return jnp.stack([*map(partial(jnp.where, done), new, old)], axis=-1)
    return select_reset(done, _envs_first(new), _envs_first(old))


def _envs_first(leaf: jax.Array) -> jax.Array:
    return jnp.moveaxis(leaf, -1, 0)


def _batch_axis(path: Any, leaf: Any, default: Any, num_envs: int) -> int | None:
    shape = np.shape(leaf)
    shared = np.shape(default)
    if shape == shared:
        return None
    if shape == (num_envs, *shared):
        return 0
    name = jax.tree_util.keystr(path, simple=True, separator=".")
    raise InvalidArgumentError(
        f"params.{name} must be of shape {shared} or {(num_envs, *shared)}, but is of {shape}."
    )


def select_reset(done: jax.Array, new: Any, old: Any) -> Any:
    """Take `new` where `done`, `[N]`, and `old` elsewhere. Leaves are `[N, ...]` of any rank."""

    def choose(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(done.reshape(done.shape + (1,) * (new.ndim - 1)), new, old)

    return jax.tree.map(choose, new, old)
