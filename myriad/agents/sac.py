"""Soft actor-critic: learn a policy that is rewarded for its entropy, from a replay buffer.

In docstrings `N` is the number of environments, `B` the transitions of a gradient step, `D` the
size of a flattened observation, `C` the components of an action, `P` the number of parameters and
`Q` those of one critic.
"""

import dataclasses
import math
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
import optax

from myriad.agents.agent import DEFAULT_TOTAL_STEPS, Environments, Learner, Mean
from myriad.agents.gradients import (
    GRADIENT_METRICS,
    Learned,
    LossScale,
    before_learning,
    gradient_step,
)
from myriad.agents.hyperparameters import Count, Fraction, ManySteps, Positive, Repetitions, Widths
from myriad.agents.minibatches import MANY_ENVS, require_whole_parts, steps_for_many
from myriad.agents.networks import NetworkSpec, flatten, network_defaults
from myriad.agents.normalization import (
    RunningMoments,
    discounted_return,
    normalize_obs,
    scale_rewards,
    update_moments,
)
from myriad.agents.policies import SquashedGaussianPolicy
from myriad.agents.precision import DYNAMIC
from myriad.agents.q_learning import QNetwork
from myriad.agents.replay import Experience, ReplayRing, ReplayState
from myriad.agents.trajectory import act_and_step
from myriad.counters import Counter
from myriad.envs import Environment
from myriad.envs.vector import BatchState
from myriad.errors import InvalidArgumentError
from myriad.loops import repeat_or_skip
from myriad.random import make_key
from myriad.ranges import Integer, Number, require_ranges
from myriad.spaces import Box

