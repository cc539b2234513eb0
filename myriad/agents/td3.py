"""TD3: learn a deterministic policy from a replay buffer and two critics.

In docstrings `N` is the environments, `B` the transitions of a gradient step, `D` the size of a
flat observation, `C` the components of an action, `A` the actor's parameters and `Q` those of a
critic. Choices of actions are from -1 to 1 and span the box.
"""

import dataclasses
import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
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
    Weight,
)
from myriad.agents.gradients import GradientLearner, Learned, before_learning, gradient_step
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

# Folded into a key for each purpose, so that no two draws share a stream.
_COLLECT, _SAMPLE, _NOISE = range(3)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TD3State:
    """The state that learning changes.

    Attributes:
        actor: the parameters of the actor, `[A]`, with the state of their optimiser.
        critics: the parameters of both critics one after the other, `[2 Q]`, with theirs.
        target_params: the slow copy of the actor and then of the critics, float32, `[A + 2 Q]`.
        num_updates: updates done.
        replay: the buffer, with observations as the environment gave them, flattened.
        obs_stats: moments of the observations, `[D]`; None without normalisation.
    """

    actor: Learned
    critics: Learned
    target_params: jax.Array
    num_updates: Counter
    replay: ReplayState
    obs_stats: RunningMoments | None

    @property
    def params(self) -> jax.Array:
        """The parameters of the actor and then of the critics, `[A + 2 Q]`."""
        return jnp.concatenate([self.actor.params, self.critics.params])


