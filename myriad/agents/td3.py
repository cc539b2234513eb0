"""TD3: learn a deterministic policy from a replay buffer and two critics.

In docstrings `N` is the environments, `B` the transitions of a gradient step, `D` the size of a
flat observation, `C` the components of an action, `A` the actor's parameters and `Q` those of a
critic. Choices of actions are from -1 to 1 and span the box.
"""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from myriad.agents.actor_critic import ReplayActorCritic
from myriad.agents.agent import Mean, Positive, Repetitions, Weight
from myriad.agents.gradients import Learned, before_learning, gradient_step
from myriad.agents.normalization import RunningMoments
from myriad.agents.replay import Experience, ReplayState
from myriad.engine.random import Counter
from myriad.envs.vector import BatchState


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
        privileged_stats: moments of what only the critics see; None if there is nothing.
    """

    actor: Learned
    critics: Learned
    target_params: jax.Array
    num_updates: Counter
    replay: ReplayState
    obs_stats: RunningMoments | None
    privileged_stats: RunningMoments | None

    @property
    def params(self) -> jax.Array:
        """The parameters of the actor and then of the critics, `[A + 2 Q]`."""
        return jnp.concatenate([self.actor.params, self.critics.params])


@dataclasses.dataclass(frozen=True)
class TD3(ReplayActorCritic[TD3State]):
    """Fujimoto et al. (2018), "Addressing function approximation error in actor-critic methods".

    This is algorithm 1. `gradient_steps` are those of the critics.

    Attributes:
        policy_delay: gradient steps of the critics for each of the actor and of the targets.
        exploration_noise: deviation of the noise of actions while training, where -1 to 1 spans the
            box.
        target_noise: deviation of the noise of actions in targets.
        target_noise_clip: the most that this noise may be.
    """

    learning_rate: Positive = 1e-3
    policy_delay: Repetitions = 2
    exploration_noise: Weight = 0.1
    target_noise: Weight = 0.2
    target_noise_clip: Weight = 0.5
    losses: ClassVar[tuple[str, ...]] = ("actor_loss", "critic_loss")

    @property
    def num_outputs(self) -> int:
        """The width of the actor's output."""
        return self.num_choices

    def init(self, key: jax.Array, num_envs: int) -> TD3State:
        """Draw the networks' parameters and allocate the buffer."""
        drawn = self.drawn_params(key)
        return TD3State(
            actor=before_learning(self, drawn[0]),
            critics=before_learning(self, jnp.concatenate(drawn[1:])),
            target_params=jnp.concatenate(drawn).astype(jnp.float32),
            **self.first_fields(num_envs),
        )

    def learn(
        self, key: jax.Array, state: TD3State, batch_state: BatchState, experience: None, mean: Mean
    ) -> tuple[TD3State, dict[str, jax.Array]]:
        """Take the gradient steps. Metrics are 0 before learning starts."""

        def train_step(state: TD3State, rows: Any, i: jax.Array) -> Any:
            def loss(params: jax.Array, rows: Any) -> Any:
                loss = self.critic_loss(state, params, *rows)
                return loss, {"critic_loss": loss}

            critics, metrics = gradient_step(
                self, loss, state.critics, rows, self.learning_rate, mean
            )
            state = dataclasses.replace(state, critics=critics)
            # Counted over all updates, since an update may be a single step.
            num_steps = state.num_updates.low * np.uint32(self.gradient_steps) + i + 1
            is_actors_turn = num_steps % np.uint32(self.policy_delay) == 0
            state, actor_loss = jax.lax.cond(
                is_actors_turn, actor_step, lambda state, _: (state, jnp.float32(0)), state, rows[0]
            )
            return state, metrics | {"actor_loss": self.policy_delay * actor_loss}

        def actor_step(state: TD3State, batch: Experience) -> tuple[TD3State, jax.Array]:
            def loss(params: jax.Array, batch: Experience) -> Any:
                loss = self.actor_loss(state, params, batch)
                return loss, {"actor_loss": loss}

            actor, metrics = gradient_step(self, loss, state.actor, batch, self.learning_rate, mean)
            state = dataclasses.replace(state, actor=actor)
            target = self.followed(state.target_params, state.params)
            return dataclasses.replace(state, target_params=target), metrics["actor_loss"]

        noise_shape = (self.num_choices,)
        return self.take_steps(key, state, batch_state, noise_shape, train_step)

    def critic_loss(
        self, state: TD3State, params: jax.Array, batch: Experience, noise: jax.Array
    ) -> jax.Array:
        """Return the mean squared error of both critics. `noise`, `[B, C]`, is standard normal."""
        _, of_critic = self.seen(state, batch.obs)
        next_obs, next_of_critic = self.seen(state, batch.next_obs)
        actor, critics = self.split(state.target_params)
        limit = self.target_noise_clip
        noise = jnp.clip(self.target_noise * noise, -limit, limit)
        choice = jnp.clip(self.mode(self.actor.values(actor, next_obs)) + noise, -1, 1)
        next_value = jnp.min(self.critics.values(critics, next_of_critic, choice), axis=0)
        target = batch.reward + batch.discount * next_value
        critics = params.reshape(2, -1)
        errors = batch.counted(self.critics.values(critics, of_critic, batch.action) - target[None])
        return jnp.mean(jnp.sum(jnp.square(errors), axis=0))

    def actor_loss(self, state: TD3State, params: jax.Array, batch: Experience) -> jax.Array:
        """Return minus the mean value of the actor's choices by the first critic."""
        obs, of_critic = self.seen(state, batch.obs)
        critics = state.critics.params.reshape(2, -1)
        choice = self.mode(self.actor.values(params, obs))
        return -jnp.mean(self.critics.values(critics[:1], of_critic, choice))

    def explore(self, state: TD3State, keys: jax.Array, obs: jax.Array) -> jax.Array:
        """Choose `[N, C]` with noise and keys `[N]`."""
        noise = jax.vmap(lambda key: jax.random.normal(key, (self.num_choices,)))(keys)
        choice = self.mode(self.outputs(state, obs))
        return jnp.clip(choice + self.exploration_noise * noise, -1, 1)
