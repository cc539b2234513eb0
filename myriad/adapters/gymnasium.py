"""A Myriad environment as a `gymnasium.Env`, and the code that it shares with the vector version.

`myriad.adapters` imports it on first use.
"""

import dataclasses
from collections.abc import Collection
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import EzPickle

from myriad.adapters import NO_BOUND, finite_bounds
from myriad.engine.random import make_key
from myriad.envs.environment import Environment
from myriad.errors import InvalidArgumentError, UnknownNameError
from myriad.ranges import INT64
from myriad.spaces import Box, Discrete, MultiDiscrete, Space

RENDER_FPS = 30


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class KeyedState:
    """One running environment: its state, and the key for its next step or reset to split."""

    key: jax.Array
    env_state: Any


def refuse_options(options: dict[str, Any] | None, known: Collection[str] = ()) -> None:
    """Refuse options of `reset` that would have no effect.

    Raises:
        InvalidArgumentError: one is not among the known ones.
    """
    for name in options or ():
        if name not in known:
            raise InvalidArgumentError("options", f"must be {' or '.join(known) or 'empty'}", name)


def within_64_bits(seed: int | np.integer) -> int:
    """Return a seed that `make_key` takes. Gymnasium's may have any number of bits."""
    if seed <= INT64:
        return int(seed)
    return int(np.random.SeedSequence(int(seed)).generate_state(1, np.uint64)[0]) >> 1


def reset_env(env: Environment, key: jax.Array) -> tuple[KeyedState, jax.Array]:
    """Start an episode, and return its state and first observation."""
    key, reset_key = jax.random.split(key)
    obs, state = env.reset(reset_key, env.default_params)
    return KeyedState(key, state), obs


def step_env(
    env: Environment, state: KeyedState, action: jax.Array
) -> tuple[KeyedState, tuple[Any, ...]]:
    """Advance by one step. Return the state, and obs, reward, terminated, truncated and info."""
    key, step_key = jax.random.split(state.key)
    obs, state, *results = env.step(step_key, state.env_state, action, env.default_params)
    return KeyedState(key, state), (obs, *results)


class ActionAdapter:
    """Converts actions of Gymnasium's users to those of the environment.

    Args:
        space: the environment's action space.
        normalize: let bounded continuous actions run from -1 to 1.
    """

    def __init__(self, space: Space, *, normalize: bool):
        self.space = gymnasium_space(space)
        self._shape = space.shape
        self._dtype = space.dtype
        self._num_choices = np.asarray(getattr(space, "nvec", getattr(space, "n", 0)))
        self._is_choice = self._dtype.kind == "i"
        self._centre = np.float32(0)
        self._half_range = np.float32(1)
        if normalize and isinstance(space, Box):
            low, high = finite_bounds(space)
            if np.max(np.abs((low, high)), initial=0) < NO_BOUND:
                self._centre, self._half_range = (high + low) / 2, (high - low) / 2
                self.space = gymnasium.spaces.Box(-1.0, 1.0, space.shape, np.float32)

    def __call__(self, action: Any, batch: tuple[int, ...] = ()) -> np.ndarray:
        """Return `action`, `[*batch, *A]`, in the environment's units and dtype.

        Raises:
            InvalidArgumentError: it has another kind or shape, is NaN, or is not a possible choice.
                A number out of bounds passes, since the environment interprets it.
        """
        action = np.asarray(action)
        shape = batch + self._shape
        if action.dtype.kind not in ("iu" if self._is_choice else "iuf") or action.shape != shape:
            kind = "integers" if self._is_choice else "floats"
            raise InvalidArgumentError("action", f"must be {kind} of shape {shape}", action)
        wrong = (
            (action < 0) | (action >= self._num_choices) if self._is_choice else np.isnan(action)
        )
        if wrong.any():
            raise InvalidArgumentError("action", f"must be in {self.space}", action[wrong].item(0))
        return np.asarray(
            action if self._is_choice else action * self._half_range + self._centre, self._dtype
        )