# Folded into a key for each purpose, so that no two draws share a stream.
_ACTOR, _CRITIC, _OTHER_CRITIC = range(3)
_COLLECT, _SAMPLE, _NOISE = range(3)
_METRICS = ("actor_loss", "critic_loss", "entropy", "temperature")
# With many environments take at most so many gradient steps in an update.
_MOST_GRADIENT_STEPS = 64
# Steps of each of many environments in a training.
_STEPS_PER_ENV = 2_000


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SACState:
    """The state that learning changes. Moments are None if their normalisation is off.

    Attributes:
        params: the parameters of the actor and then of both critics as one vector, `[P]`.
        opt_state: the optimiser's state.
        loss_scale: the scale of the loss for float16; None if gradients need none.
        target_params: the critics' slow copies, always float32, `[2, Q]`.
        log_temperature: the logarithm of the weight of the entropy, float32 scalar.
        temperature_opt_state: the state of its optimiser.
        num_updates: updates done.
        replay: the buffer; observations in it are as the environment gave them, flattened.
        obs_stats: moments of the observations, `[D]`.
        return_stats: moments of the discounted return.
        running_return: the discounted return of the running episodes, `[N]`.
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
    return_stats: RunningMoments | None
    running_return: jax.Array


@dataclasses.dataclass(frozen=True)
class SAC(Learner[SACState]):
    """Haarnoja et al. (2018), "Soft actor-critic algorithms and applications", algorithm 1.

    An update is one step of every environment, then `gradient_steps` steps on samples of the
    buffer, each of which changes actor, critics, temperature and target networks together. There
    are no gradient steps until `learning_starts` transitions were seen. A value bootstraps through
    truncation. Actions must be in a bounded Box; log densities are those of actions scaled to -1
    to 1. A critic gets the action next to the observation, in every cell if that is a grid.

    Attributes:
        env: the environment, for its spaces.
        gradient_steps: gradient steps in an update.
        batch_size: transitions of a gradient step, `B`.
        buffer_size: transitions that the buffer holds.
        learning_starts: transitions before the first gradient step.
        learning_rate: learning rate of Adam, for all that is learned.
        gamma: the discount.
        polyak: the share of the target networks that stays in a gradient step.
        target_entropy: the entropy, in nats, that the temperature is learned to keep; None for
            minus the number of components of an action.
        gradient_accumulation: parts that a batch is cut into. Their gradients are averaged before a
            step, so that activations take less memory.
        gradient_statistics: report the norms of the gradient, of each step and of the parameters.
        network: mlp, another name in docs/networks.md, or `module:Class` of your own.
        attention: implementation of attention in network attention: auto, reference, xla, chunked
            or cudnn.
        attention_patch: side of a token in cells, in network attention.
        hidden_sizes: widths of the hidden layers. In network cnn they follow the convolution, in
            network attention the mean of the tokens.
        activation: a name in `myriad.agents.networks.ACTIVATIONS`.
        layer_norm: normalise every hidden layer before its activation.
        param_dtype: dtype of the parameters: float32, bfloat16 or float16. Each step is computed in
            float32 and rounded to it.
        compute_dtype: dtype of the networks' products and activations.
        output_dtype: dtype of the networks' outputs. Losses convert them to float32.
        loss_scaling: dynamic or off. It has an effect only if gradients pass through float16, and
            then it must be dynamic.
        normalize_observations: shift and scale observations by their running moments.
        normalize_rewards: scale rewards by the running deviation of the discounted return.
    """

    env: Environment
    gradient_steps: Repetitions = 8
    batch_size: Count = 256
    buffer_size: Count = 100_000
    learning_starts: ManySteps = 1_000
    learning_rate: Positive = 3e-4
    gamma: Fraction = 0.99
    polyak: Fraction = 0.995
    target_entropy: Annotated[float | None, Number(words=(None,))] = None
    gradient_accumulation: Count = 1
    gradient_statistics: bool = False
    network: str = "mlp"
    attention: str = "auto"
    attention_patch: Annotated[int, Integer(1, 64)] = 2
    hidden_sizes: Widths = (64, 64)
    activation: str = "relu"
    layer_norm: bool = False
    param_dtype: str = "float32"
    compute_dtype: str = "float32"
    output_dtype: str = "float32"
    loss_scaling: str = DYNAMIC
    normalize_observations: bool = True
    normalize_rewards: bool = False
    default_num_envs: ClassVar[int] = 8
    per_device: ClassVar[frozenset[str] | None] = frozenset({"replay", "running_return"})

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of the metrics that `update` reports."""
        return _METRICS + GRADIENT_METRICS if self.gradient_statistics else _METRICS

    @property
    def steps_per_update(self) -> int:
        """Steps of every environment in one update."""
        return 1

    @classmethod
    def create(cls, env: Environment, **overrides: Any) -> "SAC":
        """Build the learner for `env`.

        Raises:
            InvalidArgumentError: a value can't be used, or the actions of `env` have no bounds.
        """
        space = env.action_space(env.default_params)
        if not isinstance(space, Box) or not np.isfinite([space.low, space.high]).all():
            raise InvalidArgumentError(
                "env", f"must have actions in a bounded Box for {cls.__name__}, but has {space}."
            )
        learner = cls(env, **network_defaults(cls, overrides) | overrides)
        require_ranges(learner)
        require_whole_parts(learner.batch_size, learner.gradient_accumulation)
        learner._actor.require_outputs()
        learner._critic.require_outputs()
        return learner

    @classmethod
    def defaults_for(
        cls, num_envs: int, total_steps: int | None, chosen: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Take a gradient step for each transition, but fewer from many environments."""
        defaults: dict[str, Any] = {"gradient_steps": min(num_envs, _MOST_GRADIENT_STEPS)}
        if num_envs >= MANY_ENVS:
            defaults |= {"buffer_size": 500_000, "learning_starts": 20_000}
        return defaults

    def default_total_steps(self, num_envs: int) -> int:
        """Return the steps of all environments together in a training of unknown length."""
        return steps_for_many(num_envs, DEFAULT_TOTAL_STEPS, _STEPS_PER_ENV)

    def on_each_of(self, num_devices: int) -> Self:
        """Give each device its share of the batch, of the buffer and of the steps that count."""
        for name in ("batch_size", "buffer_size"):
            if (size := getattr(self, name)) % num_devices:
                raise InvalidArgumentError(
                    "num_devices", f"must divide {name} = {size:,}, but is {num_devices}."
                )
        learner = dataclasses.replace(
            self,
            batch_size=self.batch_size // num_devices,
            buffer_size=self.buffer_size // num_devices,
            learning_starts=-(-self.learning_starts // num_devices),
        )
        require_whole_parts(learner.batch_size, learner.gradient_accumulation)
        return learner

    def first_learning_update(self, num_envs: int) -> int:
        """Return the first update that learns, from 1."""
        return math.ceil(self.learning_starts / num_envs)

    def init(self, key: jax.Array, num_envs: int) -> SACState:
        """Draw the networks' parameters and allocate the buffer."""
        networks = ((self._actor, _ACTOR), (self._critic, _CRITIC), (self._critic, _OTHER_CRITIC))
        drawn = [net.init(jax.random.fold_in(key, purpose)) for net, purpose in networks]
        first = before_learning(self, jnp.concatenate(drawn))
        obs, _ = jax.eval_shape(self.env.reset, make_key(0), self.env.default_params)
        size = math.prod(obs.shape)
        scalar = jnp.zeros(num_envs, jnp.float32)
        flat = jnp.zeros((num_envs, size), obs.dtype)
        choice = jnp.zeros((num_envs, self.policy.num_choices), jnp.float32)
        return SACState(
            *first,
            # They are float32, since their small steps would be lost in a narrower dtype.
            target_params=jnp.stack(drawn[1:]).astype(jnp.float32),
            log_temperature=jnp.zeros((), jnp.float32),
            temperature_opt_state=self.optimizer.init(jnp.zeros((), jnp.float32)),
            num_updates=Counter.of(0),
            replay=self._ring(num_envs).init(Experience(flat, choice, scalar, scalar, flat)),
            obs_stats=RunningMoments.create((size,)) if self.normalize_observations else None,
            return_stats=RunningMoments.create(()) if self.normalize_rewards else None,
            running_return=scalar,
        )

    def collect(
        self, key: jax.Array, state: SACState, batch_state: BatchState, envs: Environments
    ) -> tuple[SACState, BatchState, None]:
        """Take a step of all environments and write it into the buffer."""
        key = jax.random.fold_in(key, _COLLECT)

        def choose(keys: jax.Array, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
            choice = self._choice(state, keys, obs)
            return self.policy.action(choice), choice

        obs = flatten(batch_state.obs)
        batch_state, choice, result = act_and_step(key, jnp.uint32(0), batch_state, choose, envs)
        done = result.terminated | result.truncated
        discounted, running_return = discounted_return(
            state.running_return, result.reward, done, self.gamma
        )
        discount = jnp.where(result.terminated, 0, jnp.full_like(result.reward, self.gamma))
        row = Experience(obs, choice, result.reward, discount, flatten(result.final_obs))
        state = dataclasses.replace(
            state,
            replay=self._ring(obs.shape[0]).write(state.replay, row),
            obs_stats=update_moments(state.obs_stats, obs, envs.mean),
            return_stats=update_moments(state.return_stats, discounted, envs.mean),
            running_return=running_return,
        )
        return state, batch_state, None

    def learn(
        self, key: jax.Array, state: SACState, batch_state: BatchState, experience: None, mean: Mean
    ) -> tuple[SACState, dict[str, jax.Array]]:
        """Take the gradient steps. Metrics are 0 before learning starts."""
        num_envs = state.running_return.shape[0]
        # One gather and one draw for all steps of the update.
        ring = self._ring(num_envs)
        num_rows = self.gradient_steps * self.batch_size
        slots = ring.draw(jax.random.fold_in(key, _SAMPLE), state.replay, num_rows)
        shape = (num_rows, 2, self.policy.num_choices)
        noise = jax.random.normal(jax.random.fold_in(key, _NOISE), shape)
        batch = ring.at(state.replay, slots)
        batch = dataclasses.replace(
            batch,
            obs=normalize_obs(state.obs_stats, batch.obs),
            next_obs=normalize_obs(state.obs_stats, batch.next_obs),
            reward=scale_rewards(state.return_stats, batch.reward),
        )
        batches = jax.tree.map(
            lambda leaf: leaf.reshape(self.gradient_steps, self.batch_size, *leaf.shape[1:]),
            (batch, noise),
        )

        def train_step(i: jax.Array, carry: Any) -> Any:
            learned, target_params, log_temperature, opt_state, totals = carry
            rows = jax.tree.map(lambda leaf: leaf[i], batches)

            def loss(params: jax.Array, rows: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
                return self.loss(params, *rows, target_params, jnp.exp(log_temperature))

            learned, metrics = gradient_step(self, loss, learned, rows, self.learning_rate, mean)
            gradient = jax.grad(self.temperature_loss)(log_temperature, metrics["entropy"])
            step, opt_state = self.optimizer.update(gradient, opt_state)
            critics = self._split(learned.params.astype(jnp.float32))[1]
            return (
                learned,
                critics + self.polyak * (target_params - critics),
                log_temperature - self.learning_rate * step,
                opt_state,
                jax.tree.map(jnp.add, totals, metrics),
            )

        learned, target_params, log_temperature, opt_state, totals = repeat_or_skip(
            state.num_updates.reaches(self.first_learning_update(num_envs) - 1),
            self.gradient_steps,
            train_step,
            (
                Learned(state.params, state.opt_state, state.loss_scale),
                state.target_params,
                state.log_temperature,
                state.temperature_opt_state,
                {name: jnp.zeros((), jnp.float32) for name in self.metric_names},
            ),
        )
        next_state = dataclasses.replace(
            state,
            **learned._asdict(),
            target_params=target_params,
            log_temperature=log_temperature,
            temperature_opt_state=opt_state,
            num_updates=state.num_updates + 1,
        )
        return next_state, {name: total / self.gradient_steps for name, total in totals.items()}

    def loss(
        self,
        params: jax.Array,
        batch: Experience,
        noise: jax.Array,
        target_params: jax.Array,
        temperature: jax.Array,
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Return the losses of actor and critics (equations 5 and 9), added up, and the metrics.

        No parameter is in both: each gradient is that of its own loss. `noise`, `[B, 2, C]`, is
        standard normal, for the actions after `next_obs` and after `obs`.
        """
        actor, critics = self._split(params)
        outputs = self._actor.values(jax.lax.stop_gradient(actor), batch.next_obs)
        next_choice, next_log_prob = self.policy.sample(noise[:, 0], outputs)
        next_value = self._least_value(target_params, batch.next_obs, next_choice)
        target = batch.reward + batch.discount * (next_value - temperature * next_log_prob)
        errors = self._values(critics, batch.obs, batch.action) - target
        critic_loss = 0.5 * jnp.mean(jnp.sum(jnp.square(errors), axis=0))

        outputs = self._actor.values(actor, batch.obs)
        choice, log_prob = self.policy.sample(noise[:, 1], outputs)
        value = self._least_value(jax.lax.stop_gradient(critics), batch.obs, choice)
        actor_loss = jnp.mean(temperature * log_prob - value)
        metrics = (actor_loss, critic_loss, -jnp.mean(log_prob), temperature)
        return actor_loss + critic_loss, dict(zip(_METRICS, metrics, strict=True))

    def temperature_loss(self, log_temperature: jax.Array, entropy: jax.Array) -> jax.Array:
        """Return the loss of the temperature (equation 18)."""
        target = -self.policy.num_choices if self.target_entropy is None else self.target_entropy
        return jnp.exp(log_temperature) * (entropy - target)

    def act(self, state: SACState, key: jax.Array, obs: jax.Array, *, greedy: bool) -> jax.Array:
        """Choose `[N, *A]` for observations `[N, *O]`: the mode if `greedy`, else a draw."""
        if greedy:
            return self.policy.action(self.policy.mode(self._actor_outputs(state, obs)))
        return self.policy.action(self._choice(state, jax.random.split(key, obs.shape[0]), obs))

    def outputs(self, params: jax.Array, inputs: jax.Array) -> jax.Array:
        """Return the outputs of all networks, `[B, 2 C + 2]`, for prepared observations `[B, D]`."""
        actor, critics = self._split(params)
        outputs = self._actor.values(actor, inputs)
        values = self._values(critics, inputs, self.policy.mode(outputs))
        return jnp.concatenate([outputs, values.T], axis=1)

    def _choice(self, state: SACState, keys: jax.Array, obs: jax.Array) -> jax.Array:
        noise = jax.vmap(lambda key: jax.random.normal(key, (self.policy.num_choices,)))(keys)
        return self.policy.sample(noise, self._actor_outputs(state, obs))[0]

    def _actor_outputs(self, state: SACState, obs: jax.Array) -> jax.Array:
        actor = self._split(state.params)[0]
        return self._actor.values_in_blocks(actor, flatten(obs), state.obs_stats)

    def _values(self, critics: jax.Array, obs: jax.Array, choice: jax.Array) -> jax.Array:
        """Return the values of both critics, `[2, B]`."""
        cells = obs.reshape(obs.shape[0], *self._cells, -1)
        actions = choice.reshape(-1, *[1] * len(self._cells), choice.shape[1])
        actions = jnp.broadcast_to(actions, (*cells.shape[:-1], choice.shape[1]))
        inputs = flatten(jnp.concatenate([cells, actions], axis=-1))
        return jnp.stack([self._critic.values(each, inputs)[:, 0] for each in critics])

    def _least_value(self, critics: jax.Array, obs: jax.Array, choice: jax.Array) -> jax.Array:
        return jnp.min(self._values(critics, obs, choice), axis=0)

    def _split(self, params: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the parameters of the actor, and those of the critics, `[2, Q]`."""
        size = 2 * self._num_critic_params
        return params[:-size], params[-size:].reshape(2, -1)

    def _ring(self, num_envs: int) -> ReplayRing:
        return ReplayRing(self.buffer_size, num_envs)

    @cached_property
    def policy(self) -> SquashedGaussianPolicy:
        """The distribution over actions."""
        space: Any = self.env.action_space(self.env.default_params)
        return SquashedGaussianPolicy(space)

    @cached_property
    def _cells(self) -> tuple[int, ...]:
        """The axes of a grid of observations, or none."""
        shape = NetworkSpec.of(self).obs_shape
        if self.network == "mlp" or len(shape) == 1:
            return ()
        return shape if len(shape) == 2 else shape[:-1]

    @cached_property
    def _actor(self) -> QNetwork:
        return self._network(NetworkSpec.of(self), 2 * self.policy.num_choices)

    @cached_property
    def _critic(self) -> QNetwork:
        spec = NetworkSpec.of(self)
        channels = math.prod(spec.obs_shape) // math.prod(self._cells) + self.policy.num_choices
        return self._network(dataclasses.replace(spec, obs_shape=(*self._cells, channels)), 1)

    def _network(self, spec: NetworkSpec, num_outputs: int) -> QNetwork:
        return QNetwork(
            math.prod(spec.obs_shape),
            num_outputs,
            spec.hidden_sizes,
            spec.activation,
            spec.layer_norm,
            spec=spec,
        )

    @cached_property
    def _num_critic_params(self) -> int:
        return jax.eval_shape(self._critic.init, make_key(0)).shape[0]

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """Adam without the learning rate."""
        return optax.scale_by_adam()
