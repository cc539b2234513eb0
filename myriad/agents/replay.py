"""Experience replay: a ring of columns, on the device or in the host's memory, and its learners.

In docstrings `N` is the number of environments and `B` the number of sampled transitions.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Literal, Self

import jax
import jax.numpy as jnp
from jax.experimental import compute_on
from jax.typing import DTypeLike

from myriad.agents.agent import Count, Fraction, ManySteps, Positive, Repetitions, State
from myriad.agents.gradients import GradientLearner
from myriad.agents.minibatches import MANY_ENVS, require_whole_parts
from myriad.engine.random import make_key
from myriad.envs.wrappers import PrivilegedObservation
from myriad.errors import InvalidArgumentError

# JAX 0.11 gave the first name to the second function.
_on_host = partial(
    getattr(compute_on, "compute_on2", compute_on.compute_on),
    compute_type="device_host",
    out_memory_spaces=jax.memory.Space.Host,
)

# Where the columns may lie.
Memory = Literal["device", "host"]
# An observation of so many bytes is kept once, which halves the buffer. For CartPole's 16 bytes
# that would save a quarter, and an update took up to 5% longer. A buffer of few rows can't spare
# any.
_KEPT_ONCE = 1024


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ReplayState:
    """The content of a ring.

    Attributes:
        columns: transitions, leaves `[capacity, ...]`.
        num_writes: rows written so far, int32 scalar; stays within the ring's period.
        is_full: whether every slot in use holds a transition, boolean scalar.
    """

    columns: Any
    num_writes: jax.Array
    is_full: jax.Array


# Not flashbax's buffer, which refuses more environments than slots, such as 100,000 and 10,000.
@dataclasses.dataclass(frozen=True)
class ReplayRing:
    """A ring of `capacity` transitions. Each write gets one transition of every environment.

    With at most as many environments as slots, a write is one row of all environments. The ring
    holds the last `capacity // num_envs` rows, which are `num_slots` transitions. The remaining
    slots stay empty.

    With more environments than slots, a write keeps only a block of `capacity` environments. The
    block moves on by `capacity` with every write, and starts again at environment 0 after
    `ceil(num_envs / capacity)` writes. The last block ends at the last environment. So every
    environment is kept equally often, except those that two blocks share.

    Either way a write is one contiguous update of each column. In a compiled loop it happens in
    place, as long as the ring is written before it is sampled.

    With a `stride` the rows are `Experience` without `next_obs`, which is the observation of a row
    up to `stride` writes later. So the newest `stride` rows are not drawn.

    With `memory="host"` the columns lie in the host's memory, and the host writes and gathers. Only
    rows and samples move between host and device. On a CPU, both have the same memory.

    Example:
        >>> ring = ReplayRing(capacity=10, num_envs=4)
        >>> state = ring.init({"reward": jnp.zeros(4)})
        >>> state = ring.write(state, {"reward": jnp.arange(4.0)})
        >>> sample = ring.at(state, ring.draw(jax.random.key(0), state, 3))
        >>> int(ring.size(state)), ring.num_slots, sample["reward"].shape
        (4, 8, (3,))
    """

    capacity: int
    num_envs: int
    memory: Memory = "device"
    stride: int = 0

    @property
    def envs_per_write(self) -> int:
        """Transitions that one write keeps."""
        return min(self.capacity, self.num_envs)

    @property
    def num_slots(self) -> int:
        """Transitions that the ring holds when full."""
        return self.capacity // self.envs_per_write * self.envs_per_write

    def init(self, row: Any) -> ReplayState:
        """Allocate the ring for rows like `row`, arrays or shapes `[N, ...]`.

        Raises:
            InvalidArgumentError: JAX's backend can't reach the host's memory.
        """
        shapes = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((self.capacity, *leaf.shape[1:]), leaf.dtype), row
        )
        if self.memory == "host":
            columns = _zeros_on_host(shapes)
        else:
            columns = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return ReplayState(columns, jnp.zeros((), jnp.int32), jnp.zeros((), bool))

    def write(self, state: ReplayState, row: Any, counts: jax.Array | None = None) -> ReplayState:
        """Replace the oldest row by one with leaves `[N, ...]`.

        If `counts` is False, the next write replaces this row.
        """
        start = self._next_slot(state)
        if self.num_envs > self.capacity:
            env_index = jnp.minimum(state.num_writes * self.capacity, self.num_envs - self.capacity)
            row = jax.tree.map(
                lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, env_index, self.capacity), row
            )
        # Never select between whole columns, not even for a row that doesn't count. With 1,000,000
        # slots that made a step 39 times as long.
        columns = self._where_columns_lie(_updated)(state.columns, row, start)
        num_writes = state.num_writes + (1 if counts is None else counts)
        # With more environments than slots, the first write fills the ring.
        if self.num_envs > self.capacity:
            wraps = num_writes == -(-self.num_envs // self.capacity)
            is_full = state.is_full | (num_writes > 0)
        else:
            wraps = num_writes == self.capacity // self.num_envs
            is_full = state.is_full | wraps
        return ReplayState(columns, jnp.where(wraps, 0, num_writes), is_full)

    def size(self, state: ReplayState) -> jax.Array:
        """Return how many transitions there are to sample from, int32 scalar."""
        written = jnp.where(state.is_full, self.num_slots, state.num_writes * self.envs_per_write)
        incomplete = self.stride * self.envs_per_write
        return jnp.maximum(written - incomplete, 0) if incomplete else written

    def draw(self, key: jax.Array, state: ReplayState, batch_size: int) -> jax.Array:
        """Draw slots uniformly with replacement, int32 `[B]`. An empty ring gives slot 0."""
        size = jnp.maximum(self.size(state), 1).astype(jnp.uint32)
        # The bias of the remainder is below size / 2**32.
        drawn = (jax.random.bits(key, (batch_size,)) % size).astype(jnp.int32)
        if not self.stride:
            return drawn
        oldest = jnp.where(state.is_full, self._next_slot(state), 0)
        return (oldest + drawn) % self.num_slots

    def at(self, state: ReplayState, slots: jax.Array) -> Any:
        """Return the transitions in `slots`, int32 `[B]`, each below the capacity."""
        rows = self._rows(state.columns, slots)
        if not self.stride:
            return rows
        next_slots = (slots + rows.num_ahead * self.num_envs) % self.num_slots
        return dataclasses.replace(rows, next_obs=self._rows(state.columns.obs, next_slots))

    def next_slots(self, state: ReplayState) -> jax.Array:
        """Return the slots that the next write fills, int32 `[envs_per_write]`."""
        return self._next_slot(state) + jnp.arange(self.envs_per_write, dtype=jnp.int32)

    def completed_slots(self, state: ReplayState) -> jax.Array:
        """Return the slots that can be drawn from the next write on, int32 `[envs_per_write]`."""
        if not self.stride:
            return self.next_slots(state)
        slots = self.next_slots(state) - self.stride * self.envs_per_write
        return jnp.where(state.is_full, slots % self.num_slots, jnp.maximum(slots, 0))

    def _rows(self, columns: Any, slots: jax.Array) -> Any:
        rows = self._where_columns_lie(_gathered)(columns, slots)
        return rows if self.memory == "device" else jax.device_put(rows, jax.memory.Space.Device)

    def _where_columns_lie(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return `fn(columns, *others)`, for calls with `others` on the device."""
        if self.memory == "device":
            return fn
        on_host = _on_host(jax.jit(fn))
        return lambda columns, *others: on_host(
            columns, *jax.device_put(others, jax.memory.Space.Host)
        )

    def _next_slot(self, state: ReplayState) -> jax.Array:
        if self.num_envs > self.capacity:
            # With more environments than slots, every write fills the whole ring.
            return jnp.zeros((), jnp.int32)
        return state.num_writes * self.num_envs


