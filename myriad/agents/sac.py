"""Soft actor-critic: learn a policy that is rewarded for its entropy, from a replay buffer.

In docstrings `N` is the environments, `B` the transitions of a gradient step, `D` the size of a
flat observation, `C` the components of an action, `P` all parameters and `Q` those of a critic.
"""

import dataclasses
import math
from collections.abc import Mapping
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar, Self

import jax
import jax.numpy as jnp
import optax

from myriad.agents.agent import (
    DEFAULT_TOTAL_STEPS,
    Count,
    Environments,
    Fraction,
    ManySteps,
    Mean,
    Positive,
    Repetitions,
)
from myriad.agents.gradients import (
    GradientLearner,
    Learned,
    LossScale,
    before_learning,
    gradient_step,
)
from myriad.agents.minibatches import MANY_ENVS, require_whole_parts, steps_for_many
from myriad.agents.networks import NetworkSpec
from myriad.agents.networks.mlp import flatten
from myriad.agents.normalization import RunningMoments, normalize_obs, update_moments
from myriad.agents.q_learning import QNetwork, TwinCritics
from myriad.agents.replay import Experience, ReplayRing, ReplayState, share_replay
from myriad.agents.squashed_gaussian import SquashedGaussianPolicy
from myriad.agents.trajectory import act_and_step
from myriad.counters import Counter
from myriad.envs.vector import BatchState
from myriad.loops import repeat_or_skip
from myriad.random import make_key
from myriad.ranges import Number

# Folded into a key for each purpose, so that no two draws share a stream.
_COLLECT, _SAMPLE, _NOISE = range(3)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SACState:
    """The state that learning changes.

    Attributes:
        params: the parameters of the actor and then of both critics, `[P]`.
        opt_state: the state of their optimiser.
        loss_scale: the scale of their loss for float16; None if gradients need none.
        target_params: the slow copies of both critics, always float32, `[2, Q]`.
        log_temperature: the logarithm of the weight of the entropy, always float32, a scalar.
        temperature_opt_state: the state of its own optimiser.
        num_updates: updates done.
        replay: the buffer, with observations as the environment gave them, flattened.
        obs_stats: moments of the observations, `[D]`; None without normalisation.
    """

    params: jax.Array
    opt_state: optax.OptState
    loss_scale: LossScale | None
    target_params: jax.Array
    log_temperature: jax.Array
    temperature_opt_state: optax.OptState
    num_updates: Counter
    replay: ReplayState
    obs_stats: RunningMoments | None