class AsGymnasium(gymnasium.Env[Any, Any], EzPickle):
    """One Myriad environment, stepped from the host. `reset(seed=)` determines all that follows.

    A copy by `pickle` or `deepcopy` has no running episode.
    """

    # Gymnasium reads the class's metadata. The instance's says whether this one can render.
    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": RENDER_FPS}  # noqa: RUF012  (their name)

    def __init__(
        self, env: Environment, *, render_mode: str | None = None, normalize_actions: bool = True
    ):
        EzPickle.__init__(self, env, render_mode=render_mode, normalize_actions=normalize_actions)
        self.env = env
        self.render_mode = render_mode
        self.metadata = {"render_modes": render_modes(env, render_mode), "render_fps": RENDER_FPS}
        self.observation_space = gymnasium_space(env.observation_space(env.default_params))
        self._adapt_action = ActionAdapter(
            env.action_space(env.default_params), normalize=normalize_actions
        )
        self.action_space = self._adapt_action.space
        # How to build it again, which Gymnasium's checker and recorders do.
        self.spec = EnvSpec(
            f"myriad/{type(env).__name__}-v0",
            entry_point=f"{__name__}:AsGymnasium",
            kwargs={"env": env, "normalize_actions": normalize_actions},
        )
        self._state: KeyedState | None = None
        self._reset = jax.jit(lambda key: reset_env(env, key))
        self._step = jax.jit(lambda state, action: step_env(env, state, action))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode. Without a seed, the randomness continues from the last episode.

        Raises:
            InvalidArgumentError: there are options. An environment's parameters are set when it is
                made.
        """
        refuse_options(options)
        super().reset(seed=seed)
        if seed is None and self._state is not None:
            key = self._state.key
        else:
            seed = int(self.np_random.integers(2**32)) if seed is None else seed
            key = make_key(within_64_bits(seed))
        self._state, obs = self._reset(key)
        return as_observation(self.observation_space, obs), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Advance by `action`, an element of `action_space`.

        Raises:
            InvalidArgumentError: no episode has been started, or `action` is not such an element.
        """
        if self._state is None:
            raise InvalidArgumentError("step needs a running episode; call reset first.")
        self._state, results = self._step(self._state, self._adapt_action(action))
        obs, reward, terminated, truncated, info = jax.device_get(results)
        obs = as_observation(self.observation_space, obs)
        return obs, float(reward), bool(terminated), bool(truncated), jax.tree.map(_as_scalar, info)

    def render(self) -> Any:
        """Return a picture, uint8 `[H, W, 3]`, or None if you asked for no `render_mode`."""
        if self.render_mode is None or self._state is None:
            gymnasium.logger.warn(
                "render needs render_mode='rgb_array' and an episode that reset has started."
            )
            return None
        return getattr(self.env, "render")(self._state.env_state)  # noqa: B009  (no member of the protocol)


def render_modes(env: Environment, chosen: str | None) -> list[str]:
    """Return the modes that `env` has.

    Raises:
        UnknownNameError: `chosen` is not among them.
    """
    modes = ["rgb_array"] if hasattr(env, "render") else []
    if chosen is not None and chosen not in modes:
        raise UnknownNameError("render mode", chosen, modes, owner=type(env).__name__)
    return modes


def gymnasium_space(space: Space) -> gymnasium.Space:
    """Convert a Myriad space.

    Gymnasium's checker asks for finite bounds and for nonempty intervals.
    """
    if isinstance(space, Discrete):
        return gymnasium.spaces.Discrete(space.n)
    if isinstance(space, MultiDiscrete):
        return gymnasium.spaces.MultiDiscrete(list(space.nvec))
    if isinstance(space, Box):
        if space.is_whole:
            return _integer_box(space)
        low, high = (np.array(bound) for bound in finite_bounds(space))
        one_value = low == high
        # Widen a dimension with a single value to the two neighbouring floats.
        low[one_value] = np.nextafter(low[one_value], np.float32(-np.inf))
        high[one_value] = np.nextafter(high[one_value], np.float32(np.inf))
        return gymnasium.spaces.Box(low, high, space.shape, np.float32)
    raise InvalidArgumentError(f"{space!r} has no counterpart in Gymnasium; use a Box.")


def _integer_box(space: Box) -> gymnasium.spaces.Box:
    limits = (0, 1)
    if space.dtype != bool:
        limits = (np.iinfo(space.dtype).min, np.iinfo(space.dtype).max)
    # float64 holds every bound of 32 bits exactly, and infinities.
    low, high = (
        np.clip(np.broadcast_to(np.asarray(bound, np.float64), space.shape), *limits)
        for bound in (space.low, space.high)
    )
    return gymnasium.spaces.Box(
        low.astype(space.dtype), high.astype(space.dtype), space.shape, space.dtype
    )


def as_observation(space: gymnasium.Space, obs: Any) -> Any:
    """Return `obs` as an element of `space`: an array that you may write into, or an integer."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return space.dtype.type(obs)
    return np.array(obs, dtype=space.dtype)


def _as_scalar(leaf: Any) -> Any:
    """Return a scalar leaf as a number: Gymnasium stacks numbers and arrays differently."""
    leaf = np.asarray(leaf)
    if leaf.ndim:
        return leaf.copy()
    return bool(leaf) if leaf.dtype == bool else leaf[()]
