"""Many copies of one environment that step together, each with auto-reset."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from myriad.engine.devices import named_leaves
from myriad.engine.random import make_key
from myriad.engine.vector_math import vectorized_method
from myriad.envs.environment import Environment
from myriad.errors import InvalidArgumentError, UnknownNameError, shown

__all__ = ["float_parameters"]

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


def float_parameters(env: Environment) -> tuple[str, ...]:
    """Return the parameters whose values are arguments of a compiled program, by name.

    They are the scalars whose default is a float. A parameter that changes a space stays a constant
    of the program, and so does a field with `metadata={"constant": True}`. All of an environment
    that doesn't trace with them as arguments do.
    """
    try:
        return _float_parameters(env)
    except TypeError:  # Its parameters may be arrays, which don't hash.
        return _float_parameters.__wrapped__(env)


@lru_cache(maxsize=256)
def _float_parameters(env: Any) -> tuple[str, ...]:
    names = scalar_floats(env)

    def episode(key: jax.Array, action: jax.Array, values: Sequence[jax.Array]) -> None:
        params = with_values(env.default_params, names, values)
        obs, state = env.reset(key, params)
        next_obs, next_state, reward, *ends, _ = env.step(key, state, action, params)
        # An argument may lead to another dtype than Python's float, in bfloat16 for example.
        seen = jax.tree.leaves(env.observation_space(env.default_params))
        if (
            _kinds((obs, state)) != _kinds((next_obs, next_state))
            or [leaf.dtype for leaf in jax.tree.leaves(obs)] != [space.dtype for space in seen]
            or _kinds((reward, *ends)) != _kinds((np.float32(0), np.bool_(0), np.bool_(0)))
        ):
            raise TypeError

    if not names:
        return ()
    space = env.action_space(env.default_params)
    action = jax.ShapeDtypeStruct(space.shape, space.dtype)
    return names if _traces(episode, make_key(0), action, [_FLOAT] * len(names)) else ()


def require_changeable(env: Any, name: str) -> None:
    """Raise unless a parameter is an argument of compiled programs.

    Raises:
        UnknownNameError: there is no such parameter.
        InvalidArgumentError: it is a constant.
    """
    names = float_parameters(env)
    if name not in named_leaves(env.default_params):
        raise UnknownNameError("parameter", name, names)
    if name in getattr(env, "randomised", ()):
        raise InvalidArgumentError(name, "can't be set, since each reset draws it.")
    if name not in names and getattr(env, "reset_pool", 0):
        raise InvalidArgumentError(name, "can't be set, since the reset_pool was drawn with it.")
    if name not in names:
        others = f"; {', '.join(names)} can" if names else ""
        raise InvalidArgumentError(name, f"can't change without compiling{others}.")


def as_float32(value: float) -> float:
    """Return the number with the fewest digits that is the same float32."""
    return float(str(np.float32(value)))


def scalar_floats(env: Any) -> tuple[str, ...]:
    """Return the floats that may be arguments if the environment traces with them, by name."""
    params = env.default_params
    declared = dataclasses.fields(params) if dataclasses.is_dataclass(params) else ()
    defaults = {
        each.name: None if each.metadata.get("constant") else each.default
        for each in declared
        if each.default is not dataclasses.MISSING or each.metadata.get("constant")
    }

    def is_float(leaf: Any) -> bool:
        if isinstance(leaf, np.generic | np.ndarray | jax.Array):
            return leaf.shape == () and jnp.issubdtype(leaf.dtype, jnp.floating)
        return isinstance(leaf, float)

    def changes_space(name: str) -> bool:
        def spaces(value: jax.Array) -> None:
            given = with_values(params, [name], [value])
            for space in (env.observation_space(given), env.action_space(given)):
                for part in jax.tree.leaves(space):
                    bounds = [getattr(part, bound, None) for bound in ("low", "high", "n", "nvec")]
                    if any(isinstance(each, Tracer) for each in bounds):
                        raise TypeError

        return not _traces(spaces, _FLOAT)

    return tuple(
        name
        for name, leaf in named_leaves(params).items()
        if is_float(defaults.get(name, leaf))
        and np.shape(leaf) == ()
        and isinstance(leaf, int | float | np.generic | jax.Array)
        and name not in getattr(env, "randomised", ())
        and not changes_space(name)
    )


def with_values(params: Any, names: Sequence[str], values: Sequence[jax.Array] | jax.Array) -> Any:
    """Return parameters with other values, one for each name."""
    leaves = named_leaves(params) | {name: values[i] for i, name in enumerate(names)}
    return jax.tree.unflatten(jax.tree.structure(params), leaves.values())


_FLOAT = jax.ShapeDtypeStruct((), np.float32)


def _kinds(tree: Any) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(leaf.shape, leaf.dtype) for leaf in leaves]


def _traces(function: Callable[..., Any], *args: Any) -> bool:
    try:
        jax.eval_shape(function, *args)
    except Exception:  # noqa: BLE001 (an environment may raise anything)
        return False
    return True


class Parameters:
    """An environment's parameters. Environments share a leaf, or each has its own.

    Args:
        env: the environment.
        num_envs: number of environments, without padding.
        params: a pytree like `env.default_params`. A leaf with one more axis, `[num_envs, ...]`,
            differs by environment.
        floats: the names in `float_parameters`. The others are constants of the program.

    Attributes:
        own: the leaves that differ by environment.
        floats: the names in `floats` of the parameters that environments share.
        values: their values, float32 `[P]`.

    Raises:
        InvalidArgumentError: `params` has another type than the environment's, or a leaf has
            another shape.
    """

    def __init__(
        self, env: Environment, num_envs: int, params: Any = None, floats: Sequence[str] = ()
    ):
        self._env, self._num_envs = env, num_envs
        self._params = env.default_params if params is None else params
        structure = jax.tree.structure(env.default_params)
        if jax.tree.structure(self._params) != structure:
            expected = type(env.default_params).__name__
            raise InvalidArgumentError("params", f"must be a {expected} for {env}", params)
        named, defaults = named_leaves(self._params), named_leaves(env.default_params)
        self._axes: dict[str, int | None] = {}
        for name, leaf in named.items():
            shared = np.shape(defaults[name])
            if np.shape(leaf) not in (shared, (num_envs, *shared)):
                rule = f"must be of shape {shared} or {(num_envs, *shared)}"
                raise InvalidArgumentError(f"params.{name}", rule, leaf)
            self._axes[name] = None if np.shape(leaf) == shared else 0
        self._own_names = [name for name, axis in self._axes.items() if axis == 0]
        self.own = tuple(jnp.asarray(named[name]) for name in self._own_names)
        self.in_axes = jax.tree.unflatten(structure, self._axes.values()) if self.own else None
        self.floats = tuple(name for name in floats if self._axes[name] is None)
        values = [named[name] for name in self.floats]
        # They may be traced, if you map over them.
        arrays: Any = jnp if any(isinstance(each, Tracer) for each in values) else np
        self.values = arrays.asarray(values, np.float32)

    def of(self, own: tuple[jax.Array, ...], values: jax.Array | None = None) -> Any:
        """Return parameters with those of each environment, and those of `values`, filled in."""
        params = with_values(self._params, self._own_names, own)
        return params if values is None else with_values(params, self.floats, values)

    def changed(self, params: Any) -> "Parameters":
        """Return other parameters for the same program.

        Raises:
            InvalidArgumentError: one that differs is a constant of the program.
        """
        other = Parameters(self._env, self._num_envs, params, self.floats)
        before, after = named_leaves(self._params), named_leaves(params)
        for name, old in before.items():
            axes = (self._axes[name], other._axes[name])
            is_argument = axes == (0, 0) or (axes == (None, None) and name in self.floats)
            if not is_argument and (axes[0] != axes[1] or np.any(old != after[name])):
                rule = f"is a constant of this program and must be {shown(old)}"
                raise InvalidArgumentError(f"params.{name}", rule, after[name])
        return other


class VectorEnv:
    """`num_envs` copies of `env` with auto-reset. `keep_obs` is False if no agent uses `obs`.

    `params` and `floats` are as in `Parameters`. `values`, float32 `[P]`, takes the place of
    `params.values` in a call. Without it, all shared parameters are constants.
    """

    def __init__(
        self,
        env: Environment,
        num_envs: int,
        params: Any = None,
        *,
        keep_obs: bool = True,
        floats: Sequence[str] = (),
    ):
        require_32_bits()
        self.env = env
        self.num_envs = num_envs
        self.keep_obs = keep_obs
        self.params = Parameters(env, num_envs, params, floats)

    @vectorized_method
    def reset(
        self,
        keys: jax.Array,
        own_params: tuple[jax.Array, ...] = (),
        values: jax.Array | None = None,
    ) -> BatchState:
        """Reset every environment with its key, `[N]`."""
        reset = jax.vmap(self.env.reset, in_axes=(0, self.params.in_axes))
        obs, env_state = reset(keys, self.params.of(own_params, values))
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
        values: jax.Array | None = None,
    ) -> tuple[BatchState, Transition]:
        """Advance by one step with auto-reset. `action` is `[N, *A]`, and keys are `[N]`."""
        params = self.params.of(batch_state.own_params, values)
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


def require_32_bits() -> None:
    """Raise InvalidArgumentError under `jax_enable_x64`, since environments compute in 32 bits."""
    if is_on := jax.config.values["jax_enable_x64"]:
        raise InvalidArgumentError("jax_enable_x64", "must be False for Myriad's 32 bits", is_on)


def _select_obs(done: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
    """Do as `select_reset` with leaves `[..., N]`, and return `[N, ...]`."""
    if new.ndim == 2 and 0 < len(new) <= _MOST_COLUMNS:
        # Columns often share the selections of the state, and then XLA only has to interleave them.
        # Recorded steps of CartPole got 1.3 times as fast.
        return jnp.stack([*map(partial(jnp.where, done), new, old)], axis=-1)
    return select_reset(done, _envs_first(new), _envs_first(old))


def _envs_first(leaf: jax.Array) -> jax.Array:
    return jnp.moveaxis(leaf, -1, 0)


def select_reset(done: jax.Array, new: Any, old: Any) -> Any:
    """Take `new` where `done`, `[N]`, and `old` elsewhere. Leaves are `[N, ...]` of any rank."""

    def choose(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(done.reshape(done.shape + (1,) * (new.ndim - 1)), new, old)

    return jax.tree.map(choose, new, old)