def _updated(columns: Any, row: Any, start: jax.Array) -> Any:
    return jax.tree.map(
        lambda column, leaf: jax.lax.dynamic_update_slice_in_dim(column, leaf, start, 0),
        columns,
        row,
    )


def _gathered(columns: Any, slots: jax.Array) -> Any:
    # All slots are valid, so skip the check of JAX's default mode.
    return jax.tree.map(lambda column: column.at[slots].get(mode="promise_in_bounds"), columns)


def _zeros_on_host(shapes: Any) -> Any:
    """Return zeros that were never on the device, whose memory may be too small for them."""
    device = jax.local_devices()[0]
    if "pinned_host" not in {memory.kind for memory in device.addressable_memories()}:
        rule = f"must be 'device' on {device.platform}, which can't reach the host's memory"
        raise InvalidArgumentError("replay_memory", rule, "host")

    @_on_host
    @jax.jit
    def spread(zeros: Any) -> Any:
        return jax.tree.map(lambda zero, leaf: jnp.broadcast_to(zero, leaf.shape), zeros, shapes)

    zeros = jax.tree.map(lambda leaf: jnp.zeros((), leaf.dtype), shapes)
    return spread(jax.device_put(zeros, jax.memory.Space.Host))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Step:
    """One step of all environments, leaves `[N, ...]`.

    `final_obs` is from before any reset. It is None if a ring with a stride is to hold the step.
    """

    obs: jax.Array
    action: jax.Array
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    final_obs: jax.Array | None

    def held_by(self, ring: ReplayRing) -> "Step":
        """Return the step without what a ring finds in later rows."""
        return dataclasses.replace(self, final_obs=None) if ring.stride else self


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Experience:
    """Transitions for the target `reward + discount * value(next_obs)`, leaves `[N or B, ...]`.

    Attributes:
        obs: the observation from which `action` was chosen.
        action: the action, or the learner's choice of one.
        reward: the discounted sum of up to n rewards.
        discount: the factor of the value of `next_obs`: `gamma` to the power of the number of
            rewards, or 0 after a termination.
        next_obs: the observation after the last of those steps, before any reset. None in a ring
            with a stride.
        num_ahead: how many writes later a ring with a stride has `next_obs`, int32. 0 means that it
            never has, so nothing can be learned from the transition.
    """

    obs: jax.Array
    action: jax.Array
    reward: jax.Array
    discount: jax.Array
    next_obs: Any
    num_ahead: jax.Array | None = None

    @property
    def counts(self) -> jax.Array | bool:
        """Which transitions can be learned from, boolean `[..., B]`, or True for all."""
        return True if self.num_ahead is None else self.num_ahead > 0

    def counted(self, errors: jax.Array) -> jax.Array:
        """Return errors, `[..., B]`, of which those that nothing can be learned from are 0."""
        return errors if self.num_ahead is None else jnp.where(self.counts, errors, 0)


