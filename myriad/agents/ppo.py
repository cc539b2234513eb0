"""Proximal policy optimisation: collect a rollout, then learn in epochs of minibatches.

In docstrings `T` is the steps of a rollout, `N` the environments, `B = T N` the batch, `D` the size
of a flattened observation, `C` the components of an action and `P` the number of outputs of the
policy's network.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import optax
from flax.training.dynamic_scale import DynamicScale
from jax.flatten_util import ravel_pytree

from myriad.agents.agent import (
    Environments,
    Fraction,
    Limit,
    Mean,
    Positive,
    PositiveOrOff,
    Weight,
    WidthsOrSame,
)
from myriad.agents.gradients import Learned, annealed, before_learning, clip_by_norm, gradient_step
from myriad.agents.minibatches import (
    MANY_ENVS,
    gatherer,
    map_over_blocks,
    repeat_epochs,
    shapes_for_many,
)
from myriad.agents.networks import NetworkSpec
from myriad.agents.networks.mlp import flatten
from myriad.agents.normalization import (
    RunningMoments,
    first_or,
    normalize_obs,
    preserve_outputs,
    scale_rewards,
    update_moments,
)
from myriad.agents.policies import GaussianPolicy, Policy, legal_outputs, make_policy
from myriad.agents.trajectory import RolloutLearner, Trajectory
from myriad.engine.random import Counter
from myriad.envs.vector import BatchState
from myriad.errors import InvalidArgumentError, shown
from myriad.ranges import Number

# Folded into a key for each purpose, so that no two draws share a stream.
_ACTOR, _CRITIC = range(2)
_COLLECT, _SHUFFLE = range(2)
_METRICS = ("loss", "policy_loss", "value_loss", "entropy", "clip_fraction")
# The least rows of a minibatch for each device. With fewer, waiting for another device costs more
# than it saves.
_LEAST_SHARE = 4096


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PPOState:
    """The state that learning changes. Moments are None if their normalisation is off.

    Attributes:
        params: the parameters of the networks, `actor` and `critic`, and of the policy, `log_std`.
        opt_state: the optimiser's state, over all parameters as one vector.
        num_updates: updates done.
        obs_stats: moments of the observations, `[D]`.
        privileged_stats: moments of what only the critic sees; None if there is nothing.
        return_stats: moments of the discounted return.
        running_return: the discounted return of the running episodes, `[N]`.
        loss_scale: the scale of the loss for float16; None if gradients need none.
        memory: what the networks remember, leaves `[N, ...]`, if they have a memory.
    """

    params: dict[str, Any]
    opt_state: optax.OptState
    num_updates: Counter
    obs_stats: RunningMoments | None
    privileged_stats: RunningMoments | None
    return_stats: RunningMoments | None
    running_return: jax.Array
    loss_scale: DynamicScale | None
    memory: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PPOBatch:
    """The inputs of the losses: `obs`, `[B, D]`, `choice`, `[B, C]`, and the others, `[B]`.

    With a memory they are sequences, `[N, T, ...]`, with the ends of episodes, `done`, and the
    `memory` before the first step, leaves `[N, ...]`.
    """

    obs: jax.Array
    choice: jax.Array
    log_prob: jax.Array
    value: jax.Array
    advantage: jax.Array
    target: jax.Array
    done: jax.Array | None = None
    memory: Any = None


@dataclasses.dataclass(frozen=True)
class PPO(RolloutLearner[PPOState]):
    """Schulman et al. (2017), "Proximal policy optimization algorithms", equation 7.

    Advantages are those of Schulman et al. (2016), "High-dimensional continuous control using
    generalized advantage estimation". There are some differences from the first paper. Actor and
    critic are separate networks. Advantages are normalised in each minibatch. Several details come
    from the reference implementation, as Engstrom et al. (2020), "Implementation matters in deep
    policy gradients", describe it: orthogonal weights, running normalisation of observations and
    rewards, a clipped gradient, an annealed learning rate and, if you ask for them, clipped values.
    Values bootstrap through truncation. Actions in a Box are drawn from a diagonal Gaussian with
    learned log standard deviations, in units in which -1 to 1 spans the box. A hyperbolic tangent
    keeps the mean inside the box, and clipping the draws. Without bounds, the unit is
    `action_scale`. `squash_actions` draws from another Gaussian.

    Attributes:
        gae_lambda: weight of longer returns in an advantage: 1 uses whole returns, 0 single steps.
        clip_epsilon: how far a probability ratio may go from 1.
        value_clip: how far a value may go from the old one, in scaled rewards; None doesn't clip
            values.
        target_kl: an update takes no more gradient steps once a minibatch's approximate divergence
            from the policy that acted exceeds 1.5 times this, as in Stable-Baselines3; None never
            stops.
        entropy_coef: weight of the entropy bonus.
        value_coef: weight of the squared error of values.
        first_log_std: logarithm of the first deviation of actions in a Box, in those units.
        action_scale: size of a usual action where a Box has no bounds: what the network calls 1.
        squash_actions: the tangent is that of the draws, as in SAC, which no bound then clips, and
            their deviations depend on the observation.
        optimizer_epsilon: added to the root mean square of gradients by which Adam divides.
        max_grad_norm: the gradient's norm is clipped to this; infinity never clips.
        preserve_outputs: when those moments change, adapt the first layers of both networks so that
            their outputs stay the same. Only for network mlp.
        normalize_advantages: shift and scale advantages within each minibatch.
        critic_network: network of the critic; None for that of the actor.
        critic_hidden_sizes: widths of its hidden layers; None for those of the actor.
    """

    gae_lambda: Fraction = 0.95
    clip_epsilon: Positive = 0.2
    value_clip: PositiveOrOff = None
    target_kl: PositiveOrOff = None
    entropy_coef: Weight = 0.01
    value_coef: Weight = 0.5
    first_log_std: Annotated[float, Number(-20, 20)] = 0.0
    action_scale: Positive = 1.0
    squash_actions: bool = False
    # The value of OpenAI's baselines. Adam's paper has 1e-8.
    optimizer_epsilon: Weight = 1e-5
    max_grad_norm: Limit = 0.5
    preserve_outputs: bool = True
    normalize_advantages: bool = True
    critic_network: str | None = None
    critic_hidden_sizes: WidthsOrSame = None
    losses: ClassVar[tuple[str, ...]] = _METRICS
    trains_critic: ClassVar[bool] = True
    least_total_steps: ClassVar[int] = 1_000_000
    # Evaluations and a loaded agent act in the same units as the training.
    structural: ClassVar[frozenset[str]] = frozenset({"action_scale"})

    @property
    def metric_names(self) -> tuple[str, ...]:
        return super().metric_names + (("approx_kl",) if self.target_kl is not None else ())

    def require_fit(self) -> None:
        """Raise InvalidArgumentError if the networks or `preserve_outputs` can't be used."""
        for role, num_outputs in (("actor", self.policy.num_outputs), ("critic", 1)):
            spec = NetworkSpec.of(self, role)
            spec.require_outputs(num_outputs)
            if self.preserve_outputs and spec.name != "mlp":
                rule = f"must be false with network {shown(spec.name)}, which is no mlp"
                raise InvalidArgumentError("preserve_outputs", rule, self.preserve_outputs)

    @classmethod
    def defaults_for(
        cls, num_envs: int, total_steps: int | None, chosen: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Use short rollouts, large minibatches and larger steps for many environments."""
        if num_envs < MANY_ENVS:
            return {}
        return shapes_for_many(num_envs, 4, chosen) | {"learning_rate": 1e-3}

    @property
    def policy(self) -> Policy:
        """The distribution over actions."""
        space = self.env.action_space(self.env.default_params)
        return make_policy(
            space, self.first_log_std, self.action_scale, squash_actions=self.squash_actions
        )

    @property
    def unused(self) -> dict[str, str]:
        """What a Gaussian needs, without one."""
        if isinstance(self.policy, GaussianPolicy):
            fields = ("action_scale",) if self.policy.bounded.all() else ()
            return super().unused | dict.fromkeys(fields, "with bounds")
        fields = ("first_log_std", "action_scale", "squash_actions")
        return super().unused | dict.fromkeys(fields, "for discrete actions")

    def default_num_devices(self, num_envs: int, available: int) -> int:
        """Return how many devices share a gradient step. Each of them needs enough rows."""
        rows = num_envs * self.rollout_steps // self.num_minibatches
        return max(
            n
            for n in range(1, available + 1)
            if n == 1
            or (num_envs % (n * self.num_envs_multiple) == 0 and rows // n >= _LEAST_SHARE)
        )

    def init(self, key: jax.Array, num_envs: int) -> PPOState:
        """Draw the networks' parameters. Raises the errors of `require_num_envs`."""
        self.require_num_envs(num_envs)
        size, critic_size = self._obs_size, math.prod(NetworkSpec.of(self, "critic").obs_shape)
        # Two networks: one block-diagonal network for both ran at 0.71 of their speed, and a
        # batched product for both was slower than two.
        actor, critic = (
            network.init(jax.random.fold_in(key, purpose), jnp.zeros((1, size), jnp.float32))
            for network, purpose, size in (
                (self._actor, _ACTOR, size),
                (self._critic, _CRITIC, critic_size),
            )
        )
        params = {"actor": actor, "critic": critic, "log_std": self.policy.initial_log_std()}
        params = jax.tree.map(lambda leaf: leaf.astype(self.param_dtype), params)
        first = before_learning(self, ravel_pytree(params)[0])
        normalizes = self.normalize_observations
        return PPOState(
            params,
            opt_state=first.opt_state,
            num_updates=Counter.of(0),
            obs_stats=RunningMoments.create((size,)) if normalizes else None,
            privileged_stats=RunningMoments.create((critic_size,))
            if normalizes and self.sees_privileged
            else None,
            return_stats=RunningMoments.create(()) if self.normalize_rewards else None,
            running_return=jnp.zeros(num_envs, jnp.float32),
            loss_scale=first.loss_scale,
            memory=self.first_memory(num_envs),
        )

    def collect(
        self, key: jax.Array, state: PPOState, batch_state: BatchState, envs: Environments
    ) -> tuple[PPOState, BatchState, Trajectory]:
        """Take `rollout_steps` steps of all environments."""

        def choose(keys: jax.Array, obs: jax.Array) -> tuple[jax.Array, Any]:
            # The critic is not called in the loop over steps, since one product later values the
            # whole rollout.
            outputs = self._outputs(state.params, self._inputs(state, flatten(obs)))
            return self._choose(state, keys, outputs)

        value_of = functools.partial(self._value_of, state)
        key = jax.random.fold_in(key, _COLLECT)
        return self.rollout(key, state, batch_state, envs, choose, value_of)

    def learn(
        self,
        key: jax.Array,
        state: PPOState,
        batch_state: BatchState,
        experience: Trajectory,
        mean: Mean,
    ) -> tuple[PPOState, dict[str, jax.Array]]:
        """Learn from a rollout.

        The policy acts and learns with the moments from before the rollout. Before the first
        rollout there are none, so it learns from that one with the rollout's own moments. Otherwise
        the result would depend on the units of observations. The moments for rewards include the
        rollout.
        """
        obs_stats = update_moments(state.obs_stats, experience.obs, mean)
        privileged = experience.obs[..., self._seen_size :]
        privileged_stats = update_moments(state.privileged_stats, privileged, mean)
        return_stats = update_moments(state.return_stats, experience.discounted_return, mean)
        state = dataclasses.replace(
            state,
            return_stats=return_stats,
            obs_stats=first_or(state.obs_stats, obs_stats),
            privileged_stats=first_or(state.privileged_stats, privileged_stats),
        )
        batch = self._batch(state, experience, flatten(batch_state.obs))
        rows_of = self._rows_of(state, batch)
        # All parameters are one vector, with which a step of Adam is one loop.
        flat, unravel = ravel_pytree(state.params)
        learning_rate = annealed(self.learning_rate, state.num_updates, self.anneal_updates)

        def minibatches(permutation: jax.Array) -> tuple[jax.Array, jax.Array]:
            order = permutation.reshape(self.num_minibatches, -1)
            advantage = batch.advantage[order]
            # Not in the loss, which may see only a part of the minibatch.
            return order, _standardize(advantage, mean) if self.normalize_advantages else advantage

        def loss(flat: jax.Array, rows: tuple[jax.Array, jax.Array]) -> Any:
            order, advantage = rows
            return self.loss(
                unravel(flat), dataclasses.replace(rows_of(order), advantage=advantage)
            )

        def train_step(carry: tuple[Learned, jax.Array], rows: Any) -> tuple[Any, Any]:
            learned, is_far = carry
            after, metrics = gradient_step(self, loss, learned, rows, learning_rate, mean)
            if self.target_kl is not None:
                is_far = is_far | (metrics["approx_kl"] > 1.5 * self.target_kl)
                after = jax.tree.map(lambda new, old: jnp.where(is_far, old, new), after, learned)
            return (after, is_far), metrics

        (learned, _), metrics = repeat_epochs(
            train_step,
            (Learned(flat, state.opt_state, state.loss_scale), jnp.zeros((), bool)),
            jax.random.fold_in(key, _SHUFFLE),
            self.num_epochs,
            batch.advantage.shape[0],
            minibatches,
            self.metric_names,
        )
        params = unravel(learned.params)
        if self.preserve_outputs and self.normalize_observations:
            of_actor: Any = state.obs_stats, obs_stats
            of_critic: Any = state.privileged_stats, privileged_stats
            moments = {"actor": of_actor, "critic": of_critic if self.sees_privileged else of_actor}
            params |= {
                name: {"params": preserve_outputs(params[name]["params"], *old_and_new)}
                for name, old_and_new in moments.items()
            }
        next_state = dataclasses.replace(
            state,
            params=params,
            opt_state=learned.opt_state,
            loss_scale=learned.loss_scale,
            num_updates=state.num_updates + 1,
            obs_stats=obs_stats,
            privileged_stats=privileged_stats,
        )
        return next_state, metrics

    def loss(
        self, params: dict[str, Any], batch: PPOBatch
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Return a minibatch's loss (the negative of equation 9) and its metrics."""
        outputs, value = self._outputs(params, batch.obs), self._values(params, batch.obs)
        return self._loss(params, outputs, value, batch)

    def _loss(self, params: Any, outputs: jax.Array, value: jax.Array, batch: PPOBatch) -> Any:
        log_std = self._log_std(params)
        log_prob, entropy = self.policy.log_prob_and_entropy(outputs, log_std, batch.choice)
        # Compute the ratio of probabilities from the difference of logarithms, since a probability
        # by itself may underflow.
        log_ratio = log_prob - batch.log_prob
        ratio = jnp.exp(log_ratio)
        clipped = jnp.clip(ratio, 1 - self.clip_epsilon, 1 + self.clip_epsilon)
        policy_loss = -jnp.minimum(ratio * batch.advantage, clipped * batch.advantage)
        value_loss = jnp.square(value - batch.target)
        if self.value_clip is not None:
            near = batch.value + jnp.clip(value - batch.value, -self.value_clip, self.value_clip)
            value_loss = jnp.maximum(value_loss, jnp.square(near - batch.target))
        # Reduce all terms together, since separate reductions would be three small loops.
        terms = jnp.stack([policy_loss, value_loss, entropy, ratio != clipped], axis=1)
        policy_loss, value_loss, entropy, clip_fraction = jnp.mean(terms, axis=0)
        loss = policy_loss + self.value_coef * value_loss - self.entropy_coef * entropy
        values = (loss, policy_loss, value_loss, entropy, clip_fraction)
        metrics: dict[str, jax.Array] = dict(zip(_METRICS, values, strict=True))
        if self.target_kl is not None:
            # Schulman (2020), "Approximating KL divergence", the estimator k3: its terms are
            # positive.
            metrics["approx_kl"] = jnp.mean(ratio - 1 - log_ratio)
        return loss, metrics

    def act(self, state: PPOState, key: jax.Array, obs: jax.Array, *, greedy: bool) -> jax.Array:
        """Choose `[N, *A]` for observations `[N, *O]`: the mode if `greedy`, else a draw."""
        outputs = self._outputs(state.params, self._inputs(state, flatten(obs)))
        return self._action(state, key, outputs, greedy=greedy)

    def _choose(
        self, state: PPOState, keys: jax.Array, outputs: jax.Array
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        """Draw actions. Outputs are kept, so that log probabilities are computed once for all."""
        choice = self.policy.sample(keys, outputs, self._log_std(state.params))
        return self.policy.action(choice), (outputs, choice)

    def _action(
        self, state: PPOState, key: jax.Array, outputs: jax.Array, *, greedy: bool
    ) -> jax.Array:
        if greedy:
            return self.policy.action(self.policy.mode(outputs))
        return self._choose(state, jax.random.split(key, outputs.shape[0]), outputs)[0]

    def _batch(self, state: PPOState, trajectory: Trajectory, last_obs: jax.Array) -> PPOBatch:
        """Add values, advantages and targets. One product gives all values of the rollout."""
        values = functools.partial(self._value_of, state)
        obs = trajectory.obs.reshape(-1, trajectory.obs.shape[-1])
        value = map_over_blocks(values, obs).reshape(trajectory.reward.shape)
        # The last observations only need values, since no action was chosen for them yet.
        return self._valued(state, trajectory, value, map_over_blocks(values, last_obs))

    def _valued(
        self, state: PPOState, trajectory: Trajectory, value: jax.Array, last_value: jax.Array
    ) -> PPOBatch:
        next_value = trajectory.next_value(value, last_value)
        reward = scale_rewards(state.return_stats, trajectory.reward)
        advantage = gae(
            reward,
            value,
            next_value,
            trajectory.terminated,
            trajectory.done,
            self.gamma,
            self.gae_lambda,
        )
        outputs, choice = (leaf.reshape(-1, leaf.shape[-1]) for leaf in trajectory.choice)
        log_std = self._log_std(state.params)
        log_prob, _ = self.policy.log_prob_and_entropy(outputs, log_std, choice)
        obs = trajectory.obs.reshape(-1, trajectory.obs.shape[-1])
        value = value.reshape(-1)
        advantage = advantage.reshape(-1)
        return PPOBatch(obs, choice, log_prob, value, advantage, advantage + value)

    def _rows_of(self, state: PPOState, batch: Any) -> Callable[[jax.Array], Any]:
        return gatherer(batch, lambda obs: self._inputs(state, obs))

    def _inputs(self, state: PPOState, obs: jax.Array) -> jax.Array:
        """Prepare observations, `[..., D]`, with a mask, and in training what the critic sees."""
        seen, privileged = jnp.split(obs, [self._seen_size], axis=-1)
        inputs = normalize_obs(state.obs_stats, seen)
        if not privileged.shape[-1]:
            return inputs
        privileged = normalize_obs(state.privileged_stats, privileged)
        return jnp.concatenate([inputs, privileged], axis=-1)

    def _outputs(self, params: dict[str, Any], inputs: jax.Array) -> jax.Array:
        obs, mask, _ = jnp.split(inputs, [self._obs_size, self._seen_size], axis=1)
        return legal_outputs(self._actor.apply(params["actor"], obs).astype(jnp.float32), mask)

    def _values(self, params: dict[str, Any], inputs: jax.Array) -> jax.Array:
        obs = self._of_critic(inputs)
        return self._critic.apply(params["critic"], obs)[..., 0].astype(jnp.float32)

    def _value_of(self, state: PPOState, obs: jax.Array) -> jax.Array:
        """Return the values, `[B]`, of observations as the environment gave them, `[B, D]`."""
        return self._values(state.params, self._inputs(state, obs))

    def _of_critic(self, inputs: jax.Array) -> jax.Array:
        """Return what the critic sees of prepared observations."""
        return inputs[:, self._seen_size :] if self.sees_privileged else inputs[:, : self._obs_size]

    def _log_std(self, params: dict[str, Any]) -> jax.Array | None:
        log_std = params["log_std"]
        return None if log_std is None else log_std.astype(jnp.float32)

    @property
    def _actor(self) -> Any:
        # Small last weights make the first policy nearly uniform.
        return NetworkSpec.of(self).build(self.policy.num_outputs, output_scale=0.01)

    @property
    def _critic(self) -> Any:
        return NetworkSpec.of(self, "critic").build(1)

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """Adam on a clipped gradient, without the learning rate."""
        return optax.chain(
            clip_by_norm(self.max_grad_norm), optax.scale_by_adam(eps=self.optimizer_epsilon)
        )

    @property
    def _obs_size(self) -> int:
        return math.prod(NetworkSpec.of(self).obs_shape)

    @property
    def _seen_size(self) -> int:
        """The size of an observation with its mask."""
        return math.prod(self.env.observation_space(self.env.default_params).shape)


def gae(
    reward: jax.Array,
    value: jax.Array,
    next_value: jax.Array,
    terminated: jax.Array,
    done: jax.Array,
    gamma: float,
    gae_lambda: float,
) -> jax.Array:
    """Return generalized advantages (Schulman et al. 2016, equation 16). All arrays are `[T, N]`.

    `value` is that of the observation before step t, and `next_value` that of the observation after
    it, before any reset, which counts unless `terminated`. A step is `done` by termination or
    truncation.
    """
    delta = reward + gamma * jnp.where(terminated, 0, next_value) - value
    # An advantage doesn't reach beyond the end of its episode.
    decay = gamma * gae_lambda * jnp.where(done, 0, jnp.ones_like(value))

    def back(advantage: jax.Array, step: Any) -> tuple[jax.Array, jax.Array]:
        delta, decay = step
        advantage = delta + decay * advantage
        return advantage, advantage

    return jax.lax.scan(back, jnp.zeros_like(value[0]), (delta, decay), reverse=True)[1]


def _standardize(rows: jax.Array, mean: Mean) -> jax.Array:
    """Shift and scale each row of `[G, ...]` by the moments of the whole minibatch."""
    axes = tuple(range(1, rows.ndim))
    centred = rows - mean(jnp.mean(rows, axis=axes, keepdims=True))
    variance = mean(jnp.mean(jnp.square(centred), axis=axes, keepdims=True))
    return centred / (jnp.sqrt(variance) + 1e-8)
