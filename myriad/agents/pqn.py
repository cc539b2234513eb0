"""PQN: Q-learning on parallel environments without a replay buffer or a target network.

In docstrings `T` is the steps of a rollout, `N` the environments, `B = T N` the batch, `D` the size
of a flattened observation and `P` the number of parameters.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.dynamic_scale import DynamicScale

from myriad.agents import q_learning
from myriad.agents.agent import (
    Environments,
    Fraction,
    Limit,
    ManySteps,
    Mean,
    Positive,
    Repetitions,
    Weight,
)
from myriad.agents.gradients import Learned, annealed, before_learning, clip_by_norm, gradient_step
from myriad.agents.minibatches import MANY_ENVS, gatherer, repeat_epochs, shapes_for_many
from myriad.agents.networks.mlp import flatten
from myriad.agents.normalization import RunningMoments, normalize_obs, scale_rewards, update_moments
from myriad.agents.trajectory import RolloutLearner, Trajectory
from myriad.engine.random import Counter
from myriad.envs.vector import BatchState

# Folded into a key for each purpose, so that no two draws share a stream.
_COLLECT, _SHUFFLE = range(2)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PQNState:
    """The state that learning changes. Moments are None if their normalisation is off.

    Attributes:
        params: the network's parameters as one vector, `[P]`.
        opt_state: the optimiser's state.
        loss_scale: the scale of the loss for float16; None if gradients need none.
        num_updates: updates done.
        obs_stats: moments of the observations, `[D]`.
        return_stats: moments of the discounted return.
        running_return: the discounted return of the running episodes, `[N]`.
        memory: what the network remembers, leaves `[N, ...]`, if it has a memory.
    """

    params: jax.Array
    opt_state: optax.OptState
    loss_scale: DynamicScale | None
    num_updates: Counter
    obs_stats: RunningMoments | None
    return_stats: RunningMoments | None
    running_return: jax.Array
    memory: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PQNBatch:
    """The inputs of the loss: `obs`, `[B, D]`, `action`, float32 `[B, ...]`, and `target`, `[B]`.

    float32 holds the numbers of actions exactly up to 2**24, so all columns can be one array. With
    a memory they are sequences, as in `PPOBatch`.
    """

    obs: jax.Array
    action: jax.Array
    target: jax.Array
    done: jax.Array | None = None
    memory: Any = None


@dataclasses.dataclass(frozen=True)
class PQN(RolloutLearner[PQNState]):
    """Gallici et al. (2024), "Simplifying deep temporal difference learning", algorithm 1.

    This is Q-learning towards lambda returns, with several epochs of minibatches over each rollout.
    Layer norm makes it stable. There are some differences from the paper's CartPole: tanh in place
    of ReLU after the layer norm, observations and rewards that are scaled by running moments (the
    paper multiplies rewards by 0.1), a tight bound on the gradient, a last layer that begins near
    0, and values that bootstrap through truncation (the paper's code treats every end as a
    termination). Epsilon falls over a number of steps and not over a share of the training. It
    falls to a different value in each environment, as Mnih et al. (2016) do for each actor: if all
    environments came to act without mistakes, the network would forget what mistakes are worth.

    Attributes:
        td_lambda: weight of longer returns in a target: 1 uses whole returns, 0 single steps.
        epsilon_start: probability of a random action at the start.
        epsilon_end: probability of a random action after `exploration_steps`, averaged over
            environments.
        epsilon_spread: how much environments differ in it: it rises evenly from `epsilon_end * (1 -
            epsilon_spread)` in the first to `epsilon_end * (1 + epsilon_spread)` in the last; 0
            makes all the same.
        exploration_steps: steps of all environments together over which epsilon falls linearly.
        optimizer_epsilon: added to the root mean square of gradients by which RAdam divides.
        max_grad_norm: the gradient's norm is clipped to this; infinity never clips.
        layer_norm: normalise every hidden layer before its activation.
    """

    num_epochs: Repetitions = 4
    learning_rate: Positive = 7e-4
    gamma: Fraction = 0.995
    td_lambda: Fraction = 0.95
    epsilon_start: Fraction = 1.0
    epsilon_end: Fraction = 0.2
    epsilon_spread: Fraction = 1.0
    exploration_steps: ManySteps = 30_000
    optimizer_epsilon: Weight = 1.5e-4
    max_grad_norm: Limit = 0.1
    layer_norm: bool = True
    losses: ClassVar[tuple[str, ...]] = ("loss", "epsilon")
    least_total_steps: ClassVar[int] = 786_432

    def require_fit(self) -> None:
        """Raise InvalidArgumentError if actions are not discrete or the network can't be used."""
        q_learning.require_discrete_actions(type(self), self.env)
        self._network.require_outputs()

    @classmethod
    def defaults_for(
        cls, num_envs: int, total_steps: int | None, chosen: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Use short rollouts and large minibatches for many environments.

        Epsilon falls during at most a fifth of the training.
        """
        explored = q_learning.exploration_steps(cls, num_envs, total_steps)
        defaults = {} if num_envs < MANY_ENVS else shapes_for_many(num_envs, 2, chosen)
        return defaults | {"exploration_steps": explored}

    def on_each_of(self, num_devices: int) -> Self:
        """Let epsilon fall by the steps of one device's environments."""
        explored = -(-self.exploration_steps // num_devices)
        return dataclasses.replace(self, exploration_steps=explored)

    def init(self, key: jax.Array, num_envs: int) -> PQNState:
        """Draw the network's parameters. Raises the errors of `require_num_envs`."""
        self.require_num_envs(num_envs)
        first = before_learning(self, self._network.init(key))
        obs_size = self._network.obs_size
        return PQNState(
            *first,
            num_updates=Counter.of(0),
            obs_stats=RunningMoments.create((obs_size,)) if self.normalize_observations else None,
            return_stats=RunningMoments.create(()) if self.normalize_rewards else None,
            running_return=jnp.zeros(num_envs, jnp.float32),
            memory=self.first_memory(num_envs),
        )

    def collect(
        self, key: jax.Array, state: PQNState, batch_state: BatchState, envs: Environments
    ) -> tuple[PQNState, BatchState, Trajectory]:
        """Take `rollout_steps` steps of all environments."""

        def choose(keys: jax.Array, obs: jax.Array) -> tuple[jax.Array, Any]:
            return self._choose(state, keys, self._values(state, flatten(obs)))

        def value_of(obs: jax.Array) -> jax.Array:
            return self._network.best_value(self._values(state, obs))

        key = jax.random.fold_in(key, _COLLECT)
        return self.rollout(key, state, batch_state, envs, choose, value_of)

    def learn(
        self,
        key: jax.Array,
        state: PQNState,
        batch_state: BatchState,
        experience: Trajectory,
        mean: Mean,
    ) -> tuple[PQNState, dict[str, jax.Array]]:
        """Learn from a rollout.

        The network acts and learns with the moments from before the rollout. The moments for
        rewards include the rollout.
        """
        return_stats = update_moments(state.return_stats, experience.discounted_return, mean)
        state = dataclasses.replace(state, return_stats=return_stats)
        batch = self._batch(state, experience, flatten(batch_state.obs))
        rows_of = self._rows_of(state, batch)
        learning_rate = annealed(self.learning_rate, state.num_updates, self.anneal_updates)

        def loss(params: jax.Array, order: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
            return self.loss(params, rows_of(order))

        def train_step(learned: Learned, order: jax.Array) -> Any:
            return gradient_step(self, loss, learned, order, learning_rate, mean)

        learned, metrics = repeat_epochs(
            train_step,
            Learned(state.params, state.opt_state, state.loss_scale),
            jax.random.fold_in(key, _SHUFFLE),
            self.num_epochs,
            batch.target.shape[0],
            lambda permutation: permutation.reshape(self.num_minibatches, -1),
            [name for name in self.metric_names if name != "epsilon"],
        )
        epsilons = self._epsilons(state, state.running_return.shape[0])
        next_state = dataclasses.replace(
            state,
            **learned._asdict(),
            num_updates=state.num_updates + 1,
            obs_stats=update_moments(state.obs_stats, experience.obs, mean),
        )
        return next_state, metrics | {"epsilon": jnp.mean(epsilons)}

    def loss(self, params: jax.Array, batch: PQNBatch) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Return half a minibatch's mean squared error and its metrics. `obs` is normalised."""
        return self._loss(self._network.values(params, batch.obs), batch)

    def _loss(self, values: jax.Array, batch: PQNBatch) -> tuple[jax.Array, dict[str, jax.Array]]:
        value = self._network.value_of(values, batch.action.astype(jnp.int32))
        loss = 0.5 * jnp.mean(jnp.square(value - batch.target))
        return loss, {"loss": loss}

    def named_params(self, state: PQNState) -> dict[str, Any]:
        return {"network": self._network.unravel(state.params)}

    def act(self, state: PQNState, key: jax.Array, obs: jax.Array, *, greedy: bool) -> jax.Array:
        """Choose actions `[N]` for observations `[N, *O]`: the best one, or one to explore."""
        return self._action(state, key, self._values(state, flatten(obs)), greedy=greedy)

    def _action(
        self, state: PQNState, key: jax.Array, values: jax.Array, *, greedy: bool
    ) -> jax.Array:
        if greedy:
            return self._network.best_action(values)
        return self._choose(state, jax.random.split(key, values.shape[0]), values)[0]

    def _choose(
        self, state: PQNState, keys: jax.Array, values: jax.Array
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        """Return actions to explore with, and keep them with the best value of each step."""
        epsilons = self._epsilons(state, values.shape[0])
        action = self._network.epsilon_greedy(keys, values, epsilons, masked=self.is_masked)
        return action, (action, self._network.best_value(values))

    def _batch(self, state: PQNState, trajectory: Trajectory, last_obs: jax.Array) -> PQNBatch:
        last_value = self._network.best_value(self._values(state, last_obs))
        return self._valued(state, trajectory, trajectory.choice[1], last_value)

    def _valued(
        self, state: PQNState, trajectory: Trajectory, value: jax.Array, last_value: jax.Array
    ) -> PQNBatch:
        """Add the targets, from the best values that were computed to choose the actions."""
        action, _ = trajectory.choice
        target = lambda_returns(
            scale_rewards(state.return_stats, trajectory.reward),
            trajectory.next_value(value, last_value),
            trajectory.terminated,
            trajectory.done,
            self.gamma,
            self.td_lambda,
        )
        obs = trajectory.obs.reshape(-1, trajectory.obs.shape[-1])
        action = action.reshape(-1, *action.shape[2:]).astype(jnp.float32)
        return PQNBatch(obs, action, target.reshape(-1))

    def _rows_of(self, state: PQNState, batch: Any) -> Callable[[jax.Array], Any]:
        return gatherer(batch, lambda obs: self._inputs(state, obs))

    def _inputs(self, state: PQNState, obs: jax.Array) -> jax.Array:
        return normalize_obs(state.obs_stats, obs)

    def _epsilons(self, state: PQNState, num_envs: int) -> jax.Array:
        """Return each environment's probability of a random action, `[N]`."""
        steps_per_update = float(self.rollout_steps * state.running_return.shape[0])
        steps = state.num_updates.as_float() * steps_per_update
        place = (
            np.linspace(-1, 1, num_envs, dtype=np.float32)
            if num_envs > 1
            else np.zeros(1, np.float32)
        )
        end = jnp.minimum(self.epsilon_end * (1 + self.epsilon_spread * place), 1)
        explored = steps / jnp.float32(self.exploration_steps)
        return q_learning.linear(self.epsilon_start, end, explored)

    def _values(self, state: PQNState, obs: jax.Array) -> jax.Array:
        """Return Q-values `[B, A]` of flattened observations."""
        return self._network.values_in_blocks(state.params, obs, state.obs_stats)

    @property
    def _network(self) -> q_learning.QNetwork:
        return q_learning.QNetwork.of(self)

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """RAdam on a clipped gradient, without the learning rate."""
        return optax.chain(
            clip_by_norm(self.max_grad_norm), optax.scale_by_radam(eps=self.optimizer_epsilon)
        )


def lambda_returns(
    reward: jax.Array,
    next_value: jax.Array,
    terminated: jax.Array,
    done: jax.Array,
    gamma: float,
    td_lambda: float,
) -> jax.Array:
    """Return the targets of Gallici et al. (2024), equation 5. All arrays are `[T, N]`.

    `next_value` is the best value of the observation after step t, before any reset. It counts
    unless `terminated`.
    """

    def back(later: jax.Array, step: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        reward, next_value, terminated, done = step
        ahead = next_value + td_lambda * jnp.where(done, 0, later - next_value)
        target = reward + gamma * jnp.where(terminated, 0, ahead)
        return target, target

    # The last step has no later target. Starting from its own next value makes its target a
    # one-step target.
    return jax.lax.scan(back, next_value[-1], (reward, next_value, terminated, done), reverse=True)[
        1
    ]