def n_step(steps: Step, gamma: float) -> Experience:
    """Return the n-step experience that begins with the first of n steps, leaves `[n, N, ...]`.

    The sum stops at the end of an episode. A truncated episode bootstraps from the value of its
    last observation, and a terminated one from none (Sutton and Barto 2018, equation 7.1).

    A ring with a stride has no last observation, so the sum there stops before a truncated step,
    and a transition that begins with one is left out. That is so whatever the step led to.
    Otherwise the transitions that are kept would say more of those episodes that ended.
    """
    num_steps, num_envs = steps.reward.shape
    alive = jnp.ones(num_envs, bool)
    reward = jnp.zeros_like(steps.reward[0])
    discount = jnp.ones_like(steps.reward[0])
    final_obs = steps.final_obs
    next_obs: Any = None if final_obs is None else final_obs[0]
    num_ahead = jnp.zeros(num_envs, jnp.int32) if final_obs is None else None
    for i in range(num_steps):
        if num_ahead is not None:
            alive = alive & ~steps.truncated[i]
            num_ahead = jnp.where(alive, i + 1, num_ahead)
        reward = reward + jnp.where(alive, gamma**i * steps.reward[i], 0)
        discount = jnp.where(alive, jnp.where(steps.terminated[i], 0, gamma ** (i + 1)), discount)
        if i and final_obs is not None:
            is_later = alive.reshape(-1, *[1] * (final_obs.ndim - 2))
            next_obs = jnp.where(is_later, final_obs[i], next_obs)
        alive = alive & ~(steps.terminated[i] | steps.truncated[i])
    return Experience(steps.obs[0], steps.action[0], reward, discount, next_obs, num_ahead)


