"""Wrappers of environments. Their names and meanings are Gymnasium's.

A wrapper is an environment: pass it wherever you would pass the one inside. A training wraps an
environment whose observations are no `Box` in `FlattenObservation` by itself, one that has an
`action_mask` in `MaskedObservation`, and one that has a `privileged_observation` in
`PrivilegedObservation`.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Container, Mapping
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from myriad.engine.devices import bytes_of, named_leaves
from myriad.engine.memory import require_room_for
from myriad.engine.random import holds_keys, make_key
from myriad.envs.environment import Environment
from myriad.envs.vector import scalar_floats, with_values
from myriad.errors import InvalidArgumentError, UnknownNameError
from myriad.ranges import Integer, Number, ranges_of, require_ranges
from myriad.spaces import Box, Discrete, MultiDiscrete, Space

__all__ = [
    "FlattenObservation",
    "FrameStackObservation",
    "MaskedObservation",
    "ObservationWrapper",
    "RandomisedParams",
    "ResetPool",
    "Wrapper",
]


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

    @property
    def randomised(self) -> tuple[str, ...]:
        """The parameters that each reset draws, by name."""
        return getattr(self.env, "randomised", ())

    def __getattr__(self, name: str) -> Any:
        # Only functions of a state. A wrapped observation has no `control_error`.
        if name not in ("render", "action_mask", "privileged_observation"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        function = getattr(self.env, name)
        return lambda state, *params: function(self.inner_state(state), *params)


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
            np.concatenate([np.broadcast_to(getattr(x, end), x.shape).ravel() for x in parts])
            for end in ("low", "high")
        )
        dtype = np.uint8 if all(each.dtype == np.uint8 for each in parts) else np.float32
        return Box(low, high, low.shape, dtype)

    def observation(self, obs: Any, state: Any, params: Any) -> jax.Array:
        dtype = self.observation_space(self.default_params).dtype
        parts = jax.tree.map(_one_hot, self.env.observation_space(params), obs)
        return jnp.concatenate([each.astype(dtype) for each in jax.tree.leaves(parts)])


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
        return jnp.concatenate(list(frames), -1), FrameStackState(state, frames)

    def step(
        self, key: jax.Array, state: FrameStackState, action: jax.Array, params: Any
    ) -> tuple[jax.Array, FrameStackState, jax.Array, jax.Array, jax.Array, dict[str, Any]]:
        result = self.env.step(key, state.env_state, action, params)
        frames = jnp.concatenate([state.frames[1:], result[0][None]])
        obs = jnp.concatenate(list(frames), -1)
        return obs, FrameStackState(result[1], frames), *result[2:]

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
        return _appended(inner, num_actions, 0, 1, inner.dtype)

    def observation(self, obs: jax.Array, state: Any, params: Any) -> jax.Array:
        mask = self.env.action_mask(state)  # pyright: ignore[reportAttributeAccessIssue]
        return jnp.append(obs, mask.astype(obs.dtype))


@dataclasses.dataclass(frozen=True)
class Uniform:
    """A parameter that each reset draws uniformly from `low` to `high`.

    A configuration takes it in place of a number, in files and commands as `uniform(5, 15)`.

    Raises:
        InvalidArgumentError: an end is not a finite number, or `low` is not below `high`.

    Example:
        >>> from myriad import make_env
        >>> make_env("cartpole", gravity=Uniform(5, 15)) == make_env(
        ...     "cartpole", gravity="uniform(5, 15)"
        ... )
        True
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        for end in ("low", "high"):
            Number().require(end, getattr(self, end))
        if self.low >= self.high:
            raise InvalidArgumentError("low", "must be below high", self)

    def __str__(self) -> str:
        low, high = (int(end) if end == int(end) else end for end in (self.low, self.high))
        return f"uniform({low}, {high})"

    @classmethod
    def of(cls, name: str, value: Any) -> "Uniform | None":
        """Return what the value of a parameter stands for, or None if it is something else."""
        number = r"\s*([-+.\deE]+)\s*"
        found = isinstance(value, str) and re.fullmatch(rf"uniform\({number},{number}\)", value)
        if not found:
            return value if isinstance(value, cls) else None
        try:
            return cls(float(found[1]), float(found[2]))
        except ValueError:
            rule = "must be a range of finite numbers, low first"
            raise InvalidArgumentError(name, rule, value) from None


@dataclasses.dataclass(frozen=True)
class UniformDraws:
    """A `draw` of `RandomisedParams`: each parameter by itself, from its own range."""

    ranges: tuple[tuple[str, Uniform], ...]

    def __call__(self, key: jax.Array, params: Any) -> Any:
        low, high = (
            np.array([getattr(each, end) for _, each in self.ranges], np.float32)
            for end in ("low", "high")
        )
        values = jax.random.uniform(key, low.shape, minval=low, maxval=high)
        return with_values(params, [name for name, _ in self.ranges], values)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RandomisedState:
    """The state of the environment inside, and the parameters drawn for the running episode."""

    env_state: Any
    drawn: tuple[jax.Array, ...]