@dataclasses.dataclass(frozen=True)
class SAC(GradientLearner[SACState]):
    """Haarnoja et al. (2018), "Soft actor-critic algorithms and applications", algorithm 1.

    An update is one step of every environment, then `gradient_steps` steps on samples of the
    buffer. There are none until `learning_starts` transitions were seen. A step changes actor,
    critics, temperature and targets together. Values bootstrap through truncation. Densities are
    those of actions scaled to -1 to 1. A critic gets the action appended to the observation's last
    axis, as further numbers or channels.

    Attributes:
        gradient_steps: gradient steps in an update.
        batch_size: transitions of a gradient step, `B`.
        buffer_size: transitions that the buffer holds.
        learning_starts: transitions before the first gradient step.
        learning_rate: learning rate of Adam, for all that is learned.
        gamma: the discount.
        polyak: the share of the target networks that stays in a gradient step.
        target_entropy: the policy's entropy, in nats, that the temperature is learned to keep; None
            for minus the number of an action's components.
    """

    gradient_steps: Repetitions = 8
    batch_size: Count = 256
    buffer_size: Count = 100_000
    learning_starts: ManySteps = 1_000
    learning_rate: Positive = 3e-4
    gamma: Fraction = 0.99
    polyak: Fraction = 0.995
    target_entropy: Annotated[float | None, Number(words=(None,))] = None
    activation: str = "relu"
    losses: ClassVar[tuple[str, ...]] = ("actor_loss", "critic_loss", "entropy", "temperature")
    default_num_envs: ClassVar[int] = 8
    per_device: ClassVar[frozenset[str] | None] = frozenset({"replay"})

    @property
    def steps_per_update(self) -> int:
        """Steps of every environment in one update."""
        return 1

    def require_fit(self) -> None:
        """Raise InvalidArgumentError if actions have no bounds or the networks can't be used."""
        require_whole_parts(self.batch_size, self.gradient_accumulation)
        for network in (self._actor, self._critics.network):
            network.require_outputs()

    @classmethod
    def defaults_for(
        cls, num_envs: int, total_steps: int | None, chosen: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Take a gradient step for each transition, but fewer with many environments."""
        many = {"buffer_size": 500_000, "learning_starts": 20_000} if num_envs >= MANY_ENVS else {}
        return {"gradient_steps": min(num_envs, 64)} | many

    def default_total_steps(self, num_envs: int) -> int:
        """Return the steps of all environments together in a training of unknown length."""
        return steps_for_many(num_envs, DEFAULT_TOTAL_STEPS, 2_000)

    def on_each_of(self, num_devices: int) -> Self:
        """Give each device its share of the batch, of the buffer and of the steps that count."""
        return share_replay(self, num_devices, "learning_starts")

    def first_learning_update(self, num_envs: int) -> int:
        """Return the first update that learns, from 1."""
        return math.ceil(self.learning_starts / num_envs)

    def init(self, key: jax.Array, num_envs: int) -> SACState:
        """Draw the networks' parameters and allocate the buffer."""
        networks = (self._actor, self._critics.network, self._critics.network)
        drawn = [net.init(jax.random.fold_in(key, i)) for i, net in enumerate(networks)]
        obs, _ = jax.eval_shape(self.env.reset, make_key(0), self.env.default_params)
        no_obs = jnp.zeros((num_envs, self._actor.obs_size), obs.dtype)
        no_choice = jnp.zeros((num_envs, self.policy.num_choices), jnp.float32)
        no_reward, zero = jnp.zeros(num_envs, jnp.float32), jnp.zeros((), jnp.float32)
        row = Experience(no_obs, no_choice, no_reward, no_reward, no_obs)
        moments = RunningMoments.create(no_obs.shape[1:])
        return SACState(
            *before_learning(self, jnp.concatenate(drawn)),
            target_params=jnp.stack(drawn[1:]).astype(jnp.float32),
            log_temperature=zero,
            temperature_opt_state=self.optimizer.init(zero),
            num_updates=Counter.of(0),
            replay=ReplayRing(self.buffer_size, num_envs).init(row),
            obs_stats=moments if self.normalize_observations else None,
        )

    def collect(
        self, key: jax.Array, state: SACState, batch_state: BatchState, envs: Environments
    ) -> tuple[SACState, BatchState, None]:
        """Take a step of all environments and write it into the buffer."""

        def choose(keys: jax.Array, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
            choice = self._choice(state, keys, obs)
            return self.policy.action(choice), choice

        obs: Any = flatten(batch_state.obs)
        key, first = jax.random.fold_in(key, _COLLECT), jnp.uint32(0)
        batch_state, choice, result = act_and_step(key, first, batch_state, choose, envs)
        discount = jnp.where(result.terminated, 0, jnp.full_like(result.reward, self.gamma))
        row = Experience(obs, choice, result.reward, discount, flatten(result.final_obs))
        replay = ReplayRing(self.buffer_size, obs.shape[0]).write(state.replay, row)
        obs_stats = update_moments(state.obs_stats, obs, envs.mean)
        return dataclasses.replace(state, replay=replay, obs_stats=obs_stats), batch_state, None

    def learn(
        self, key: jax.Array, state: SACState, batch_state: BatchState, experience: None, mean: Mean
    ) -> tuple[SACState, dict[str, jax.Array]]:
        """Take the gradient steps. Metrics are 0 before learning starts."""
        # One gather and one draw for all steps of the update.
        num_envs = flatten(batch_state.obs).shape[0]
        ring, shape = ReplayRing(self.buffer_size, num_envs), (self.gradient_steps, self.batch_size)
        slots = ring.draw(jax.random.fold_in(key, _SAMPLE), state.replay, math.prod(shape))
        batch = ring.at(state.replay, slots)
        batch = jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), batch)
        noise_key = jax.random.fold_in(key, _NOISE)
        noise = jax.random.normal(noise_key, (*shape, 2, self.policy.num_choices))

        def train_step(i: jax.Array, carry: Any) -> Any:
            state, totals = carry
            rows = jax.tree.map(lambda leaf: leaf[i], (batch, noise))
            learned = Learned(state.params, state.opt_state, state.loss_scale)
            loss = partial(self.loss, state)
            learned, metrics = gradient_step(self, loss, learned, rows, self.learning_rate, mean)
            gradient = jax.grad(self.temperature_loss)(state.log_temperature, metrics["entropy"])
            step: Any
            step, opt_state = self.optimizer.update(gradient, state.temperature_opt_state)
            _, critics = self._split(learned.params.astype(jnp.float32))
            state = dataclasses.replace(
                state,
                **learned._asdict(),
                target_params=critics + self.polyak * (state.target_params - critics),
                log_temperature=state.log_temperature - self.learning_rate * step,
                temperature_opt_state=opt_state,
            )
            return state, jax.tree.map(jnp.add, totals, metrics)

        zeros = {name: jnp.zeros((), jnp.float32) for name in self.metric_names}
        learns = state.num_updates.reaches(self.first_learning_update(num_envs) - 1)
        nothing: Any = None  # The loop doesn't change the buffer, so it doesn't carry it.
        carry: Any = (dataclasses.replace(state, replay=nothing), zeros)
        after, totals = repeat_or_skip(learns, self.gradient_steps, train_step, carry)
        after = dataclasses.replace(after, replay=state.replay, num_updates=state.num_updates + 1)
        return after, {name: total / self.gradient_steps for name, total in totals.items()}

    def loss(
        self, state: SACState, params: jax.Array, rows: tuple[Experience, jax.Array]
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Return the losses of critics and actor (equations 5 and 9), added up, and the metrics.

        No parameter has a gradient from both. The rows are a batch and standard normal noise,
        `[B, 2, C]`, for the actions after `next_obs` and those after `obs`.
        """
        batch, noise = rows
        actor, critics = self._split(params)
        temperature = jnp.exp(state.log_temperature)
        obs, next_obs = (normalize_obs(state.obs_stats, x) for x in (batch.obs, batch.next_obs))

        outputs = self._actor.values(jax.lax.stop_gradient(actor), next_obs)
        choice, log_prob = self.policy.sample(outputs, noise[:, 0])
        next_value = jnp.min(self._critics.values(state.target_params, next_obs, choice), axis=0)
        target = batch.reward + batch.discount * (next_value - temperature * log_prob)
        errors = self._critics.values(critics, obs, batch.action) - target
        critic_loss = 0.5 * jnp.mean(jnp.sum(jnp.square(errors), axis=0))

        choice, log_prob = self.policy.sample(self._actor.values(actor, obs), noise[:, 1])
        value = jnp.min(self._critics.values(jax.lax.stop_gradient(critics), obs, choice), axis=0)
        actor_loss = jnp.mean(temperature * log_prob - value)
        metrics = (actor_loss, critic_loss, -jnp.mean(log_prob), temperature)
        return actor_loss + critic_loss, dict(zip(self.losses, metrics, strict=True))

    def temperature_loss(self, log_temperature: jax.Array, entropy: jax.Array) -> jax.Array:
        """Return the loss of the temperature (equation 18) for the policy's mean entropy."""
        target = -self.policy.num_choices if self.target_entropy is None else self.target_entropy
        return jnp.exp(log_temperature) * (entropy - target)

    def named_params(self, state: SACState) -> dict[str, Any]:
        """Return the actor's parameters by layer."""
        return {"actor": self._actor.unravel(self._split(state.params)[0])}

    def act(self, state: SACState, key: jax.Array, obs: jax.Array, *, greedy: bool) -> jax.Array:
        """Choose `[N, *A]` for observations `[N, *O]`: the mode if `greedy`, else a draw."""
        keys = None if greedy else jax.random.split(key, obs.shape[0])
        return self.policy.action(self._choice(state, keys, obs))

    def outputs(self, params: jax.Array, inputs: jax.Array) -> jax.Array:
        """Return the outputs of all networks, `[B, 2 C + 2]`, for prepared ones `[B, D]`."""
        actor, critics = self._split(params)
        outputs = self._actor.values(actor, inputs)
        values = self._critics.values(critics, inputs, self.policy.mode(outputs))
        return jnp.concatenate([outputs, values.T], axis=1)

    def _choice(self, state: SACState, keys: jax.Array | None, obs: jax.Array) -> jax.Array:
        """Draw choices `[N, C]` with keys `[N]`, or without keys return the modes."""
        actor, _ = self._split(state.params)
        outputs = self._actor.values_in_blocks(actor, flatten(obs), state.obs_stats)
        if keys is None:
            return self.policy.mode(outputs)
        noise = jax.vmap(lambda key: jax.random.normal(key, (self.policy.num_choices,)))(keys)
        return self.policy.sample(outputs, noise)[0]

    def _split(self, params: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the parameters of the actor, and those of the critics, `[2, Q]`."""
        size = self._critics.size
        return params[: -2 * size], params[-2 * size :].reshape(2, size)

    @cached_property
    def policy(self) -> SquashedGaussianPolicy:
        """The distribution over actions. Raises InvalidArgumentError if they have no bounds."""
        space: Any = self.env.action_space(self.env.default_params)
        return SquashedGaussianPolicy(space)

    @cached_property
    def _actor(self) -> QNetwork:
        return QNetwork(NetworkSpec.of(self), 2 * self.policy.num_choices)

    @cached_property
    def _critics(self) -> TwinCritics:
        return TwinCritics(self._actor.spec, self.policy.num_choices)

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """Adam without the learning rate, for the networks and for the temperature."""
        return optax.scale_by_adam()
