"""DQN: Q-learning from a replay buffer, towards the values of a target network.

In docstrings `N` is the number of environments, `B` the transitions of a gradient step, `D` the
size of a flattened observation, `A` the number of actions and `P` the number of parameters.
"""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

import jax
import jax.numpy as jnp
import optax
from flax.training.dynamic_scale import DynamicScale

from myriad.agents import q_learning
from myriad.agents.agent import (
    Count,
    Environments,
    Fraction,
    Limit,
    ManySteps,
    Mean,
    PositiveOrOff,
    Repetitions,
    Weight,
)
from myriad.agents.gradients import (
    WHOLE_TRAINING,
    Learned,
    ManyUpdates,
    annealed,
    before_learning,
    clip_by_norm,
    gradient_step,
)
from myriad.agents.networks.mlp import flatten
from myriad.agents.normalization import (
    RunningMoments,
    discounted_return,
    normalize_obs,
    scale_rewards,
    update_moments,
)
from myriad.agents.priorities import Priorities, importance_weights
from myriad.agents.replay import (
    Experience,
    Memory,
    ReplayLearner,
    ReplayRing,
    ReplayState,
    Step,
    n_step,
)
from myriad.agents.trajectory import act_and_step
from myriad.engine.gpu_loops import repeat_or_skip
from myriad.engine.random import Counter
from myriad.envs.vector import BatchState, Transition
from myriad.errors import InvalidArgumentError
from myriad.ranges import Integer
from myriad.registry import is_integer

# Folded into a key for each purpose, so that no two draws share a stream.
_COLLECT, _SAMPLE = range(2)
# With many environments too, take a gradient step for every 4 transitions, as with 8 environments,
# but at most 32 in an update.
_TRANSITIONS_PER_STEP, _MOST_GRADIENT_STEPS = 4, 32


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DQNState:
    """The state that learning changes. Parts that are switched off are None.

    Attributes:
        params: the network's parameters as one vector, `[P]`.
        opt_state: the optimiser's state.
        loss_scale: the scale of the loss for float16; None if gradients need none.
        target_params: the target network's parameters, always float32.
        num_updates: updates done.
        replay: the buffer; observations in it are as the environment gave them, flattened.
        priorities: how often each slot of the buffer is sampled.
        pending: the last `n_step - 1` steps, whose returns are not complete yet, with leaves
            `[n_step - 1, N, ...]`.
        obs_stats: moments of the observations, `[D]`.
        return_stats: moments of the discounted return.
        running_return: the discounted return of the running episodes, `[N]`.
    """

    params: jax.Array
    opt_state: optax.OptState
    loss_scale: DynamicScale | None
    target_params: jax.Array
    num_updates: Counter
    replay: ReplayState
    priorities: Priorities | None
    pending: Step | None
    obs_stats: RunningMoments | None
    return_stats: RunningMoments | None
    running_return: jax.Array