@dataclasses.dataclass(frozen=True)
class RandomisedParams(Wrapper):
    """Draw parameters anew at each reset, also in evaluations: domain randomisation.

    Attributes:
        env: the environment inside.
        draw: returns parameters for an episode, from a key and the environment's parameters. Those
            that it changes are kept in the state.
        observes: whether they are appended to the observation, which must be a vector.

    Raises:
        InvalidArgumentError: `draw` returns something else than parameters of the environment, or
            the environment picks its first states from a pool, which was drawn before.

    Example:
        >>> import dataclasses
        >>> from myriad import make_env
        >>> def heavier(key, params):
        ...     mass = params.mass_pole * jax.random.uniform(key, minval=1.0, maxval=3.0)
        ...     return dataclasses.replace(params, mass_pole=mass)
        >>> env = RandomisedParams(make_env("cartpole"), heavier, observes=True)
        >>> env.observation_space(env.default_params).shape
        (5,)
    """

    draw: Callable[[jax.Array, Any], Any]
    # Not an option of a configuration, which can't name `draw` either.
    observes: bool = dataclasses.field(default=False, metadata={"derived": True})

    def __post_init__(self) -> None:
        if pool := getattr(self.env, "reset_pool", 0):
            raise InvalidArgumentError("reset_pool", "must be 0 where resets draw parameters", pool)
        _ = self.drawn

    @functools.cached_property
    def drawn(self) -> tuple[str, ...]:
        """The parameters that `draw` changes, by name."""
        params = self.env.default_params
        before = named_leaves(params)
        names: list[str] = []

        def call(key: jax.Array) -> None:
            after = self.draw(key, params)
            if jax.tree.structure(after) != jax.tree.structure(params):
                raise InvalidArgumentError("draw", f"must return a {type(params).__name__}", after)
            names.extend(k for k, leaf in named_leaves(after).items() if leaf is not before[k])

        jax.eval_shape(call, make_key(0))
        return tuple(names)

    @property
    def randomised(self) -> tuple[str, ...]:
        return (*self.drawn, *super().randomised)

    def reset(self, key: jax.Array, params: Any) -> tuple[jax.Array, RandomisedState]:
        draw_key, reset_key = jax.random.split(key)
        of_episode = named_leaves(self.draw(draw_key, params))
        # Strongly typed, as all that a state holds.
        drawn = tuple(
            jax.lax.convert_element_type(of_episode[name], jnp.result_type(of_episode[name]))
            for name in self.drawn
        )
        obs, state = self.env.reset(reset_key, with_values(params, self.drawn, drawn))
        return self._seen(obs, drawn), RandomisedState(state, drawn)

    def step(
        self, key: jax.Array, state: RandomisedState, action: jax.Array, params: Any
    ) -> tuple[jax.Array, RandomisedState, jax.Array, jax.Array, jax.Array, dict[str, Any]]:
        of_episode = with_values(params, self.drawn, state.drawn)
        result = self.env.step(key, state.env_state, action, of_episode)
        obs = self._seen(result[0], state.drawn)
        return obs, RandomisedState(result[1], state.drawn), *result[2:]

    def observation_space(self, params: Any) -> Any:
        inner: Any = self.env.observation_space(params)
        if not self.observes:
            return inner
        return _appended(inner, len(self.drawn), -np.inf, np.inf, inner.dtype)

    def inner_state(self, state: RandomisedState) -> Any:
        return state.env_state

    def _seen(self, obs: Any, drawn: tuple[jax.Array, ...]) -> Any:
        return jnp.append(obs, jnp.stack(drawn).astype(obs.dtype)) if self.observes else obs

    def __getattr__(self, name: str) -> Any:
        # The observation begins as that of the environment inside.
        if name == "control_error":
            return getattr(self.env, name)
        function = super().__getattr__(name)
        if name != "privileged_observation":
            return function
        return lambda state, params: function(state, with_values(params, self.drawn, state.drawn))


@dataclasses.dataclass(frozen=True)
class ResetPool(Wrapper):
    """Draw first states once, with the environment's own parameters. A reset picks one of them.

    Other parameters would need other states. So all are constants of a program, and you make the
    environment with the values that you want.

    Attributes:
        reset_pool: number of first states. With 0, each reset draws its own.

    Example:
        >>> from myriad import make_env
        >>> env = make_env("cartpole", reset_pool=64, gravity=1.6)
        >>> env.reset_pool, env.default_params.gravity
        (64, 1.6)
    """

    reset_pool: Annotated[int, Integer(0)]

    def __post_init__(self) -> None:
        require_ranges(self)
        if self.reset_pool:
            _pool(self)

    def reset(self, key: jax.Array, params: Any) -> tuple[Any, Any]:
        if not self.reset_pool:
            return self.env.reset(key, params)
        (given, kind), (own, own_kind) = map(jax.tree.flatten, (params, self.default_params))
        if (
            kind != own_kind
            or any(isinstance(each, Tracer) for each in given)
            or any(np.any(a != b) for a, b in zip(given, own, strict=True))
        ):
            raise InvalidArgumentError(
                "params",
                "must be those with which the reset_pool of the environment was drawn, and no "
                "arguments of a compiled function: give others to make_env.",
            )
        index_key, fresh_key = jax.random.split(key)
        index = jax.random.randint(index_key, (), 0, self.reset_pool)
        word = jax.random.bits(fresh_key)

        def one(leaf: jax.Array) -> jax.Array:
            leaf = leaf[index]
            if not holds_keys(leaf):
                return leaf
            # So that the next episode draws other numbers.
            keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(leaf.ravel(), word)
            return keys.reshape(leaf.shape)

        return jax.tree.map(one, _pool(self))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name) if name == "control_error" else super().__getattr__(name)


