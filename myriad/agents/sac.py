"""Soft actor-critic: learn a policy that is rewarded for its entropy, from a replay buffer.

In docstrings `N` is the environments, `B` the transitions of a gradient step, `D` the size of a
flat observation, `C` the components of an action, `P` all parameters and `Q` those of a critic.
"""

import dataclasses
import math
from functools import partial
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import optax
from flax.training.dynamic_scale import DynamicScale

from myriad.agents.actor_critic import ReplayActorCritic
from myriad.agents.agent import Mean, PositiveOrOff
from myriad.agents.gradients import Learned, before_learning, gradient_step
from myriad.agents.normalization import RunningMoments
from myriad.agents.policies import LOG_STD_RANGE, log_slope_of_tanh
from myriad.agents.replay import Experience, ReplayState
from myriad.engine.random import Counter
from myriad.envs.vector import BatchState
from myriad.ranges import Number


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
        privileged_stats: moments of what only the critics see; None if there is nothing.
    """

    params: jax.Array
    opt_state: optax.OptState
    loss_scale: DynamicScale | None
    target_params: jax.Array
    log_temperature: jax.Array
    temperature_opt_state: optax.OptState
    num_updates: Counter
    replay: ReplayState
    obs_stats: RunningMoments | None
    privileged_stats: RunningMoments | None


@dataclasses.dataclass(frozen=True)
class SAC(ReplayActorCritic[SACState]):
    """Haarnoja et al. (2018), "Soft actor-critic algorithms and applications", algorithm 1.

    A gradient step changes actor, critics, temperature and targets together. Densities are those of
    actions scaled to -1 to 1.

    Attributes:
        target_entropy: the policy's entropy, in nats, that the temperature is learned to keep; None
            for minus the number of an action's components.
        temperature: the weight of the entropy; None to learn it.
        actor_learning_rate: learning rate of the actor; None for `learning_rate`.
        critic_learning_rate: learning rate of the critics; None for `learning_rate`.
        temperature_learning_rate: learning rate of the temperature; None for `learning_rate`.
    """

    target_entropy: Annotated[float | None, Number(words=(None,))] = None
    temperature: Annotated[float | None, Number(0, words=(None,))] = None
    actor_learning_rate: PositiveOrOff = None
    critic_learning_rate: PositiveOrOff = None
    temperature_learning_rate: PositiveOrOff = None
    losses: ClassVar[tuple[str, ...]] = ("actor_loss", "critic_loss", "entropy", "temperature")

    @property
    def unused(self) -> dict[str, str]:
        """What learning the temperature needs, with a fixed one."""
        if self.temperature is None:
            return super().unused
        names = ("target_entropy", "temperature_learning_rate")
        return super().unused | dict.fromkeys(names, "with a fixed temperature")

    @property
    def num_outputs(self) -> int:
        """The width of the actor's output: a mean and a deviation of each component."""
        return 2 * self.num_choices

    def init(self, key: jax.Array, num_envs: int) -> SACState:
        """Draw the networks' parameters and allocate the buffer."""
        drawn, zero = self.drawn_params(key), jnp.zeros((), jnp.float32)
        return SACState(
            *before_learning(self, jnp.concatenate(drawn)),
            target_params=jnp.stack(drawn[1:]).astype(jnp.float32),
            log_temperature=zero,
            temperature_opt_state=self.optimizer.init(zero),
            **self.first_fields(num_envs),
        )

    def learn(
        self, key: jax.Array, state: SACState, batch_state: BatchState, experience: None, mean: Mean
    ) -> tuple[SACState, dict[str, jax.Array]]:
        """Take the gradient steps. Metrics are 0 before learning starts."""
        own = (self.actor_learning_rate, self.critic_learning_rate, self.temperature_learning_rate)
        of_actor, of_critics, of_temperature = (
            self.learning_rate if rate is None else rate for rate in own
        )
        is_actors = jnp.arange(state.params.size) < self.split(state.params)[0].size
        rates = jnp.where(is_actors, of_actor, of_critics)

        def train_step(state: SACState, rows: Any, i: jax.Array) -> Any:
            learned = Learned(state.params, state.opt_state, state.loss_scale)
            loss = partial(self.loss, state)
            learned, metrics = gradient_step(self, loss, learned, rows, rates, mean)
            _, critics = self.split(learned.params)
            state = dataclasses.replace(
                state,
                **learned._asdict(),
                target_params=self.followed(state.target_params, critics),
            )
            if self.temperature is not None:
                return state, metrics
            gradient = jax.grad(self.temperature_loss)(state.log_temperature, metrics["entropy"])
            step: Any
            step, opt_state = self.optimizer.update(gradient, state.temperature_opt_state)
            state = dataclasses.replace(
                state,
                log_temperature=state.log_temperature - of_temperature * step,
                temperature_opt_state=opt_state,
            )
            return state, metrics

        noise_shape = (2, self.num_choices)
        return self.take_steps(key, state, batch_state, noise_shape, train_step)

    def loss(
        self, state: SACState, params: jax.Array, rows: tuple[Experience, jax.Array]
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Return the losses of critics and actor (equations 5 and 9), added up, and the metrics.

        No parameter has a gradient from both. The rows are a batch and standard normal noise,
        `[B, 2, C]`, for the actions after `next_obs` and those after `obs`.
        """
        batch, noise = rows
        actor, critics = self.split(params)
        temperature = jnp.exp(state.log_temperature)
        if self.temperature is not None:
            temperature = jnp.float32(self.temperature)
        (obs, of_critic), (next_obs, next_of_critic) = (
            self.seen(state, x) for x in (batch.obs, batch.next_obs)
        )

        outputs = self.actor.values(jax.lax.stop_gradient(actor), next_obs)
        choice, log_prob = self.sample(outputs, noise[:, 0])
        next_value = jnp.min(
            self.critics.values(state.target_params, next_of_critic, choice), axis=0
        )
        target = batch.reward + batch.discount * (next_value - temperature * log_prob)
        errors = batch.counted(self.critics.values(critics, of_critic, batch.action) - target[None])
        critic_loss = 0.5 * jnp.mean(jnp.sum(jnp.square(errors), axis=0))

        choice, log_prob = self.sample(self.actor.values(actor, obs), noise[:, 1])
        value = jnp.min(
            self.critics.values(jax.lax.stop_gradient(critics), of_critic, choice), axis=0
        )
        actor_loss = jnp.mean(temperature * log_prob - value)
        metrics = (actor_loss, critic_loss, -jnp.mean(log_prob), temperature)
        return actor_loss + critic_loss, dict(zip(self.losses, metrics, strict=True))

    def temperature_loss(self, log_temperature: jax.Array, entropy: jax.Array) -> jax.Array:
        """Return the loss of the temperature (equation 18) for the policy's mean entropy."""
        target = -self.num_choices if self.target_entropy is None else self.target_entropy
        return jnp.exp(log_temperature) * (entropy - target)

    def explore(self, state: SACState, keys: jax.Array, obs: jax.Array) -> jax.Array:
        """Draw choices `[N, C]` with keys `[N]`."""
        noise = jax.vmap(lambda key: jax.random.normal(key, (self.num_choices,)))(keys)
        return self.sample(self.outputs(state, obs), noise)[0]

    def sample(self, outputs: jax.Array, noise: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return choices, `[N, C]`, and their log densities, `[N]`, for standard normal noise.

        Choices are the hyperbolic tangent of a diagonal Gaussian (appendix C). The outputs,
        `[N, 2 C]`, are its means, then the logarithms of its deviations.
        """
        mean, log_std = jnp.split(outputs, 2, axis=1)
        log_std = jnp.clip(log_std, *LOG_STD_RANGE)
        drawn = mean + jnp.exp(log_std) * noise
        log_prob = -0.5 * jnp.square(noise) - log_std - 0.5 * math.log(2 * math.pi)
        return jnp.tanh(drawn), jnp.sum(log_prob - log_slope_of_tanh(drawn), axis=1)