@dataclasses.dataclass(frozen=True)
class DQN(ReplayLearner[DQNState]):
    """Mnih et al. (2015), "Human-level control through deep reinforcement learning", algorithm 1.

    It is double by default (van Hasselt et al. 2016, "Deep reinforcement learning with double
    Q-learning"). It uses n-step returns as in Hessel et al. (2018), "Rainbow". It is optionally
    dueling (Wang et al. 2016, "Dueling network architectures"), with hidden layers shared by both
    streams. Other differences from the first paper are Adam in place of RMSProp, a target network
    that follows softly, squared errors unless `huber_delta` is given, and observations and rewards
    that are scaled by running moments when they are sampled. By default a value bootstraps through
    truncation, as in Pardo et al. (2018), "Time limits in reinforcement learning".

    Attributes:
        train_every: steps of every environment in an update.
        replay_memory: where the buffer lies: device, or host for a buffer that is larger than the
            device's memory. The host copies rows and samples to and from the device. Results are
            the same.
        priority_alpha: how much a transition's last error decides how often it is sampled; 0
            samples all transitions equally. All samples of an update are drawn before its first
            gradient step.
        priority_beta: how far weights correct for prioritised sampling. It rises to 1 while the
            learning rate falls.
        anneal_updates: updates over which the learning rate falls linearly to 0; "training" for the
            whole training, None for a constant rate.
        n_step: rewards in a target before it bootstraps.
        bootstrap_truncated: bootstrap from the value of the last observation of a truncated
            episode; False treats a time limit as a termination.
        double: the network itself chooses the action that the target network values.
        dueling: the network outputs a value and advantages.
        huber_delta: errors beyond it count linearly; None squares all errors.
        polyak: the share of the target network that stays when it is renewed; 0 copies the
            network.
        target_period: updates between renewals of the target network.
        epsilon_start: probability of a random action at the start.
        epsilon_end: probability of a random action after `exploration_steps`.
        exploration_steps: steps of all environments together over which epsilon falls linearly.
        optimizer_epsilon: added to the root mean square of gradients by which Adam divides.
        max_grad_norm: the gradient's norm is clipped to this; infinity never clips.
        layer_norm: normalise every hidden layer before its activation.
        normalize_rewards: scale rewards by the running deviation of the discounted return. The sum
            of `n_step` rewards is scaled and then cut to -10 to 10, not each reward.
    """

    train_every: Repetitions = 1
    gradient_steps: Repetitions = 2
    batch_size: Count = 128
    replay_memory: Memory = "device"
    priority_alpha: Fraction = 0.0
    priority_beta: Fraction = 0.4
    anneal_updates: ManyUpdates = WHOLE_TRAINING
    gamma: Fraction = 0.995
    # Bounded, since the sum over these steps is unrolled in the program.
    n_step: Annotated[int, Integer(1, 512)] = 3
    bootstrap_truncated: bool = True
    double: bool = True
    dueling: bool = False
    huber_delta: PositiveOrOff = None
    polyak: Fraction = 0.98
    target_period: Count = 1
    epsilon_start: Fraction = 1.0
    epsilon_end: Fraction = 0.1
    exploration_steps: ManySteps = 20_000
    # Far above Adam's own 1e-8, so that tiny gradients take small steps.
    optimizer_epsilon: Weight = 1.5e-4
    max_grad_norm: Limit = 10.0
    layer_norm: bool = False
    # With unscaled rewards, DQN did not learn CartPole.
    normalize_rewards: bool = True
    losses: ClassVar[tuple[str, ...]] = ("loss", "epsilon")
    structural: ClassVar[frozenset[str]] = frozenset({"priority_alpha"})
    per_device: ClassVar[frozenset[str] | None] = frozenset(
        {"replay", "priorities", "pending", "running_return"}
    )

    @property
    def unused(self) -> dict[str, str]:
        """What prioritised sampling needs, without it."""
        of_draws = {} if self.priority_alpha else {"priority_beta": "with priority_alpha = 0"}
        return super().unused | of_draws

    def require_fit(self) -> None:
        """Raise InvalidArgumentError if actions are not discrete or fields don't fit together."""
        q_learning.require_discrete_actions(type(self), self.env)
        super().require_fit()
        self._network.require_outputs()

    @classmethod
    def defaults_for(
        cls, num_envs: int, total_steps: int | None, chosen: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Take more gradient steps after each step of many environments, from a larger buffer.

        Epsilon falls during at most a fifth of the training.
        """
        explored = q_learning.exploration_steps(cls, num_envs, total_steps)
        defaults: dict[str, Any] = {"exploration_steps": explored}
        gradient_steps = min(num_envs // _TRANSITIONS_PER_STEP, _MOST_GRADIENT_STEPS)
        if gradient_steps > cls.gradient_steps:
            # The target network is renewed once per update. With more gradient steps in an update,
            # it must follow faster.
            taken: Any = chosen.get("gradient_steps")
            if not is_integer(taken) or taken < 1:  # If you gave this value, it is refused later.
                taken = gradient_steps
            polyak = round(cls.polyak ** (taken / cls.gradient_steps), 3)
            defaults |= {"gradient_steps": gradient_steps, "polyak": polyak}
        return defaults | super().defaults_for(num_envs, total_steps, chosen)

    @property
    def steps_per_update(self) -> int:
        return self.train_every

    def on_each_of(self, num_devices: int) -> Self:
        """Give each device its share of the batch, of the buffer and of the steps that count."""
        if num_devices > 1 and self.replay_memory != "device":
            rule = f"must be 'device' with num_devices = {num_devices}"
            raise InvalidArgumentError("replay_memory", rule, self.replay_memory)
        explored = -(-self.exploration_steps // num_devices)
        return dataclasses.replace(super().on_each_of(num_devices), exploration_steps=explored)

    @property
    def num_rewards(self) -> int:
        return self.n_step

    def init(self, key: jax.Array, num_envs: int) -> DQNState:
        """Draw the network's parameters and allocate the buffer."""
        obs_size = self._network.obs_size
        first = before_learning(self, self._network.init(key))
        action_shape = self.env.action_space(self.env.default_params).shape
        window = self.first_window(num_envs, action_shape, jnp.int32)
        return DQNState(
            *first,
            # A copy, since the trainer donates the state and can donate a buffer only once. It is
            # float32, since the target's small steps would be lost in a narrower dtype.
            target_params=jnp.array(first.params, jnp.float32, copy=True),
            num_updates=Counter.of(0),
            replay=self.ring(num_envs).init(n_step(window, self.gamma)),
            priorities=Priorities.create(self.buffer_size) if self.priority_alpha else None,
            pending=jax.tree.map(lambda leaf: leaf[1:], window) if self.n_step > 1 else None,
            obs_stats=RunningMoments.create((obs_size,)) if self.normalize_observations else None,
            return_stats=RunningMoments.create(()) if self.normalize_rewards else None,
            running_return=jnp.zeros(num_envs, jnp.float32),
        )

    def collect(
        self, key: jax.Array, state: DQNState, batch_state: BatchState, envs: Environments
    ) -> tuple[DQNState, BatchState, None]:
        """Take `train_every` steps of all environments and write them into the buffer."""
        key = jax.random.fold_in(key, _COLLECT)

        def body(t: jax.Array, carry: tuple[DQNState, BatchState]) -> tuple[DQNState, BatchState]:
            state, batch_state = carry

            def choose(keys: jax.Array, obs: jax.Array) -> tuple[jax.Array, None]:
                return self._explored(state, keys, obs), None

            obs: Any = batch_state.obs
            batch_state, _, transition = act_and_step(key, t, batch_state, choose, envs)
            return self._remember(state, flatten(obs), transition, t, envs.mean), batch_state

        state, batch_state = jax.lax.fori_loop(0, self.train_every, body, (state, batch_state))
        return state, batch_state, None

    def learn(
        self, key: jax.Array, state: DQNState, batch_state: BatchState, experience: None, mean: Mean
    ) -> tuple[DQNState, dict[str, jax.Array]]:
        """Take the gradient steps and renew the target. Metrics are 0 before learning starts."""
        # All writes to the buffer come before this gather. In the other order XLA copies the whole
        # buffer in each step, which ran at 0.07 of the speed.
        num_envs = state.running_return.shape[0]
        ring = self.ring(num_envs)
        slots, batch, weights = self._drawn(jax.random.fold_in(key, _SAMPLE), state, ring)
        batch = dataclasses.replace(
            batch,
            obs=normalize_obs(state.obs_stats, batch.obs),
            next_obs=normalize_obs(state.obs_stats, batch.next_obs),
            reward=scale_rewards(state.return_stats, batch.reward),
        )
        # The target network doesn't change within an update, so one product gives all values.
        target_values = self._network.values(state.target_params, batch.next_obs)
        batches = jax.tree.map(
            lambda leaf: leaf.reshape(self.gradient_steps, self.batch_size, *leaf.shape[1:]),
            (batch, target_values, weights),
        )
        learning_rate = annealed(self.learning_rate, state.num_updates, self.anneal_updates)

        def loss(params: jax.Array, rows: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
            batch, target_values, weight = rows
            loss = self.loss(params, batch, self.target(params, batch, target_values), weight)
            return loss, {"loss": loss}

        def train_step(i: jax.Array, carry: Any) -> Any:
            learned, totals, errors = carry
            rows = jax.tree.map(lambda leaf: leaf[i], batches)
            if errors is not None:
                errors = errors.at[i].set(self._errors(learned.params, rows))
            learned, metrics = gradient_step(self, loss, learned, rows, learning_rate, mean)
            return learned, jax.tree.map(jnp.add, totals, metrics), errors

        # Epsilon is known without a gradient step.
        names = [name for name in self.metric_names if name != "epsilon"]
        zeros = {name: jnp.zeros((), jnp.float32) for name in names}
        errors = None
        if state.priorities is not None:
            errors = jnp.zeros((self.gradient_steps, self.batch_size), jnp.float32)
        learns = self.learns(state, num_envs)
        learned, totals, errors = repeat_or_skip(
            learns,
            self.gradient_steps,
            train_step,
            (Learned(state.params, state.opt_state, state.loss_scale), zeros, errors),
        )
        priorities = state.priorities
        if priorities is not None and errors is not None:
            alpha = self.priority_alpha
            priorities = priorities.updated(slots, errors.ravel(), alpha, learns)
        metrics = {name: total / self.gradient_steps for name, total in totals.items()}
        next_state = dataclasses.replace(
            state,
            **learned._asdict(),
            target_params=self._renewed(state, learned.params),
            num_updates=state.num_updates + 1,
            priorities=priorities,
        )
        return next_state, metrics | {"epsilon": self._epsilon(state)}

    def target(self, params: jax.Array, batch: Experience, target_values: jax.Array) -> jax.Array:
        """Return the targets, `[B]`. `target_values`, `[B, A]`, are the values of `next_obs`."""
        chosen_by = self._network.values(params, batch.next_obs) if self.double else target_values
        next_value = self._network.value_of(target_values, self._network.best_action(chosen_by))
        return batch.reward + batch.discount * next_value

    def error(self, params: jax.Array, batch: Experience, target: jax.Array) -> jax.Array:
        """Return the differences of values and targets, `[B]`."""
        values = self._network.values(params, batch.obs)
        return batch.counted(self._network.value_of(values, batch.action) - target)

    def loss(
        self,
        params: jax.Array,
        batch: Experience,
        target: jax.Array,
        weight: jax.Array | None = None,
    ) -> jax.Array:
        """Return half the mean squared error, or Huber's loss. `weight`, `[B]`, is optional."""
        error = self.error(params, batch, target)
        if self.huber_delta is None:
            return 0.5 * _weighted_mean(jnp.square(error), weight)
        return _weighted_mean(optax.losses.huber_loss(error, delta=self.huber_delta), weight)

    def named_params(self, state: DQNState) -> dict[str, Any]:
        return {"network": self._network.unravel(state.params)}

    def act(self, state: DQNState, key: jax.Array, obs: jax.Array, *, greedy: bool) -> jax.Array:
        """Choose actions `[N]` for observations `[N, *O]`: the best one, or one to explore."""
        if greedy:
            return self._network.best_action(self._values(state, obs))
        return self._explored(state, jax.random.split(key, obs.shape[0]), obs)

    def _explored(self, state: DQNState, keys: jax.Array, obs: jax.Array) -> jax.Array:
        return self._network.epsilon_greedy(
            keys, self._values(state, obs), self._epsilon(state), masked=self.is_masked
        )

    def _values(self, state: DQNState, obs: jax.Array) -> jax.Array:
        return self._network.values_in_blocks(state.params, flatten(obs), state.obs_stats)

    def _remember(
        self, state: DQNState, obs: jax.Array, result: Transition, t: jax.Array, mean: Mean
    ) -> DQNState:
        """Add a step to the buffer and to the moments. `t` counts the steps of this update."""
        obs_stats = update_moments(state.obs_stats, obs, mean)
        return_stats = state.return_stats
        running_return = state.running_return
        done = result.terminated | result.truncated
        terminated = result.terminated if self.bootstrap_truncated else done
        if return_stats is not None:
            discounted, running_return = discounted_return(
                running_return, result.reward, done, self.gamma
            )
            return_stats = update_moments(return_stats, discounted, mean)
        final_obs = flatten(result.final_obs)
        truncated = result.truncated & self.bootstrap_truncated
        ring = self.ring(running_return.shape[0])
        step = Step(obs, result.action, result.reward, terminated, truncated, final_obs)
        window = jax.tree.map(lambda leaf: leaf[None], step.held_by(ring))
        # One-step returns need no window, since the step itself is complete.
        pending = None
        counts = None
        if state.pending is not None:
            window = jax.tree.map(
                lambda old, new: jnp.concatenate([old, new]), state.pending, window
            )
            pending = jax.tree.map(lambda leaf: leaf[1:], window)
            # The first windows of a training are not full, so they don't count.
            missing = self.n_step - 1
            before = state.num_updates.clipped(missing) * min(self.train_every, missing)
            counts = before + t >= missing
        priorities = state.priorities
        if priorities is not None:
            if ring.stride:
                priorities = priorities.written(ring.next_slots(state.replay), 0)
            slots = ring.completed_slots(state.replay)
            priorities = priorities.written(slots, priorities.largest)
        return dataclasses.replace(
            state,
            replay=ring.write(state.replay, n_step(window, self.gamma), counts),
            priorities=priorities,
            pending=pending,
            obs_stats=obs_stats,
            return_stats=return_stats,
            running_return=running_return,
        )

    def _drawn(
        self, key: jax.Array, state: DQNState, ring: ReplayRing
    ) -> tuple[jax.Array, Experience, jax.Array | None]:
        """Draw the slots and transitions of all gradient steps, and with priorities the weights."""
        if state.priorities is None:
            slots = ring.draw(key, state.replay, self.gradient_steps * self.batch_size)
            return slots, ring.at(state.replay, slots), None
        slots, probability = state.priorities.sample(key, self.gradient_steps, self.batch_size)
        batch = ring.at(state.replay, slots.ravel())
        beta = 1 - annealed(1 - self.priority_beta, state.num_updates, self.anneal_updates)
        counts = jnp.broadcast_to(batch.counts, slots.size).reshape(slots.shape)
        weights = importance_weights(probability, ring.size(state.replay), beta, counts)
        return slots.ravel(), batch, weights.ravel()

    def _errors(self, params: jax.Array, rows: Any) -> jax.Array:
        """Return the errors of a batch, `[B]`, computed in the same parts as its gradient."""

        def of_part(rows: Any) -> jax.Array:
            batch, target_values, _ = rows
            return self.error(params, batch, self.target(params, batch, target_values))

        if self.gradient_accumulation == 1:
            return of_part(rows)
        parts = jax.tree.map(
            lambda leaf: leaf.reshape(self.gradient_accumulation, -1, *leaf.shape[1:]), rows
        )
        return jax.lax.map(of_part, parts).ravel()

    def _renewed(self, state: DQNState, params: jax.Array) -> jax.Array:
        # Before learning starts both networks are equal, so renewing changes nothing.
        network = params.astype(jnp.float32)
        renewed = network + self.polyak * (state.target_params - network)
        if self.target_period == 1:
            return renewed
        is_due = (state.num_updates + 1).is_multiple_of(self.target_period)
        return jnp.where(is_due, renewed, state.target_params)

    def _epsilon(self, state: DQNState) -> jax.Array:
        steps_per_update = float(self.train_every * state.running_return.shape[0])
        steps = state.num_updates.as_float() * steps_per_update
        explored = steps / jnp.float32(self.exploration_steps)
        return q_learning.linear(self.epsilon_start, self.epsilon_end, explored)

    def ring(self, num_envs: int) -> ReplayRing:
        return dataclasses.replace(super().ring(num_envs), memory=self.replay_memory)

    @property
    def _network(self) -> q_learning.QNetwork:
        return q_learning.QNetwork.of(self, dueling=self.dueling)

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """Adam on a clipped gradient, without the learning rate."""
        return optax.chain(
            clip_by_norm(self.max_grad_norm), optax.scale_by_adam(eps=self.optimizer_epsilon)
        )


def _weighted_mean(values: jax.Array, weight: jax.Array | None) -> jax.Array:
    return jnp.mean(values if weight is None else weight * values)
