"""Evaluation: the mean return of whole episodes of a policy, in one compiled program."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from myriad.agents.agent import Learner
from myriad.engine.gpu_loops import while_loop
from myriad.engine.random import Counter, make_key
from myriad.envs import ENVIRONMENTS, Environment
from myriad.envs.vector import BatchState, Parameters, VectorEnv, float_parameters

# Folded into the key of an evaluation during a training and of one by itself. So an evaluation
# shares no key with the training, nor with an evaluation of the other kind under an equal seed.
_DURING_TRAINING, _ALONE = 0xE7, 0xE8

Infos = dict[str, jax.Array]
_Carry = tuple[jax.Array, BatchState, Any, jax.Array, jax.Array, Infos]


def evaluation_key(key: jax.Array, num_updates: Counter) -> jax.Array:
    """Return the key of the evaluation after `num_updates` of the run that began with `key`."""
    return num_updates.key(key, _DURING_TRAINING)


def key_alone(seed: int) -> jax.Array:
    """Return the key of an evaluation by itself."""
    return jax.random.fold_in(make_key(seed), _ALONE)


class Evaluation:
    """Episodes side by side, each in its own environment, until all have ended.

    Args:
        env: the environment.
        learner: the agent.
        num_episodes: how many episodes.
        max_steps: steps after which an episode is cut off.
    """

    def __init__(self, env: Environment, learner: Learner, num_episodes: int, *, max_steps: int):
        self._max_steps = max_steps
        self._learner = learner
        self._env = env
        self._num_episodes = num_episodes
        self._floats = float_parameters(env)

    @property
    def env_params(self) -> Any:
        """The environment's `float_parameters`, float32 `[P]`, as `episodes` takes them."""
        return Parameters(self._env, self._num_episodes, floats=self._floats).values

    @functools.cached_property
    def _informed(self) -> Any:
        return _Informed.of(self._env)

    def returns(
        self, agent: Any, key: jax.Array, env_params: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Return the first two results of `episodes`."""
        return self.episodes(agent, key, env_params)[:2]

    def episodes(
        self, agent: Any, key: jax.Array, env_params: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array, jax.Array, Infos]:
        """Run one episode in each environment.

        Args:
            agent: the learner's state.
            key: the key of the evaluation.
            env_params: the values of `env_params`. Without them they are constants of the program.

        Returns:
            each episode's return, float32 `[num_episodes]`, whether it ended within `max_steps`,
            its number of steps, int32, and the scalars of `info` at its last step, each
            `[num_episodes]`. The return of an episode that was cut off counts up to there.
        """
        envs = VectorEnv(self._informed, self._num_episodes, floats=self._floats)
        env_index = jnp.arange(self._num_episodes, dtype=jnp.uint32)
        keys_of = jax.vmap(jax.random.fold_in, in_axes=(None, 0))

        def running(carry: _Carry) -> jax.Array:
            step, batch_state, *_ = carry
            return (step < self._max_steps) & jnp.any(batch_state.num_episodes == 0)

        def body(carry: _Carry) -> _Carry:
            step, batch_state, memory, returns, lengths, infos = carry
            act_key, step_key = (
                jax.random.fold_in(jax.random.fold_in(key, step), purpose) for purpose in range(2)
            )
            seen: Any = batch_state.obs
            action, memory = self._learner.control(agent, memory, act_key, seen[0], greedy=True)
            step_keys = keys_of(step_key, env_index)
            before = batch_state.num_episodes
            # Step and reset may share keys: after its first reset, an environment's results are
            # ignored.
            batch_state, transition = envs.step(
                batch_state, action, step_keys, step_keys, env_params
            )
            final: Any = transition.final_obs
            first_ended = (before == 0) & (batch_state.num_episodes == 1)
            return (
                step + 1,
                batch_state,
                memory,
                jnp.where(first_ended, batch_state.return_sum, returns),
                jnp.where(before == 0, step.astype(jnp.int32) + 1, lengths),
                {name: jnp.where(before == 0, new, infos[name]) for name, new in final[1].items()},
            )

        # No step has this number, so the reset shares no key with a step.
        batch_state = envs.reset(
            keys_of(jax.random.fold_in(key, jnp.uint32(0xFFFFFFFF)), env_index), (), env_params
        )
        seen: Any = batch_state.obs
        start = (
            jnp.zeros((), jnp.uint32),
            batch_state,
            self._learner.first_memory(env_index.shape[0]),
            jnp.zeros(env_index.shape, jnp.float32),
            jnp.zeros(env_index.shape, jnp.int32),
            seen[1],
        )
        _, batch_state, _, returns, lengths, infos = while_loop(running, body, start)
        ended = batch_state.num_episodes > 0
        return jnp.where(ended, returns, batch_state.episode_return), ended, lengths, infos


@dataclasses.dataclass(frozen=True)
class _Informed:
    """An environment whose observation is a pair: its own, and the scalars of its `info`.

    An auto-reset keeps the last observation of an episode, and no `info`.
    """

    env: Any
    step_env: Any
    scalars: Mapping[str, Any]

    @classmethod
    def of(cls, env: Any) -> "_Informed":
        # Myriad's own environments have no such scalars, and tracing a step takes a while.
        is_own = type(env).__module__.startswith("myriad.")
        if is_own and ENVIRONMENTS.name_of(type(env)) is not None:
            return cls(env, env.step, {})
        params = env.default_params

        def first(step: Any, key: jax.Array) -> Any:
            _, state = env.reset(key, params)
            return step(key, state, env.action_space(params).sample(key), params)[5]

        step = jax.jit(env.step)  # The evaluation uses the same trace.
        try:
            info = jax.eval_shape(functools.partial(first, step), make_key(0))
        except jax.errors.JAXTypeError:
            step = env.step  # It traces only with constants as parameters.
            info = jax.eval_shape(functools.partial(first, step), make_key(0))
        info.pop("discount", None)  # gymnax's factor of each step says nothing of an episode.
        scalars = {
            name: leaf
            for name, leaf in info.items()
            # Neither a nested dict nor an array.
            if getattr(leaf, "shape", None) == ()
            and (jnp.issubdtype(leaf.dtype, jnp.number) or leaf.dtype == bool)
        }
        return cls(env, step, scalars)

    @property
    def default_params(self) -> Any:
        return self.env.default_params

    def reset(self, key: jax.Array, params: Any) -> tuple[Any, Any]:
        obs, state = self.env.reset(key, params)
        zeros = {name: jnp.zeros((), leaf.dtype) for name, leaf in self.scalars.items()}
        return (obs, zeros), state

    def step(self, key: jax.Array, state: Any, action: Any, params: Any) -> Any:
        obs, *others, info = self.step_env(key, state, action, params)
        return (obs, {name: info[name] for name in self.scalars}), *others, info