@dataclasses.dataclass(frozen=True)
class ReplayLearner(GradientLearner[State]):
    """A learner from a replay buffer. Its state has the fields `num_updates` and `replay`.

    An update is `steps_per_update` steps of every environment, then `gradient_steps` steps on
    samples of the buffer. There are none until `learning_starts` transitions were seen. This is a
    trip count and not a branch, and it depends only on the number of updates, so results don't
    depend on how updates are cut into chunks. An observation of 1 KiB or more is kept once, if
    there are enough rows, and then nothing is learned from a truncated step.

    Attributes:
        gradient_steps: gradient steps in an update.
        batch_size: transitions of a gradient step, `B`.
        buffer_size: transitions that the buffer holds. `ReplayRing` says what happens with more
            environments than that.
        learning_starts: transitions before the first gradient step.
        learning_rate: learning rate of Adam.
        gamma: the discount.
    """

    gradient_steps: Repetitions = 8
    batch_size: Count = 256
    buffer_size: Count = 100_000
    learning_starts: ManySteps = 1_000
    learning_rate: Positive = 3e-4
    gamma: Fraction = 0.99
    activation: str = "relu"
    default_num_envs: ClassVar[int] = 8

    def require_fit(self) -> None:
        """Raise InvalidArgumentError if a batch can't be cut into equal parts."""
        require_whole_parts(self.batch_size, self.gradient_accumulation)

    @classmethod
    def defaults_for(
        cls, num_envs: int, total_steps: int | None, chosen: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Fill a larger buffer before learning from many environments."""
        return {"buffer_size": 500_000, "learning_starts": 20_000} if num_envs >= MANY_ENVS else {}

    def on_each_of(self, num_devices: int) -> Self:
        """Give each device its share of the batch, of the buffer and of the steps that count."""
        shares: dict[str, Any] = {"learning_starts": -(-self.learning_starts // num_devices)}
        for name in ("batch_size", "buffer_size"):
            if (size := getattr(self, name)) % num_devices:
                rule = f"must divide {name} = {size:,}"
                raise InvalidArgumentError("num_devices", rule, num_devices)
            shares[name] = size // num_devices
        require_whole_parts(shares["batch_size"], self.gradient_accumulation)
        return dataclasses.replace(self, **shares)

    @property
    def num_rewards(self) -> int:
        """The rewards in a target, before it bootstraps."""
        return 1

    def first_learning_update(self, num_envs: int) -> int:
        """Return the first update that learns, from 1. A transition must be complete then."""
        complete = self.num_rewards + self.ring(num_envs).stride
        num_steps = max(math.ceil(self.learning_starts / num_envs), complete)
        return math.ceil(num_steps / self.steps_per_update)

    def learns(self, state: Any, num_envs: int) -> jax.Array:
        """Return whether this update learns, a boolean scalar."""
        return state.num_updates.reaches(self.first_learning_update(num_envs) - 1)

    def ring(self, num_envs: int) -> ReplayRing:
        """Return the ring, with a stride if it keeps large observations and enough rows."""
        space: Any = self.env.observation_space(self.env.default_params)
        obs_bytes = math.prod(space.shape) * space.dtype.itemsize
        is_kept_once = (
            obs_bytes >= _KEPT_ONCE and self.buffer_size // num_envs > 2 * self.num_rewards
        )
        stride = self.num_rewards if is_kept_once else 0
        return ReplayRing(self.buffer_size, num_envs, stride=stride)

    def first_window(
        self, num_envs: int, action_shape: tuple[int, ...], action_dtype: DTypeLike
    ) -> Step:
        """Return the empty steps of a target, leaves `[num_rewards, N, ...]`."""
        env = PrivilegedObservation(self.env) if self.sees_privileged else self.env
        first, _ = jax.eval_shape(env.reset, make_key(0), env.default_params)
        shape = (self.num_rewards, num_envs)
        obs = jnp.zeros((*shape, math.prod(first.shape)), first.dtype)
        reward, ended = jnp.zeros(shape, jnp.float32), jnp.zeros(shape, bool)
        action = jnp.zeros((*shape, *action_shape), action_dtype)
        return Step(obs, action, reward, ended, ended, obs).held_by(self.ring(num_envs))