@dataclasses.dataclass(frozen=True)
class TD3(GradientLearner[TD3State]):
    """Fujimoto et al. (2018), "Addressing function approximation error in actor-critic methods".

    This is algorithm 1. An update is one step of every environment, then `gradient_steps` steps on
    samples of the buffer. There are none until `learning_starts` transitions were seen, and actions
    are uniform until then. Values bootstrap through truncation.

    Attributes:
        gradient_steps: gradient steps of the critics in an update.
        policy_delay: gradient steps of the critics for each of the actor and of the targets.
        batch_size: transitions of a gradient step, `B`.
        buffer_size: transitions that the buffer holds.
        learning_starts: transitions before the first gradient step.
        learning_rate: learning rate of Adam.
        gamma: the discount.
        polyak: the share of the target networks that stays when they follow.
        exploration_noise: deviation of the noise of actions while training, where -1 to 1 spans the
            box.
        target_noise: deviation of the noise of actions in targets.
        target_noise_clip: the most that this noise may be.
    """

    gradient_steps: Repetitions = 8
    policy_delay: Repetitions = 2
    batch_size: Count = 256
    buffer_size: Count = 100_000
    learning_starts: ManySteps = 1_000
    learning_rate: Positive = 1e-3
    gamma: Fraction = 0.99
    polyak: Fraction = 0.995
    exploration_noise: Weight = 0.1
    target_noise: Weight = 0.2
    target_noise_clip: Weight = 0.5
    activation: str = "relu"
    losses: ClassVar[tuple[str, ...]] = ("actor_loss", "critic_loss")
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

    def init(self, key: jax.Array, num_envs: int) -> TD3State:
        """Draw the networks' parameters and allocate the buffer."""
        networks = (self._actor, self._critics.network, self._critics.network)
        drawn = [net.init(jax.random.fold_in(key, i)) for i, net in enumerate(networks)]
        obs, _ = jax.eval_shape(self.env.reset, make_key(0), self.env.default_params)
        no_obs = jnp.zeros((num_envs, self._actor.obs_size), obs.dtype)
        no_choice = jnp.zeros((num_envs, self.policy.num_choices), jnp.float32)
        no_reward = jnp.zeros(num_envs, jnp.float32)
        row = Experience(no_obs, no_choice, no_reward, no_reward, no_obs)
        moments = RunningMoments.create(no_obs.shape[1:])
        return TD3State(
            actor=before_learning(self, drawn[0]),
            critics=before_learning(self, jnp.concatenate(drawn[1:])),
            target_params=jnp.concatenate(drawn).astype(jnp.float32),
            num_updates=Counter.of(0),
            replay=ReplayRing(self.buffer_size, num_envs).init(row),
            obs_stats=moments if self.normalize_observations else None,
        )

    def collect(
        self, key: jax.Array, state: TD3State, batch_state: BatchState, envs: Environments
    ) -> tuple[TD3State, BatchState, None]:
        """Take a step of all environments and write it into the buffer."""
        obs: Any = flatten(batch_state.obs)
        learns = state.num_updates.reaches(self.first_learning_update(obs.shape[0]) - 1)

        def choose(keys: jax.Array, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
            choice = jnp.where(learns, self._noisy(state, keys, obs), self._uniform(keys))
            return self.policy.action(choice), choice

        key, first = jax.random.fold_in(key, _COLLECT), jnp.uint32(0)
        batch_state, choice, result = act_and_step(key, first, batch_state, choose, envs)
        discount = jnp.where(result.terminated, 0, jnp.full_like(result.reward, self.gamma))
        row = Experience(obs, choice, result.reward, discount, flatten(result.final_obs))
        replay = ReplayRing(self.buffer_size, obs.shape[0]).write(state.replay, row)
        obs_stats = update_moments(state.obs_stats, obs, envs.mean)
        return dataclasses.replace(state, replay=replay, obs_stats=obs_stats), batch_state, None

    def learn(
        self, key: jax.Array, state: TD3State, batch_state: BatchState, experience: None, mean: Mean
    ) -> tuple[TD3State, dict[str, jax.Array]]:
        """Take the gradient steps. Metrics are 0 before learning starts."""
        num_envs = flatten(batch_state.obs).shape[0]
        ring, shape = ReplayRing(self.buffer_size, num_envs), (self.gradient_steps, self.batch_size)
        # One gather and one draw for all steps of the update.
        slots = ring.draw(jax.random.fold_in(key, _SAMPLE), state.replay, math.prod(shape))
        batch = ring.at(state.replay, slots)
        batch = jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), batch)
        noise_key = jax.random.fold_in(key, _NOISE)
        noise = jax.random.normal(noise_key, (*shape, self.policy.num_choices))

        def train_step(i: jax.Array, carry: Any) -> Any:
            state, totals = carry
            rows = jax.tree.map(lambda leaf: leaf[i], (batch, noise))

            def critic_loss(params: jax.Array, rows: Any) -> Any:
                loss = self.critic_loss(state, params, *rows)
                return loss, {"critic_loss": loss}

            critics, metrics = gradient_step(
                self, critic_loss, state.critics, rows, self.learning_rate, mean
            )
            state = dataclasses.replace(state, critics=critics)
            # Counted over all updates, since an update may be a single step.
            num_steps = state.num_updates.low * np.uint32(self.gradient_steps) + i + 1
            is_actors_turn = num_steps % np.uint32(self.policy_delay) == 0
            state, actor_loss = jax.lax.cond(
                is_actors_turn, actor_step, lambda state, _: (state, jnp.float32(0)), state, rows[0]
            )
            metrics["actor_loss"] = self.policy_delay * actor_loss
            return state, {name: total + metrics[name] for name, total in totals.items()}

        def actor_step(state: TD3State, batch: Experience) -> tuple[TD3State, jax.Array]:
            def loss(params: jax.Array, batch: Experience) -> Any:
                loss = self.actor_loss(state, params, batch)
                return loss, {"actor_loss": loss}

            actor, metrics = gradient_step(self, loss, state.actor, batch, self.learning_rate, mean)
            state = dataclasses.replace(state, actor=actor)
            params = state.params.astype(jnp.float32)
            target = params + self.polyak * (state.target_params - params)
            return dataclasses.replace(state, target_params=target), metrics["actor_loss"]

        zeros = {name: jnp.zeros((), jnp.float32) for name in self.metric_names}
        learns = state.num_updates.reaches(self.first_learning_update(num_envs) - 1)
        nothing: Any = None  # The loop doesn't change the buffer, so it doesn't carry it.
        carry: Any = (dataclasses.replace(state, replay=nothing), zeros)
        after, totals = repeat_or_skip(learns, self.gradient_steps, train_step, carry)
        after = dataclasses.replace(after, replay=state.replay, num_updates=state.num_updates + 1)
        return after, {name: total / self.gradient_steps for name, total in totals.items()}

    def critic_loss(
        self, state: TD3State, params: jax.Array, batch: Experience, noise: jax.Array
    ) -> jax.Array:
        """Return the mean squared error of both critics. `noise`, `[B, C]`, is standard normal."""
        obs, next_obs = (normalize_obs(state.obs_stats, x) for x in (batch.obs, batch.next_obs))
        actor, critics = self._split(state.target_params)
        limit = self.target_noise_clip
        noise = jnp.clip(self.target_noise * noise, -limit, limit)
        choice = jnp.clip(self.policy.mode(self._actor.values(actor, next_obs)) + noise, -1, 1)
        next_value = jnp.min(self._critics.values(critics, next_obs, choice), axis=0)
        target = batch.reward + batch.discount * next_value
        critics = params.reshape(2, -1)
        errors = self._critics.values(critics, obs, batch.action) - target
        return jnp.mean(jnp.sum(jnp.square(errors), axis=0))

    def actor_loss(self, state: TD3State, params: jax.Array, batch: Experience) -> jax.Array:
        """Return minus the mean value of the actor's choices by the first critic."""
        obs = normalize_obs(state.obs_stats, batch.obs)
        critics = state.critics.params.reshape(2, -1)
        choice = self.policy.mode(self._actor.values(params, obs))
        return -jnp.mean(self._critics.values(critics[:1], obs, choice))

    def act(self, state: TD3State, key: jax.Array, obs: jax.Array, *, greedy: bool) -> jax.Array:
        """Choose `[N, *A]` for observations `[N, *O]`, with noise unless `greedy`."""
        if greedy:
            return self.policy.action(self._choice(state, obs))
        return self.policy.action(self._noisy(state, jax.random.split(key, obs.shape[0]), obs))

    def outputs(self, params: jax.Array, inputs: jax.Array) -> jax.Array:
        """Return the outputs of all networks, `[B, C + 2]`, for prepared ones `[B, D]`."""
        actor, critics = self._split(params)
        outputs = self._actor.values(actor, inputs)
        values = self._critics.values(critics, inputs, self.policy.mode(outputs))
        return jnp.concatenate([outputs, values.T], axis=1)

    def _choice(self, state: TD3State, obs: jax.Array) -> jax.Array:
        outputs = self._actor.values_in_blocks(state.actor.params, flatten(obs), state.obs_stats)
        return self.policy.mode(outputs)

    def _noisy(self, state: TD3State, keys: jax.Array, obs: jax.Array) -> jax.Array:
        shape = (self.policy.num_choices,)
        noise = jax.vmap(lambda key: jax.random.normal(key, shape))(keys)
        return jnp.clip(self._choice(state, obs) + self.exploration_noise * noise, -1, 1)

    def _uniform(self, keys: jax.Array) -> jax.Array:
        shape = (self.policy.num_choices,)
        keys = jax.vmap(lambda key: jax.random.fold_in(key, 1))(keys)  # `_noisy` draws, too.
        return jax.vmap(lambda key: jax.random.uniform(key, shape, minval=-1.0))(keys)

    def _split(self, params: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the parameters of the actor, and those of the critics, `[2, Q]`."""
        size = self._critics.size
        return params[: -2 * size], params[-2 * size :].reshape(2, size)

    @cached_property
    def policy(self) -> SquashedGaussianPolicy:
        """The choices of actions. Raises InvalidArgumentError if they have no bounds."""
        space: Any = self.env.action_space(self.env.default_params)
        return SquashedGaussianPolicy(space)

    @cached_property
    def _actor(self) -> QNetwork:
        return QNetwork(NetworkSpec.of(self), self.policy.num_choices)

    @cached_property
    def _critics(self) -> TwinCritics:
        return TwinCritics(self._actor.spec, self.policy.num_choices)

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """Adam without the learning rate, for the actor and for the critics."""
        return optax.scale_by_adam()
