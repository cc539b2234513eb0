"""The parts that DQN and PQN share: Q-networks on one parameter vector, and the choice of actions.

SAC and TD3 have their networks from here, too: an actor's outputs are those of its policy.
In docstrings `B` is any batch, `D` the size of a flat observation, `A` the number of actions or of
all choices of a `MultiDiscrete`, `C` its components and `P` the number of parameters.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from myriad.agents.minibatches import MANY_ENVS, map_over_blocks
from myriad.agents.networks import NetworkSpec
from myriad.agents.normalization import RunningMoments, normalize_obs
from myriad.agents.policies import ILLEGAL, legal_outputs
from myriad.engine.vector_math import argmax
from myriad.envs import Environment
from myriad.envs.wrappers import nvec_of
from myriad.errors import InvalidArgumentError
from myriad.spaces import Discrete, MultiDiscrete

_EXPLORED = 0.2  # The share of a training during which epsilon falls.


@dataclasses.dataclass(frozen=True)
class QNetwork:
    """A network of Q-values whose parameters are one vector, `[P]`.

    On one vector an optimiser is a loop or two, whatever the number of layers. With `dueling`, the
    last layer outputs a value and advantages whose mean is subtracted (Wang et al. 2016, equation
    9), and both share all hidden layers.

    The value of an action of a `MultiDiscrete` is the sum of its components' values, for each of
    which the network has a head. So the best action is the best of each component. The heads are
    those of Tavakoli et al. (2018), "Action branching architectures", and the sum is that of
    Sunehag et al. (2018), "Value-decomposition networks". `nvec` is empty for a `Discrete`.
    """

    spec: NetworkSpec
    num_actions: int
    dueling: bool = False
    nvec: tuple[int, ...] = ()

    @classmethod
    def of(cls, learner: Any, *, dueling: bool = False) -> "QNetwork":
        """Build the network of a learner of discrete actions."""
        space = learner.env.action_space(learner.env.default_params)
        nvec = space.nvec if isinstance(space, MultiDiscrete) else ()
        return cls(NetworkSpec.of(learner, "q"), sum(nvec_of(space)), dueling, nvec)

    def init(self, key: jax.Array) -> jax.Array:
        """Draw initial parameters, `[P]`."""
        return ravel_pytree(self.module.init(key, self._no_obs))[0]

    def values(self, params: jax.Array, obs: jax.Array) -> jax.Array:
        """Return Q-values, float32 `[B, A]`, of flat observations `[B, D]`, also with a mask."""
        obs, mask = jnp.split(obs, [self.obs_size], axis=1)
        layers = self.unravel(params.astype(jnp.float32))
        return self._values(self.module.apply(layers, obs), mask)

    def step(self, params: jax.Array, memory: Any, obs: jax.Array) -> tuple[Any, jax.Array]:
        """Return the next memory and what `values` returns, of a network with a memory."""
        obs, mask = jnp.split(obs, [self.obs_size], axis=1)
        layers = self.unravel(params.astype(jnp.float32))
        memory, outputs = self.module.step(layers, memory, obs)
        return memory, self._values(outputs, mask)

    def _values(self, outputs: jax.Array, mask: jax.Array) -> jax.Array:
        outputs = outputs.astype(jnp.float32)
        heads = self._heads(outputs[:, -self.num_actions :])
        if self.dueling:
            value = outputs[:, :1] / len(heads)
            heads = [value + head - jnp.mean(head, axis=1, keepdims=True) for head in heads]
        if mask.shape[1]:
            heads = [legal_outputs(*each) for each in zip(heads, self._heads(mask), strict=True)]
        return jnp.concatenate(heads, axis=1)

    def best_action(self, values: jax.Array) -> jax.Array:
        """Return the action of the highest value, the first of several: int32 `[B]` or `[B, C]`."""
        return self._action([argmax(head, axis=1) for head in self._heads(values)])

    def best_value(self, values: jax.Array) -> jax.Array:
        """Return the highest value that an action has, `[B]`."""
        return functools.reduce(jnp.add, [jnp.max(head, axis=1) for head in self._heads(values)])

    def value_of(self, values: jax.Array, action: jax.Array) -> jax.Array:
        """Return each action's value, `[B]`."""
        heads, parts = self._heads(values), []
        for head, chosen in zip(heads, action.reshape(-1, len(heads)).T, strict=True):
            # A masked sum is faster than a gather.
            is_chosen = chosen[:, None] == jnp.arange(head.shape[1], dtype=jnp.int32)[None]
            parts.append(jnp.sum(jnp.where(is_chosen, head, 0), axis=1))
        return functools.reduce(jnp.add, parts)

    def epsilon_greedy(
        self, keys: jax.Array, values: jax.Array, epsilon: jax.Array, *, masked: bool
    ) -> jax.Array:
        """Choose as `epsilon_greedy` does. Each component explores by itself."""
        components = []
        for i, head in enumerate(self._heads(values)):
            own = jax.vmap(jax.random.fold_in, (0, None))(keys, i) if self.nvec else keys
            components.append(epsilon_greedy(own, head, epsilon, masked=masked))
        return self._action(components)

    def _heads(self, values: jax.Array) -> list[jax.Array]:
        """Return the values of each component's choices, `[B, nvec[i]]`."""
        return jnp.split(values, np.cumsum(self.nvec)[:-1], axis=1) if self.nvec else [values]

    def _action(self, components: list[jax.Array]) -> jax.Array:
        return jnp.stack(components, axis=1) if self.nvec else components[0]

    def values_in_blocks(
        self, params: jax.Array, obs: jax.Array, stats: RunningMoments | None
    ) -> jax.Array:
        """Return the values of unprepared observations, for batches that need no gradient."""
        return map_over_blocks(lambda rows: self.values(params, normalize_obs(stats, rows)), obs)

    @cached_property
    def module(self) -> Any:
        """The network in flax. Small last weights give no action much of an advantage at first."""
        return self.spec.build(self.num_outputs, output_scale=0.01)

    @property
    def obs_size(self) -> int:
        """The size of a flat observation, `D`."""
        return math.prod(self.spec.obs_shape)

    @property
    def num_outputs(self) -> int:
        """The width of the last layer."""
        return self.num_actions + 1 if self.dueling else self.num_actions

    def require_outputs(self) -> None:
        """Raise the errors of `NetworkSpec.require_outputs`."""
        self.spec.require_outputs(self.num_outputs)

    @cached_property
    def _no_obs(self) -> np.ndarray:
        return np.zeros((1, self.obs_size), np.float32)

    @cached_property
    def unravel(self) -> Callable[[jax.Array], Any]:
        """Maps parameters, `[P]`, to those that `module.apply` takes: a dict of layers."""
        shapes = jax.eval_shape(self.module.init, jax.random.key(0), self._no_obs)
        # The result is cached beyond the trace that first asks for it, so it must hold no tracer.
        with jax.ensure_compile_time_eval():
            return ravel_pytree(
                jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
            )[1]


