"""Copies of a Myriad environment as one `gymnasium.vector.VectorEnv`, imported on first use."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.utils import EzPickle
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from myriad.adapters.gymnasium import (
    RENDER_FPS,
    ActionAdapter,
    KeyedState,
    as_observation,
    gymnasium_space,
    refuse_options,
    render_modes,
    reset_env,
    step_env,
    within_64_bits,
)
from myriad.engine.random import make_keys
from myriad.envs.environment import Environment
from myriad.errors import InvalidArgumentError
from myriad.registry import is_integer


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
        mask = self._reset_mask(options)
        everything = bool(mask.all())
        self._states, obs = self._reset(
            self._keys(seed), mask, None if everything else self._states
        )
        obs = as_observation(self.observation_space, obs)
        if not everything:
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
        infos = self._infos(info, final_obs, done)
        self._ended = done
        return (
            self._obs.copy(),
            reward.astype(np.float64),
            terminated.copy(),
            truncated.copy(),
            infos,
        )

    def render(self) -> tuple[Any, ...] | None:
        """Return a picture of each sub-environment, or None if you asked for no `render_mode`."""
        if self.render_mode is None or self._states is None:
            gymnasium.logger.warn(
                "render needs render_mode='rgb_array' and episodes that reset has started."
            )
            return None
        render, state = getattr(self.env, "render"), self._states.env_state  # noqa: B009  (no member of the protocol)
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
            key = stepped.key
        else:
            # The step after the last one only resets, without a reward or an end.
            renewed = ended
            key = state.key
            reward = jnp.where(ended, 0, reward)
            terminated = terminated & ~ended
            truncated = truncated & ~ended
        fresh, first_obs = reset_env(self.env, key)
        obs = _where(renewed, first_obs, final_obs)
        return (
            _where(renewed, fresh, stepped),
            final_obs,
            (obs, reward, terminated, truncated, info),
        )

    def _infos(
        self, info: dict[str, Any], final_obs: jax.Array, done: np.ndarray
    ) -> dict[str, Any]:
        """Return the infos in Gymnasium's vector format.

        `final_obs` and `final_info` hold the values that a reset replaced.
        """
        if self._mode is AutoresetMode.NEXT_STEP:
            return _masked(info, ~self._ended)
        if self._mode is AutoresetMode.DISABLED or not done.any():
            return _masked(info, np.ones_like(done))
        last = as_observation(self.observation_space, final_obs)
        rows = np.full(self.num_envs, None, dtype=object)
        for i in np.flatnonzero(done):
            rows[i] = last[i].copy()
        final = {
            "final_obs": rows,
            "_final_obs": done.copy(),
            "final_info": _masked(info, done),
            "_final_info": done.copy(),
        }
        return final | _masked(info, ~done)

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
        drawn = (
            self.np_random.integers(2**32, size=self.num_envs)
            if self._states is None
            else np.zeros(self.num_envs)
        )
        given = np.array([value is not None for value in seeds])
        chosen = (int(d if s is None else s) for s, d in zip(seeds, drawn, strict=True))
        keys = make_keys(map(within_64_bits, chosen))
        return keys if self._states is None else jnp.where(given, keys, self._states.key)

    def _reset_mask(self, options: dict[str, Any] | None) -> np.ndarray:
        if options is None or "reset_mask" not in options:
            return np.ones(self.num_envs, bool)
        mask = np.asarray(options["reset_mask"])
        if mask.dtype != bool or mask.shape != (self.num_envs,) or not mask.any():
            rule = f"must be {self.num_envs} booleans of which one is True"
            raise InvalidArgumentError("reset_mask", rule, options["reset_mask"])
        if self._states is None and not mask.all():
            raise InvalidArgumentError("reset_mask", "must be True for all at first", mask)
        return mask


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