@functools.lru_cache(maxsize=64)
def _pool(env: ResetPool) -> Any:
    """Return first observations and states to pick from, leaves `[reset_pool, ...]`.

    Raises:
        InvalidArgumentError: they don't fit into memory.
    """
    program = jax.jit(jax.vmap(env.env.reset, in_axes=(0, None)))
    keys = jax.ShapeDtypeStruct((env.reset_pool,), make_key(0).dtype)
    states = program.eval_shape(keys, env.default_params)
    needed = bytes_of((keys, states))
    require_room_for(env.reset_pool, needed, what="states of the reset_pool")
    return program(jax.random.split(make_key(0), env.reset_pool), env.default_params)


def randomised(env: Environment, ranges: Mapping[str, Uniform]) -> Environment:
    """Return an environment that draws parameters at each reset, beside those that it drew before.

    Raises:
        UnknownNameError: there is no such parameter.
        InvalidArgumentError: a parameter is no float or changes a space, or an end is out of its
            range.
    """
    inner, before = env, {}
    if isinstance(env, RandomisedParams) and isinstance(env.draw, UniformDraws):
        inner, before = env.env, dict(env.draw.ranges)
    possible, of_field = scalar_floats(inner), ranges_of(inner.default_params)
    for name, given in ranges.items():
        if name not in named_leaves(inner.default_params):
            raise UnknownNameError("parameter", name, possible)
        if name not in possible:
            rule = f"is no float or changes a space; to draw are {', '.join(possible) or 'none'}"
            raise InvalidArgumentError(name, rule, given)
        for end in (given.low, given.high):
            of_field.get(name, Number()).require(name, end)
    return RandomisedParams(inner, UniformDraws(tuple(sorted({**before, **ranges}.items()))))


def with_numbers(env: Wrapper, names: Container[str]) -> Environment:
    """Return a wrapped environment that no longer draws parameters that were given as numbers."""
    if not (isinstance(env, RandomisedParams) and isinstance(env.draw, UniformDraws)):
        return env
    ranges = tuple(each for each in env.draw.ranges if each[0] not in names)
    return dataclasses.replace(env, draw=UniformDraws(ranges)) if ranges else env.env


@dataclasses.dataclass(frozen=True)
class PrivilegedObservation(ObservationWrapper):
    """Append to each observation, flat, what `env.privileged_observation(state, params)` returns.

    Learners with `trains_critic` get it while they train. Their critics see this alone, and their
    actors the rest.
    """

    def observation_space(self, params: Any) -> Box:
        inner: Any = self.env.observation_space(params)
        privileged = privileged_of(self.env)
        dtype = jnp.promote_types(inner.dtype, privileged.dtype)
        return _appended(inner, privileged.size, -np.inf, np.inf, dtype)

    def observation(self, obs: jax.Array, state: Any, params: Any) -> jax.Array:
        env: Any = self.env
        return jnp.append(obs, env.privileged_observation(state, params))


def _appended(box: Any, size: int, low: float, high: float, dtype: Any) -> Box:
    """Return the space of a box's observations, flat, with so many numbers after each."""
    lows, highs = (
        np.append(np.broadcast_to(bound, box.shape), np.full(size, of_rest))
        for bound, of_rest in ((box.low, low), (box.high, high))
    )
    return Box(lows, highs, lows.shape, dtype)


@functools.lru_cache(maxsize=64)
def privileged_of(env: Any) -> Any:
    """Return the shape and dtype of a `privileged_observation`; None if there is none."""
    if not hasattr(env, "privileged_observation"):
        return None
    _, state = jax.eval_shape(env.reset, make_key(0), env.default_params)
    return jax.eval_shape(env.privileged_observation, state, env.default_params)


def for_learner(env: Environment) -> Environment:
    """Return the environment as a learner gets it: observations are a `Box`, with any mask."""
    space: Any = env.observation_space(env.default_params)
    is_choice = isinstance(space, Discrete | MultiDiscrete)
    is_box = hasattr(space, "shape") and not is_choice
    env = env if is_box else FlattenObservation(env)
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


def _one_hot(space: Any, part: Any) -> jax.Array:
    """Return a choice as zeros and a one of each component, and numbers as a vector."""
    if isinstance(space, Discrete | MultiDiscrete):
        parts = [part] if isinstance(space, Discrete) else [part[i] for i in range(len(space.nvec))]
        choices = zip(parts, nvec_of(space), strict=True)
        return jnp.concatenate([jax.nn.one_hot(each, n, dtype=np.uint8) for each, n in choices])
    return jnp.ravel(part)
