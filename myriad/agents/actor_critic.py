"""What SAC and TD3 share: an actor and two critics that learn from a replay buffer.

In docstrings `N` is the environments, `S` the gradient steps of an update, `B` the transitions of
one, `D` the size of a flat observation, `C` the components of an action, `P` all parameters and `Q`
those of a critic. Choices of actions are from -1 to 1 and span the box.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax

from myriad.agents.agent import Environments, Fraction, State, WidthsOrSame
from myriad.agents.networks import NetworkSpec
from myriad.agents.networks.mlp import flatten
from myriad.agents.normalization import RunningMoments, normalize_obs, update_moments
from myriad.agents.policies import GaussianPolicy
from myriad.agents.q_learning import QNetwork
from myriad.agents.replay import ReplayLearner, Step, n_step
from myriad.agents.trajectory import act_and_step
from myriad.engine.gpu_loops import repeat_or_skip
from myriad.engine.random import Counter
from myriad.envs.vector import BatchState
from myriad.errors import InvalidArgumentError
from myriad.spaces import Box

# Folded into a key for each purpose, so that no two draws share a stream.
_COLLECT, _SAMPLE, _NOISE = range(3)


@dataclasses.dataclass(frozen=True)
class TwinCritics:
    """Two networks that value a choice of numbers. Parameters are `[2, Q]`.

    A choice, `[B, C]`, is appended to the last axis of the observation, as further numbers or
    channels.
    """

    spec: NetworkSpec
    num_choices: int

    @cached_property
    def network(self) -> QNetwork:
        """One of them."""
        *axes, last = self.obs_shape
        shape = (*axes, last + self.num_choices)
        return QNetwork(dataclasses.replace(self.spec, obs_shape=shape), 1)

    @property
    def obs_shape(self) -> tuple[int, ...]:
        """The shape of an observation, to whose last axis a choice is appended."""
        shape = self.spec.obs_shape or (1,)  # A single number has no axes.
        is_plain_grid = len(shape) == 2 and self.spec.name != "mlp"
        return (*shape, 1) if is_plain_grid else shape

    @cached_property
    def size(self) -> int:
        """The number of parameters of one of them, `Q`."""
        return jax.eval_shape(self.network.init, jax.random.key(0)).shape[0]

    def values(self, params: jax.Array, obs: jax.Array, choice: jax.Array) -> jax.Array:
        """Return both values, `[2, B]`, of prepared observations `[B, D]` and choices `[B, C]`."""
        shape = self.obs_shape
        choice = choice.reshape(-1, *[1] * (len(shape) - 1), choice.shape[1])
        choices = jnp.broadcast_to(choice, (obs.shape[0], *shape[:-1], choice.shape[-1]))
        inputs = flatten(jnp.concatenate([obs.reshape(-1, *shape), choices], axis=-1))
        return jnp.stack([self.network.values(each, inputs)[:, 0] for each in params])


@dataclasses.dataclass(frozen=True)
class ReplayActorCritic(ReplayLearner[State]):
    """An actor and two critics. A subclass has `num_outputs`, `init`, `explore` and `learn`.

    Until learning starts, actions are uniform. Values bootstrap through truncation. The state has
    the fields `obs_stats` and `privileged_stats` as well, and parameters are those of the actor and
    then of both critics.

    Attributes:
        polyak: the share of the target networks that stays when they follow.
        critic_network: network of the critics; None for that of the actor.
        critic_hidden_sizes: widths of its hidden layers; None for those of the actor.
    """

    polyak: Fraction = 0.995
    critic_network: str | None = None
    critic_hidden_sizes: WidthsOrSame = None
    trains_critic: ClassVar[bool] = True
    per_device: ClassVar[frozenset[str] | None] = frozenset({"replay"})

    @property
    def num_outputs(self) -> int:
        """The width of the actor's output."""
        raise NotImplementedError

    def explore(self, state: State, keys: jax.Array, obs: jax.Array) -> jax.Array:
        """Choose `[N, C]` with keys `[N]` for observations `[N, *O]` once learning has started."""
        raise NotImplementedError

    @property
    def steps_per_update(self) -> int:
        return 1

    def require_fit(self) -> None:
        """Raise InvalidArgumentError if actions have no bounds or the networks can't be used."""
        super().require_fit()
        for network in (self.actor, self.critics.network):
            network.require_outputs()

    @classmethod
    def defaults_for(
        cls, num_envs: int, total_steps: int | None, chosen: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Take a gradient step for each transition, but fewer with many environments."""
        many = super().defaults_for(num_envs, total_steps, chosen)
        return {"gradient_steps": min(num_envs, 64)} | many

    def drawn_params(self, key: jax.Array) -> list[jax.Array]:
        """Draw the parameters of the actor and of both critics."""
        networks = (self.actor, self.critics.network, self.critics.network)
        return [net.init(jax.random.fold_in(key, i)) for i, net in enumerate(networks)]

    def first_fields(self, num_envs: int) -> dict[str, Any]:
        """Return the first values of the state's fields that are not learned."""
        window = self.first_window(num_envs, (self.num_choices,), jnp.float32)
        obs_size, normalizes = self.actor.obs_size, self.normalize_observations
        num_privileged = window.obs.shape[-1] - obs_size
        privileged = RunningMoments.create((num_privileged,)) if self.sees_privileged else None
        return {
            "num_updates": Counter.of(0),
            "replay": self.ring(num_envs).init(n_step(window, self.gamma)),
            "obs_stats": RunningMoments.create((obs_size,)) if normalizes else None,
            "privileged_stats": privileged if normalizes else None,
        }

    def collect(
        self, key: jax.Array, state: Any, batch_state: BatchState, envs: Environments
    ) -> tuple[Any, BatchState, None]:
        """Take a step of all environments and write it into the buffer."""

        def choose(keys: jax.Array, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
            learns = self.learns(state, obs.shape[0])
            choice = jnp.where(learns, self.explore(state, keys, obs), self.uniform(keys))
            return self.policy.action(choice), choice

        obs: Any = flatten(batch_state.obs)
        key, first = jax.random.fold_in(key, _COLLECT), jnp.uint32(0)
        batch_state, choice, result = act_and_step(key, first, batch_state, choose, envs)
        final_obs, ring = flatten(result.final_obs), self.ring(obs.shape[0])
        ended = (result.terminated, result.truncated)
        step = Step(obs, choice, result.reward, *ended, final_obs).held_by(ring)
        row = n_step(jax.tree.map(lambda leaf: leaf[None], step), self.gamma)
        replay = ring.write(state.replay, row)
        privileged = obs[:, self.actor.obs_size :]
        state = dataclasses.replace(
            state,
            replay=replay,
            obs_stats=update_moments(state.obs_stats, obs, envs.mean),
            privileged_stats=update_moments(state.privileged_stats, privileged, envs.mean),
        )
        return state, batch_state, None

    def act(self, state: Any, key: jax.Array, obs: jax.Array, *, greedy: bool) -> jax.Array:
        """Choose `[N, *A]` for observations `[N, *O]`: the mode if `greedy`, else to explore."""
        if greedy:
            return self.policy.action(self.mode(self.outputs(state, obs)))
        return self.policy.action(self.explore(state, jax.random.split(key, obs.shape[0]), obs))

    def outputs(self, state: Any, obs: jax.Array) -> jax.Array:
        """Return the actor's outputs, `[N, num_outputs]`, for observations `[N, *O]`."""
        actor, _ = self.split(state.params)
        seen = flatten(obs)[:, : self.actor.obs_size]
        return self.actor.values_in_blocks(actor, seen, state.obs_stats)

    def mode(self, outputs: jax.Array) -> jax.Array:
        """Return the choices, `[N, C]`, in the middle: the tangent of the first outputs."""
        return jnp.tanh(outputs[:, : self.num_choices])

    def seen(self, state: Any, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return what actor and critics see of flat observations, `[B, D]` each, normalised."""
        obs, privileged = jnp.split(obs, [self.actor.obs_size], axis=1)
        seen = normalize_obs(state.obs_stats, obs)
        if not self.sees_privileged:
            return seen, seen
        return seen, normalize_obs(state.privileged_stats, privileged)

    def uniform(self, keys: jax.Array) -> jax.Array:
        """Draw choices `[N, C]` from -1 to 1 with keys `[N]`."""
        shape = (self.num_choices,)
        keys = jax.vmap(lambda key: jax.random.fold_in(key, 1))(keys)  # `explore` draws, too.
        return jax.vmap(lambda key: jax.random.uniform(key, shape, minval=-1.0))(keys)

    def take_steps(
        self,
        key: jax.Array,
        state: Any,
        batch_state: BatchState,
        noise_shape: tuple[int, ...],
        train_step: Callable[[Any, Any, jax.Array], tuple[Any, dict[str, jax.Array]]],
    ) -> tuple[Any, dict[str, jax.Array]]:
        """Take the gradient steps of an update. Metrics are 0 before learning starts.

        `train_step` maps the state, rows and the number of the step to the next state and the
        metrics. Rows are a batch, leaves `[B, ...]`, and its standard normal noise, `[B,
        *noise_shape]`.
        """
        num_envs = flatten(batch_state.obs).shape[0]
        # One gather and one draw for all steps of the update.
        ring, shape = self.ring(num_envs), (self.gradient_steps, self.batch_size)
        slots = ring.draw(jax.random.fold_in(key, _SAMPLE), state.replay, math.prod(shape))
        batch = ring.at(state.replay, slots)
        batch = jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), batch)
        noise = jax.random.normal(jax.random.fold_in(key, _NOISE), (*shape, *noise_shape))

        def step(i: jax.Array, carry: Any) -> Any:
            state, totals = carry
            rows = jax.tree.map(lambda leaf: leaf[i], (batch, noise))
            state, metrics = train_step(state, rows, i)
            return state, jax.tree.map(jnp.add, totals, metrics)

        zeros = {name: jnp.zeros((), jnp.float32) for name in self.metric_names}
        nothing: Any = None  # The loop doesn't change the buffer, so it doesn't carry it.
        carry: Any = (dataclasses.replace(state, replay=nothing), zeros)
        learns = self.learns(state, num_envs)
        after, totals = repeat_or_skip(learns, self.gradient_steps, step, carry)
        after = dataclasses.replace(after, replay=state.replay, num_updates=state.num_updates + 1)
        return after, {name: total / self.gradient_steps for name, total in totals.items()}

    def followed(self, target: jax.Array, params: jax.Array) -> jax.Array:
        """Return target parameters a step nearer to the learned ones, float32."""
        params = params.astype(jnp.float32)
        return params + self.polyak * (target - params)

    def named_params(self, state: Any) -> dict[str, Any]:
        return {"actor": self.actor.unravel(self.split(state.params)[0])}

    def split(self, params: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the parameters of the actor, and those of the critics, `[2, Q]`."""
        size = self.critics.size
        return params[: -2 * size], params[-2 * size :].reshape(2, size)

    @cached_property
    def policy(self) -> GaussianPolicy:
        """Maps choices to actions. Raises InvalidArgumentError if these have no bounds."""
        space: Any = self.env.action_space(self.env.default_params)
        bounds = (space.low, space.high) if isinstance(space, Box) else (np.inf,)
        if not all(np.isfinite(bound).all() for bound in bounds):
            rule = "must be a Box with bounds for SAC and TD3; ppo learns other actions"
            raise InvalidArgumentError("action_space", rule, space)
        return GaussianPolicy(space)

    @property
    def num_choices(self) -> int:
        """The components of an action, `C`."""
        return self.policy.num_outputs

    @cached_property
    def actor(self) -> QNetwork:
        """The network that chooses."""
        return QNetwork(NetworkSpec.of(self), self.num_outputs)

    @cached_property
    def critics(self) -> TwinCritics:
        """The networks that value choices."""
        return TwinCritics(NetworkSpec.of(self, "critic"), self.num_choices)

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """Adam without the learning rate."""
        return optax.scale_by_adam()
