"""Myriad's environments as a `gymnasium.Env` and a `gymnasium.vector.VectorEnv`.

`myriad.adapters` imports it on first use.
"""

from collections.abc import Collection, Sequence
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import EzPickle
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from myriad.adapters import NO_BOUND, finite_bounds
from myriad.engine.random import make_key, make_keys
from myriad.envs.environment import Environment
from myriad.errors import InvalidArgumentError, UnknownNameError
from myriad.ranges import INT64
from myriad.registry import is_integer
from myriad.spaces import Box, Discrete, MultiDiscrete, Space

RENDER_FPS = 30

# One running environment: the key for its next step or reset to split, and its state.
KeyedState = tuple[jax.Array, Any]


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
            key, _ = self._state
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
        return getattr(self.env, "render")(self._state[1])  # noqa: B009  (no member of the protocol)


class AsGymnasiumVector(VectorEnv[Any, Any, Any], EzPickle):
    """`N` environments behind one compiled step.

    `reset(seed=s)` gives sub-environment `i` the seed `s + i`. A copy by `pickle` or `deepcopy` has
    no running episodes.
    """

    def __init__(
        self,
        env: Environment,
        num_envs: int,
        *,
        autoreset_mode: str | AutoresetMode,
        render_mode: str | None,
        normalize_actions: bool,
    ):
        EzPickle.__init__(
            self,
            env,
            num_envs,
            autoreset_mode=autoreset_mode,
            render_mode=render_mode,
            normalize_actions=normalize_actions,
        )
        self.env = env
        self.num_envs = int(num_envs)
        self.render_mode = render_mode
        self._mode = AutoresetMode(autoreset_mode)
        self.metadata = {
            "render_modes": render_modes(env, render_mode),
            "render_fps": RENDER_FPS,
            "autoreset_mode": self._mode,
        }
        self._adapt_action = ActionAdapter(
            env.action_space(env.default_params), normalize=normalize_actions
        )
        self._reset = jax.jit(jax.vmap(self._reset_one))
        self._step = jax.jit(jax.vmap(self._step_one), donate_argnums=0)
        self.single_observation_space = gymnasium_space(env.observation_space(env.default_params))
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.single_action_space = self._adapt_action.space
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._states: KeyedState | None = None
        self._obs = np.zeros(0)
        self._ended = np.zeros(self.num_envs, bool)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Start episodes.

        Args:
            seed: the seed of the first sub-environment, to which each further one adds 1; or a list
                with a seed or None for each. Without a seed, the randomness continues from the last
                episode.
            options: `{"reset_mask": mask}`, boolean `[N]`, resets only these sub-environments and
                leaves the others as they are.

        Raises:
            InvalidArgumentError: seeds or mask don't have `num_envs` elements, or there is a mask
                before the first reset, or options have another name.
        """
        refuse_options(options, known=("reset_mask",))
        super().reset(seed=seed if isinstance(seed, int | np.integer) else None)
        mask = np.ones(self.num_envs, bool)
        if options:
            mask = np.asarray(options["reset_mask"])
            if mask.dtype != bool or mask.shape != (self.num_envs,) or not mask.any():
                rule = f"must be {self.num_envs} booleans of which one is True"
                raise InvalidArgumentError("reset_mask", rule, options["reset_mask"])
            if self._states is None and not mask.all():
                raise InvalidArgumentError("reset_mask", "must be True for all at first", mask)
        kept = None if mask.all() else self._states
        self._states, obs = self._reset(self._keys(seed), mask, kept)
        obs = as_observation(self.observation_space, obs)
        if kept is not None:
            obs[~mask] = self._obs[~mask]
        self._obs = obs
        self._ended = self._ended & ~mask
        return obs.copy(), {}

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Advance all sub-environments by `actions`, an element of `action_space`.

        Raises:
            InvalidArgumentError: no episode has been started, one that ended waits for `reset`, or
                `actions` is not such an element.
        """
        if self._states is None:
            raise InvalidArgumentError("step needs running episodes; call reset first.")
        if self._mode is AutoresetMode.DISABLED and self._ended.any():
            ended = int(np.flatnonzero(self._ended)[0])
            says = f"sub-environment {ended} has ended; reset it by a reset_mask."
            raise InvalidArgumentError(says)
        actions = self._adapt_action(actions, (self.num_envs,))
        self._states, final_obs, results = self._step(self._states, actions, self._ended)
        obs, reward, terminated, truncated, info = jax.device_get(results)
        self._obs = as_observation(self.observation_space, obs)
        done = terminated | truncated
        if self._mode is AutoresetMode.NEXT_STEP:
            infos = _masked(info, ~self._ended)
        elif self._mode is AutoresetMode.DISABLED or not done.any():
            infos = _masked(info, np.ones_like(done))
        else:
            # `final_obs` and `final_info` hold the values that a reset replaced.
            last = as_observation(self.observation_space, final_obs)
            rows = np.full(self.num_envs, None, dtype=object)
            for i in np.flatnonzero(done):
                rows[i] = last[i].copy()
            infos = {
                "final_obs": rows,
                "_final_obs": done.copy(),
                "final_info": _masked(info, done),
                "_final_info": done.copy(),
                **_masked(info, ~done),
            }
        self._ended = done
        rewards = reward.astype(np.float64)
        return self._obs.copy(), rewards, terminated.copy(), truncated.copy(), infos

    def render(self) -> tuple[Any, ...] | None:
        """Return a picture of each sub-environment, or None if you asked for no `render_mode`."""
        if self.render_mode is None or self._states is None:
            gymnasium.logger.warn(
                "render needs render_mode='rgb_array' and episodes that reset has started."
            )
            return None
        render, state = getattr(self.env, "render"), self._states[1]  # noqa: B009  (no member of the protocol)
        return tuple(
            render(jax.tree.map(lambda leaf, i=i: leaf[i], state)) for i in range(self.num_envs)
        )

    def _reset_one(
        self, key: jax.Array, chosen: jax.Array, kept: KeyedState | None
    ) -> tuple[KeyedState, jax.Array]:
        fresh, obs = reset_env(self.env, key)
        return (fresh if kept is None else _where(chosen, fresh, kept)), obs

    def _step_one(
        self, state: KeyedState, action: jax.Array, ended: jax.Array
    ) -> tuple[KeyedState, jax.Array, tuple[Any, ...]]:
        """Step one environment. Return its state, its last observation and the user's results."""
        stepped, (final_obs, reward, terminated, truncated, info) = step_env(
            self.env, state, action
        )
        if self._mode is AutoresetMode.DISABLED:
            return stepped, final_obs, (final_obs, reward, terminated, truncated, info)
        if self._mode is AutoresetMode.SAME_STEP:
            renewed = terminated | truncated
            key, _ = stepped
        else:
            # The step after the last one only resets, without a reward or an end.
            renewed = ended
            key, _ = state
            reward = jnp.where(ended, 0, reward)
            terminated = terminated & ~ended
            truncated = truncated & ~ended
        fresh, first_obs = reset_env(self.env, key)
        obs = _where(renewed, first_obs, final_obs)
        state = _where(renewed, fresh, stepped)
        return state, final_obs, (obs, reward, terminated, truncated, info)

    def _keys(self, seed: int | Sequence[int | None] | None) -> jax.Array:
        """Return the key of each sub-environment's next reset, `[N]`."""
        if isinstance(seed, int | np.integer):
            return make_keys(within_64_bits(int(seed) + i) for i in range(self.num_envs))
        seeds = [None] * self.num_envs if seed is None else seed
        if (
            not isinstance(seeds, Sequence | np.ndarray)
            or len(seeds) != self.num_envs
            or not all(each is None or (is_integer(each) and each >= 0) for each in seeds)
        ):
            rule = f"must hold {self.num_envs} integers of at least 0 or None"
            raise InvalidArgumentError("seed", rule, seed)
        if self._states is None:
            drawn = self.np_random.integers(2**32, size=self.num_envs)
            seeds = [d if s is None else s for s, d in zip(seeds, drawn, strict=True)]
            return make_keys(map(within_64_bits, seeds))
        given = np.array([each is not None for each in seeds])
        keys = make_keys(0 if each is None else within_64_bits(each) for each in seeds)
        return jnp.where(given, keys, self._states[0])


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
    return (key, state), obs


