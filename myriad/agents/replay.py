"""Experience replay: a ring of columns, on the device or in the host's memory, sampled uniformly.

In docstrings `N` is the number of environments and `B` the number of sampled transitions.
"""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, Self

import jax
import jax.numpy as jnp
from jax.experimental import compute_on
from jax.typing import DTypeLike

from myriad.agents.minibatches import require_whole_parts
from myriad.errors import InvalidArgumentError
from myriad.ranges import Integer

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

    Raises:
        InvalidArgumentError: a size is not an integer of at least 1.

    Example:
        >>> ring = ReplayRing(capacity=10, num_envs=4)
        >>> state = ring.init({"reward": jnp.zeros(4)})
        >>> state = ring.write(state, {"reward": jnp.arange(4.0)})
        >>> sample = ring.sample(jax.random.key(0), state, 3)
        >>> int(ring.size(state)), ring.num_slots, sample["reward"].shape
        (4, 8, (3,))
    """

    capacity: int
    num_envs: int
    memory: Memory = "device"
    stride: int = 0

    @classmethod
    def of(cls, learner: Any, num_envs: int, n_step: int = 1, memory: Memory = "device") -> Self:
        """Return a learner's ring, with a stride if it keeps large observations and enough rows."""
        space = learner.env.observation_space(learner.env.default_params)
        obs_bytes = math.prod(space.shape) * space.dtype.itemsize
        is_kept_once = obs_bytes >= _KEPT_ONCE and learner.buffer_size // num_envs > 2 * n_step
        return cls(learner.buffer_size, num_envs, memory, n_step if is_kept_once else 0)

    def __post_init__(self) -> None:
        for name in ("capacity", "num_envs"):
            Integer(1).require(name, getattr(self, name))

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

    def sample(self, key: jax.Array, state: ReplayState, batch_size: int) -> Any:
        """Draw uniformly with replacement, leaves `[B, ...]`. An empty ring gives slot 0."""
        return self.at(state, self.draw(key, state, batch_size))

    def draw(self, key: jax.Array, state: ReplayState, batch_size: int) -> jax.Array:
        """Draw slots uniformly with replacement, int32 `[B]`."""
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


def share_replay(learner: Any, num_devices: int, *counts: str) -> Any:
    """Return a learner with one device's share of the batch, of the buffer and of the counts.

    Args:
        learner: the learner of all devices.
        num_devices: the devices.
        counts: names of its fields that count steps of all environments.

    Raises:
        InvalidArgumentError: the devices can't share the batch or the buffer.
    """
    for name in ("batch_size", "buffer_size"):
        if (size := getattr(learner, name)) % num_devices:
            raise InvalidArgumentError("num_devices", f"must divide {name} = {size:,}", num_devices)
    learner = dataclasses.replace(
        learner,
        batch_size=learner.batch_size // num_devices,
        buffer_size=learner.buffer_size // num_devices,
        **{name: -(-getattr(learner, name) // num_devices) for name in counts},
    )
    require_whole_parts(learner.batch_size, learner.gradient_accumulation)
    return learner


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

    @classmethod
    def zeros(
        cls,
        shape: tuple[int, ...],
        obs_size: int,
        obs_dtype: DTypeLike = jnp.float32,
        action_shape: tuple[int, ...] = (),
        action_dtype: DTypeLike = jnp.int32,
    ) -> "Step":
        """Return empty steps, leaves `[*shape]`, with flat observations, `[*shape, obs_size]`."""
        obs = jnp.zeros((*shape, obs_size), obs_dtype)
        reward = jnp.zeros(shape, jnp.float32)
        action = jnp.zeros((*shape, *action_shape), action_dtype)
        ended = jnp.zeros(shape, bool)
        return cls(obs, action, reward, ended, ended, obs)

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
