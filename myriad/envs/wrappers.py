"""Wrappers of environments. Their names and meanings are Gymnasium's.

A wrapper is an environment: pass it wherever you would pass the one inside. A training wraps an
environment whose observations are no `Box` in `FlattenObservation` by itself, and one that has an
`action_mask` in `MaskedObservation`.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from myriad.envs.environment import Environment
from myriad.spaces import Box, Discrete, MultiDiscrete, Space


@dataclasses.dataclass(frozen=True)
class Wrapper:
    """An environment that passes everything on to `env`. Change what you need in a subclass."""

    env: Environment

    @property
    def default_params(self) -> Any:
        return self.env.default_params

    def reset(self, key: jax.Array, params: Any) -> tuple[Any, Any]:
        return self.env.reset(key, params)

    def step(
        self, key: jax.Array, state: Any, action: jax.Array, params: Any
    ) -> tuple[Any, Any, jax.Array, jax.Array, jax.Array, dict[str, Any]]:
        return self.env.step(key, state, action, params)

    def observation_space(self, params: Any) -> Any:
        return self.env.observation_space(params)

    def action_space(self, params: Any) -> Space:
        return self.env.action_space(params)

    def inner_state(self, state: Any) -> Any:
        """Return the state of the environment inside."""
        return state

    def __getattr__(self, name: str) -> Any:
        # Only functions of a state. A wrapped observation has no `control_error`.
        if name not in ("render", "action_mask"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        function = getattr(self.env, name)
        return lambda state: function(self.inner_state(state))


@dataclasses.dataclass(frozen=True)
class ObservationWrapper(Wrapper):
    """A wrapper that changes observations alone. A subclass has `observation` and its space."""

    def observation(self, obs: Any, state: Any, params: Any) -> Any:
        """Return what to show for an observation and the state that it is of."""
        raise NotImplementedError

    def reset(self, key: jax.Array, params: Any) -> tuple[Any, Any]:
        obs, state = self.env.reset(key, params)
        return self.observation(obs, state, params), state

    def step(
        self, key: jax.Array, state: Any, action: jax.Array, params: Any
    ) -> tuple[Any, Any, jax.Array, jax.Array, jax.Array, dict[str, Any]]:
        obs, state, reward, terminated, truncated, info = self.env.step(key, state, action, params)
        return self.observation(obs, state, params), state, reward, terminated, truncated, info


@dataclasses.dataclass(frozen=True)
class FlattenObservation(ObservationWrapper):
    """Turn any observation into one vector.

    A choice of a `Discrete` or `MultiDiscrete` becomes a vector of zeros and a one. The parts of a
    dict, in the order of its sorted keys, or of a tuple follow each other. The vector is uint8 if
    all parts are, and float32 otherwise.

    Example:
        >>> from myriad import make_env
        >>> taxi = FlattenObservation(make_env("cartpole"))
        >>> taxi.observation_space(taxi.default_params).shape
        (4,)
    """

    def observation_space(self, params: Any) -> Box:
        parts = [_box(each) for each in jax.tree.leaves(self.env.observation_space(params))]
        low, high = (
            np.concatenate([np.broadcast_to(bound, box.shape).ravel() for box, bound in bounds])
            for bounds in ([(x, x.low) for x in parts], [(x, x.high) for x in parts])
        )
        return Box(low, high, low.shape, _dtype(parts))

    def observation(self, obs: Any, state: Any, params: Any) -> jax.Array:
        spaces = self.env.observation_space(params)
        dtype = _dtype([_box(each) for each in jax.tree.leaves(spaces)])
        parts = jax.tree.map(lambda space, part: _one_hot(space, part, dtype), spaces, obs)
        return jnp.concatenate(jax.tree.leaves(parts))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class FrameStackState:
    """The state of the environment inside, and the last observations, `[num_frames, *O]`."""

    env_state: Any
    frames: jax.Array


@dataclasses.dataclass(frozen=True)
class FrameStackObservation(Wrapper):
    """Show the last `num_frames` observations at once, the newest last.

    They are joined along the last axis, as the channels of a picture: `[*O]` becomes
    `[*O[:-1], num_frames * O[-1]]`. The first observation of an episode fills all frames.

    Example:
        >>> from myriad import make_env
        >>> env = FrameStackObservation(make_env("cartpole"), num_frames=4)
        >>> env.observation_space(env.default_params).shape
        (16,)
    """

    num_frames: int = 4

    def reset(self, key: jax.Array, params: Any) -> tuple[jax.Array, FrameStackState]:
        obs, state = self.env.reset(key, params)
        frames = jnp.stack([obs] * self.num_frames)
        return _joined(frames), FrameStackState(state, frames)

    def step(
        self, key: jax.Array, state: FrameStackState, action: jax.Array, params: Any
    ) -> tuple[jax.Array, FrameStackState, jax.Array, jax.Array, jax.Array, dict[str, Any]]:
        result = self.env.step(key, state.env_state, action, params)
        frames = jnp.concatenate([state.frames[1:], result[0][None]])
        return _joined(frames), FrameStackState(result[1], frames), *result[2:]

    def observation_space(self, params: Any) -> Box:
        one: Any = self.env.observation_space(params)
        low, high = (
            np.concatenate([np.broadcast_to(x, one.shape)] * self.num_frames, -1)
            for x in (one.low, one.high)
        )
        return Box(low, high, low.shape, one.dtype)

    def inner_state(self, state: FrameStackState) -> Any:
        return state.env_state


@dataclasses.dataclass(frozen=True)
class MaskedObservation(ObservationWrapper):
    """Append to each observation which actions are legal, as ones and zeros.

    `env.action_mask(state)` says it: boolean `[n]` for a `Discrete` action, and `[sum(nvec)]` for a
    `MultiDiscrete` one, whose components follow each other. Learners of such actions and the agent
    `random` then choose legal actions only. If none is legal, they choose any. `[*O]` becomes a
    vector. Networks get the observation in its own shape and without the mask.
    """

    @property
    def unmasked(self) -> Environment:
        """The environment without the mask, from which learners know that there is one."""
        return self.env

    def observation_space(self, params: Any) -> Box:
        inner: Any = self.env.observation_space(params)
        num_actions = sum(nvec_of(self.env.action_space(params)))
        low, high = (
            np.append(np.broadcast_to(bound, inner.shape), np.full(num_actions, of_mask))
            for bound, of_mask in ((inner.low, 0), (inner.high, 1))
        )
        return Box(low, high, low.shape, inner.dtype)

    def observation(self, obs: jax.Array, state: Any, params: Any) -> jax.Array:
        mask = self.env.action_mask(state)  # pyright: ignore[reportAttributeAccessIssue]
        return jnp.append(obs, mask.astype(obs.dtype))


def for_learner(env: Environment) -> Environment:
    """Return the environment as a learner gets it: observations are a `Box`, with any mask."""
    space: Any = env.observation_space(env.default_params)
    is_choice = isinstance(space, Discrete | MultiDiscrete)
    is_box = hasattr(space, "shape") and not is_choice
    return with_mask(env if is_box else FlattenObservation(env))


def with_mask(env: Environment) -> Environment:
    """Return the environment, wrapped in `MaskedObservation` if it says which actions are legal."""
    action_mask = getattr(env, "action_mask", None)
    if isinstance(env, MaskedObservation) or action_mask is None:
        return env
    _, state = jax.eval_shape(env.reset, jax.random.key(0), env.default_params)
    # An adapter doesn't know before whether the library's environment has a mask.
    has_mask = jax.eval_shape(action_mask, state) is not None
    return MaskedObservation(env) if has_mask else env


def nvec_of(space: Any) -> tuple[int, ...]:
    """Return the number of choices of each component of a `Discrete` or `MultiDiscrete`."""
    return (space.n,) if isinstance(space, Discrete) else space.nvec


def _box(space: Any) -> Box:
    """Return the space of a part once it is flat, or its own if it is a `Box`."""
    if isinstance(space, Discrete | MultiDiscrete):
        return Box(0, 1, (sum(nvec_of(space)),), np.uint8)
    return space


def _dtype(boxes: list[Box]) -> Any:
    return np.uint8 if all(box.dtype == np.uint8 for box in boxes) else np.float32


def _one_hot(space: Any, part: Any, dtype: Any) -> jax.Array:
    if isinstance(space, Discrete):
        return jax.nn.one_hot(part, space.n, dtype=dtype)
    if isinstance(space, MultiDiscrete):
        choices = [jax.nn.one_hot(part[i], n, dtype=dtype) for i, n in enumerate(space.nvec)]
        return jnp.concatenate(choices)
    return jnp.ravel(part).astype(dtype)


def _joined(frames: jax.Array) -> jax.Array:
    return jnp.concatenate(list(frames), axis=-1)