def step_env(
    env: Environment, state: KeyedState, action: jax.Array
) -> tuple[KeyedState, tuple[Any, ...]]:
    """Advance by one step. Return the state, and obs, reward, terminated, truncated and info."""
    key, inner = state
    key, step_key = jax.random.split(key)
    obs, inner, *results = env.step(step_key, inner, action, env.default_params)
    return (key, inner), (obs, *results)


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
    if not isinstance(space, Box):
        raise InvalidArgumentError(f"{space!r} has no counterpart in Gymnasium; use a Box.")
    if not space.is_whole:
        low, high = (np.array(bound) for bound in finite_bounds(space))
        one_value = low == high
        # Widen a dimension with a single value to the two neighbouring floats.
        low[one_value] = np.nextafter(low[one_value], np.float32(-np.inf))
        high[one_value] = np.nextafter(high[one_value], np.float32(np.inf))
        return gymnasium.spaces.Box(low, high, space.shape, np.float32)
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


def _where(chosen: jax.Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda new, old: jnp.where(chosen, new, old), new, old)


def _masked(info: dict[str, Any], mask: np.ndarray) -> dict[str, Any]:
    """Return `info`, leaves `[N, ...]`, as Gymnasium stacks it: zeros where `mask` is False."""
    infos: dict[str, Any] = {}
    if not mask.any():
        return infos
    for key, value in info.items():
        if isinstance(value, dict):
            infos[key] = _masked(value, mask)
        else:
            infos[key] = np.where(
                mask.reshape(mask.shape + (1,) * (value.ndim - 1)), value, np.zeros_like(value)
            )
        infos[f"_{key}"] = mask.copy()
    return infos