def exploration_steps(kind: Any, num_envs: int, total_steps: int | None) -> int:
    """Return the steps over which epsilon falls: a fifth of the training.

    With fewer than `MANY_ENVS` environments it is at most the default of `kind`, the learner's
    class.
    """
    explored = max(1, int(_EXPLORED * (total_steps or kind.default_total_steps(num_envs))))
    return explored if num_envs >= MANY_ENVS else min(kind.exploration_steps, explored)


def epsilon_greedy(
    keys: jax.Array, values: jax.Array, epsilon: jax.Array, *, masked: bool = False
) -> jax.Array:
    """Choose the best action under `values`, `[B, A]`, or with probability `epsilon` any action.

    `keys` is `[B]`, `epsilon` is `[]` or `[B]`, and the actions are int32 `[B]`. With `masked`, no
    action of value `ILLEGAL` is chosen.
    """
    num_actions = values.shape[1]
    explore, which = jax.vmap(lambda key: jax.random.bits(key, (2,)))(keys).T
    # The bias of the remainder is below num_actions / 2**32.
    anything = (which % np.uint32(num_actions)).astype(jnp.int32)
    if masked:
        rank = jnp.cumsum(values > ILLEGAL, axis=1, dtype=jnp.uint32)
        # The first action with more legal ones up to it than the number that was drawn.
        drawn = which % rank[:, -1]
        anything = jnp.sum(rank <= drawn[:, None], axis=1, dtype=jnp.int32)
    # float32 holds 24 bits exactly, so epsilon 0 never explores and epsilon 1 always does.
    explores = (explore >> 8).astype(jnp.float32) < epsilon * np.float32(1 << 24)
    return jnp.where(explores, anything, argmax(values, axis=1))


def linear(start: float, end: float | jax.Array, fraction: jax.Array) -> jax.Array:
    """Go linearly from `start` to `end` while `fraction` goes from 0 to 1, and stay there."""
    return start + (end - start) * jnp.minimum(fraction, 1)


def require_discrete_actions(learner: type, env: Environment) -> None:
    """Raise InvalidArgumentError unless the actions of `env` are discrete."""
    space = env.action_space(env.default_params)
    if not isinstance(space, Discrete | MultiDiscrete):
        rule = f"must have finitely many actions for {learner.__name__}; ppo learns others"
        raise InvalidArgumentError(type(env).__name__, rule, space)
