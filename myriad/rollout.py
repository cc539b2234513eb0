"""The compiled chunk: `scan_chunk_size` steps of environments x agent in one call.

The environments of a device are cut into tiles that fit its first-level cache. A tile runs all the
steps of the chunk before the next tile starts, so that the speed does not fall with the number of
environments. A draw depends only on the seed, the step and the environment, so results have the
same bits for every chunk size, tile size and number of devices.
"""

import dataclasses
import math
from functools import cached_property, partial
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from myriad.agents import Learner
from myriad.agents.controller import AnyAgent, WithMemory
from myriad.distributed import all_gather
from myriad.engine.devices import OuterJit, bytes_of, put_everywhere, require_alive, shard_map
from myriad.engine.fusion import compiles_loops_whole, count_primitives, output_fusion
from myriad.engine.memory import require_room_for, stated_bytes
from myriad.engine.random import MIX2X32, Counter, is_key, make_key
from myriad.engine.vector_math import vectorized
from myriad.envs.environment import AnyEnvironment
from myriad.envs.vector import MOST_SUMMED, BatchState, Transition, VectorEnv, float_parameters
from myriad.errors import InvalidArgumentError, shown
from myriad.ranges import INT64, Integer, Seed, checked, require

# A tile's state should leave room in a 32 KB first-level cache. Larger tiles than 512 gain nothing.
_CPU_TILE_BYTES, _MIN_TILE, _MAX_TILE = 24 * 1024, 64, 512
# SIMD lanes of one vector instruction: 16 float32 fill 512 bits.
_VECTOR = 16
# A tile of fewer vectors may round differently: by 2e-5 in a Kalman filter.
_LEAST_TILE = 3 * _VECTOR
# With fewer environments than this per device, waking a second CPU device costs more than it saves.
_MIN_ENVS_PER_DEVICE = 64
# Folded into a key for each purpose, so that no two draws of a step share a stream.
_FIRST_RESET, _ACT, _STEP, _RESET = range(4)
_STEPS = Integer(0, INT64)
# A call has a fixed cost, and moves every tile into the cache and out again. Over so many steps of
# all environments both are small, and still a call of a slow environment ends within seconds.
_CALL_STEPS, _LEAST_CHUNK, _MOST_CHUNK = 1_000_000, 64, 100_000
# A smaller program fits wherever Python does, and the system isn't asked what is free.
_SMALL_BYTES = 1 << 20


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RolloutState:
    """A rollout between chunks.

    Attributes:
        key: the key of the run.
        step: steps taken by each environment.
        batch_state: the environments, including padding, `N`. `num_episodes` is the low word of a
            64-bit count.
        high_episodes: the high word of that count, uint32 `[N]`.
        env_params: the float parameters that all environments share, float32 `[P]`.
    """

    key: jax.Array
    step: Counter
    batch_state: BatchState
    high_episodes: jax.Array
    env_params: jax.Array


@dataclasses.dataclass(frozen=True)
class RolloutSummary:
    """Episode statistics of a rollout. The means are nan until the first episode has ended."""

    num_steps: int
    num_episodes: int
    mean_episode_length: float
    mean_episode_return: float


@dataclasses.dataclass(frozen=True)
class Layout:
    """The placement of environments: `num_tiles` tiles of `tile_size` per device, with padding."""

    num_envs: int
    num_devices: int
    num_tiles: int
    tile_size: int

    @property
    def envs_per_device(self) -> int:
        return math.ceil(self.num_envs / self.num_devices)

    @property
    def padded_envs_per_device(self) -> int:
        return self.num_tiles * self.tile_size

    def held(self, leaf: jax.Array) -> np.ndarray:
        """Return the rows of a leaf that this process's devices hold, without the padding."""
        parts = []
        for shard in leaf.addressable_shards:
            first_row = shard.index[0].start or 0
            device = first_row // self.padded_envs_per_device
            left = self.num_envs - device * self.envs_per_device
            parts.append(np.asarray(shard.data)[: max(0, min(self.envs_per_device, left))])
        return np.concatenate(parts)

    def without_padding(self, leaf: jax.Array) -> jax.Array:
        """Drop the padding from the first axis of `leaf`."""
        by_device = leaf.reshape(self.num_devices, self.padded_envs_per_device, *leaf.shape[1:])
        return by_device[:, : self.envs_per_device].reshape(-1, *leaf.shape[1:])[: self.num_envs]


class Rollout:
    """A compiled rollout of `num_envs` environments under one agent.

    Args:
        env: the environment, as `make_env` builds it.
        agent: the agent, as `make_agent` or `load_agent` returns it: a fixed policy or a
            controller, whose memory starts afresh in every episode.
        num_envs: environments in parallel.
        scan_chunk_size: steps in one compiled call. By default so many that its fixed cost is
            small. Choose it yourself if you record: `record_chunk` keeps so many rows.
        tile_size: environments that run a chunk together. By default a tile fits a CPU's
            first-level cache if you called `configure`, and otherwise takes all environments.
        num_devices: devices that share the environments. By default all that are worth waking.
        params: environment parameters to use in place of `env.default_params`. A leaf `[num_envs,
            ...]` gives each environment its own value, as for domain randomisation.

    Attributes:
        loop_reason: why a chunk is a loop of steps, or None if it is one GPU kernel.

    Raises:
        InvalidArgumentError: a size is not an integer of at least 1, more devices are asked for
            than there are, or `params` does not fit the environment.

    Example:
        >>> from myriad import make_agent, make_env
        >>> env = make_env("cartpole-control")
        >>> rollout = Rollout(env, make_agent("random", env), num_envs=1000)
        >>> state = rollout.run(rollout.init(seed=0), num_steps=250)
        >>> rollout.summary(state).num_steps
        250000
    """

    @checked
    def __init__(
        self,
        env: AnyEnvironment,
        agent: AnyAgent,
        num_envs: Annotated[int, Integer(1)],
        scan_chunk_size: Annotated[int | None, Integer(1)] = None,
        *,
        tile_size: Annotated[int | None, Integer(1)] = None,
        num_devices: Annotated[int | None, Integer(1)] = None,
        params: Any = None,
    ):
        if isinstance(agent, Learner):
            raise InvalidArgumentError(
                "agent",
                f"must be trained before it acts, but got {shown(agent)}: "
                "train it, and use what load_agent returns.",
            )
        sizes = {"tile_size": tile_size, "num_devices": num_devices}
        self._again = partial(
            Rollout, env, agent, num_envs, scan_chunk_size, **sizes, params=params
        )
        self.env = env
        self.agent = agent
        if scan_chunk_size is None:
            scan_chunk_size = max(_LEAST_CHUNK, min(_MOST_CHUNK, _CALL_STEPS // num_envs))
        self.scan_chunk_size = scan_chunk_size
        self._remembers = hasattr(agent, "control")
        stepped: Any = WithMemory(env, agent) if self._remembers else env
        self._envs = VectorEnv(
            stepped,
            num_envs,
            params,
            keep_obs=getattr(agent, "uses_observation", True),
            floats=float_parameters(env),
        )
        devices = jax.devices()
        self.layout = self._plan_layout(num_devices, tile_size)
        self._mesh = Mesh(np.array(devices[: self.layout.num_devices]), ("env",))
        self._replicated = NamedSharding(self._mesh, PartitionSpec())
        # Use the same placement in every program, since a state with another placement would
        # compile the chunk again.
        everywhere: Any = self._replicated
        by_env: Any = NamedSharding(self._mesh, PartitionSpec("env"))
        placement = RolloutState(everywhere, everywhere, by_env, by_env, everywhere)
        self._kernel: Any = None
        self.loop_reason: str | None = "only a GPU runs a chunk as one kernel"
        if _is_gpu():
            # Pallas takes a quarter of a second to import.
            from myriad.engine.kernel import ChunkKernel

            state = self._state_like
            keys = jax.ShapeDtypeStruct((3,), state.key.dtype)
            self._kernel, self.loop_reason = ChunkKernel.of(
                self._step, state.batch_state, keys, state.env_params, self.layout.envs_per_device
            )
        # Put it on the devices once, since nearly every call takes it.
        self._whole_chunk = put_everywhere(np.int32(scan_chunk_size), self._replicated)
        # It is an option of loops on a CPU, and unsafe for the stores of an interpreted kernel.
        options = output_fusion(self._step_program, 0) if self.loop_reason else {}
        # All devices of a CPU share its memory.
        is_cpu = devices[0].platform == "cpu"
        num_sharing = len(self._mesh.local_devices) if is_cpu else 1

        def require_room(compiled: jax.stages.Compiled, **words: str) -> None:
            stats = compiled.memory_analysis()
            if stats and stats.temp_size_in_bytes + stats.output_size_in_bytes < _SMALL_BYTES:
                return
            held, added = (num_sharing * each for each in stated_bytes(compiled))
            require_room_for(num_envs, held + added, held, **words)

        recorded = f"{scan_chunk_size:,} recorded steps of "
        # The chunk, which compiles later, needs more.
        first = partial(require_room, at_most="fewer than")
        self._init = OuterJit(self._first_state, {}, first, out_shardings=placement)
        # By what a chunk keeps of its steps: nothing, all but `final_obs`, or all.
        self._chunks = {
            final_obs: OuterJit(
                partial(self._chunk, final_obs=final_obs),
                options,
                partial(require_room, doing="" if final_obs is None else recorded),
                donate_argnums=0,
                out_shardings=(placement, None),
            )
            for final_obs in (None, False, True)
        }

    def __repr__(self) -> str:
        how = f"a loop: {self.loop_reason}" if self.loop_reason else "one kernel"
        sizes = f"num_envs={self.layout.num_envs}, scan_chunk_size={self.scan_chunk_size}"
        return f"Rollout({self.env}, {self.agent}, {sizes}; {how})"

    def init(self, seed: Seed | np.integer | jax.Array, params: Any = None) -> RolloutState:
        """Reset every environment, from an integer seed or a typed key.

        Other `params` than the rollout's compile nothing. They may differ in the floats that are
        arguments of the program, see `myriad.envs.vector.float_parameters`, and in the values of
        leaves `[num_envs, ...]`.

        Raises:
            InvalidArgumentError: a parameter that differs is a constant of the program.
        """
        key = seed if is_key(seed) else make_key(seed)
        # Pass the parameters as an argument. As constants, those of every environment would be part
        # of the program.
        given = self._envs.params if params is None else self._envs.params.changed(params)
        own, values = put_everywhere((given.own, given.values), self._replicated)
        return self._init(put_everywhere(key, self._replicated), own, values)

    def run_chunk(self, state: RolloutState, num_steps: int | None = None) -> RolloutState:
        """Run one compiled call of `num_steps` steps, by default and at most `scan_chunk_size`.

        `state` is donated, so you can't use it after the call.
        """
        self._require_state(state)
        return self._chunks[None](state, self._trip_count(num_steps))[0]

    def record_chunk(
        self, state: RolloutState, num_steps: int | None = None, *, final_obs: bool = False
    ) -> tuple[RolloutState, Transition]:
        """Run one chunk and keep each step. Rows from `num_steps` on are meaningless.

        `state` is donated. With `final_obs`, the trajectory also holds the observation after each
        step from before any reset.
        """
        self._require_state(state)
        require("final_obs", final_obs, bool)
        return self._chunks[final_obs](state, self._trip_count(num_steps))

    def run(self, state: RolloutState, num_steps: int) -> RolloutState:
        """Run `num_steps` steps in as many chunks as they need. `state` is donated.

        Raises:
            InvalidArgumentError: `num_steps` is not an integer of at least 0, `state` is not of
                this rollout, or the call doesn't fit into memory.
        """
        _STEPS.require("num_steps", num_steps)
        # JAX only queues these calls. Nothing waits for the device until `summary`.
        for _ in range(num_steps // self.scan_chunk_size):
            state = self.run_chunk(state)
        remainder = num_steps % self.scan_chunk_size
        return self.run_chunk(state, remainder) if remainder else state

    def batch_state(self, state: RolloutState) -> BatchState:
        """Return the environments of `state` without the padding: leaves `[num_envs, ...]`."""
        self._require_state(state)
        batch_state = jax.tree.map(self.layout.without_padding, state.batch_state)
        if not self._remembers:
            return batch_state
        return dataclasses.replace(batch_state, env_state=batch_state.env_state.env_state)

    def summary(self, state: RolloutState) -> RolloutSummary:
        """Count the episodes that ended since `init`.

        Each environment sums its returns in float32, which would round too many of them away. So
        the mean return is nan once an environment has ended more than 2**22 episodes. Steps and
        episodes are counted in 64 bits.
        """
        self._require_state(state)
        held = self.layout.held
        # Sum on the host in 64 bits, since a sum over all environments may not fit into 32.
        num_steps = int(state.step) * self.layout.num_envs
        low = held(state.batch_state.num_episodes).astype(np.uint32)
        episodes = low + (held(state.high_episodes).astype(np.int64) << 32)
        num_episodes = int(episodes.sum())
        running_steps = int(held(state.batch_state.episode_length).sum(dtype=np.int64))
        return_sum = float(held(state.batch_state.return_sum).sum(dtype=np.float64))
        if (episodes > MOST_SUMMED).any():
            return_sum = math.nan
        # Each process knows only its own environments.
        of_all = all_gather([num_episodes, running_steps, return_sum])
        num_episodes, running_steps, return_sum = map(sum, zip(*of_all, strict=True))
        ended_steps = num_steps - running_steps
        if not num_episodes:
            return RolloutSummary(num_steps, 0, math.nan, math.nan)
        return RolloutSummary(
            num_steps, num_episodes, ended_steps / num_episodes, return_sum / num_episodes
        )

    def compile(self, state: RolloutState) -> jax.stages.Compiled:
        """Compile the chunk for states like `state`, to inspect it. `run_chunk` doesn't need it."""
        self._require_state(state)
        return self._chunks[None].lower(state, self._whole_chunk).compile()

    @cached_property
    def _state_like(self) -> RolloutState:
        """The shapes of a state."""
        params = self._envs.params
        return jax.eval_shape(self._first_state, make_key(0), params.own, params.values)

    @cached_property
    def _structure(self) -> Any:
        return jax.tree.structure(self._state_like)  # once, since every call compares it

    def __reduce__(self) -> Any:
        # Compiled programs can't be pickled, so the copy compiles its own.
        return self._again, ()

    def _require_state(self, state: Any) -> None:
        if (
            not isinstance(state, RolloutState)
            or state.high_episodes.shape != self._state_like.high_episodes.shape
            or jax.tree.structure(state) != self._structure
        ):
            got = "that of another" if isinstance(state, RolloutState) else shown(state)
            raise InvalidArgumentError(
                "state", f"must be this rollout's, as init and run return it, but got {got}."
            )
        require_alive("state", state.high_episodes)  # A call donates all arrays or none.

    def _plan_layout(self, num_devices: int | None, tile_size: int | None) -> Layout:
        """Spread environments over at most `num_devices`, in tiles of whole vectors.

        The loop over the remainder of a vector may round differently from whole vectors, and so may
        a loop of one or two vectors, which is unrolled. So no environment that counts is in such a
        loop. If there are too few environments to avoid it, all of them are, for any `tile_size`.
        """
        num_envs = self._envs.num_envs
        num_there, num_processes = jax.device_count(), jax.process_count()
        if num_devices is None:
            # With several processes, all devices of all processes must take part.
            worth_it = num_envs // _MIN_ENVS_PER_DEVICE if num_processes == 1 else num_there
            num_devices = min(num_there, max(1, worth_it))
        if num_devices > num_there:
            raise InvalidArgumentError("num_devices", f"must be at most {num_there}", num_devices)
        num_used = max(1, min(num_devices, num_envs // _VECTOR))
        if num_processes > 1 and num_used < num_there:
            raise InvalidArgumentError(
                "num_envs",
                f"must be at least {_VECTOR * num_there} for the {num_there} "
                f"devices of {num_processes} processes, and num_devices left out, "
                f"but got {num_envs} and {num_devices}.",
            )
        if num_envs < _VECTOR:
            return Layout(num_envs, 1, 1, num_envs)
        envs = math.ceil(num_envs / num_used)
        least = min(_LEAST_TILE, math.ceil(num_envs / _VECTOR) * _VECTOR)
        wanted = (tile_size or self._default_tile()) // _VECTOR * _VECTOR
        num_tiles = math.ceil(envs / max(least, wanted))
        tile_size = max(least, math.ceil(envs / num_tiles / _VECTOR) * _VECTOR)
        return Layout(num_envs, num_used, num_tiles, tile_size)

    def _default_tile(self) -> int:
        # If every step goes back to the runtime, tiles would only make that happen more often.
        if jax.default_backend() != "cpu" or not compiles_loops_whole():
            return math.ceil(self._envs.num_envs / _VECTOR) * _VECTOR
        own = jax.tree.map(lambda leaf: leaf[:1], self._envs.params.own)
        traced = jax.jit(self._envs.reset).trace(make_key(0)[None], own)
        # A step that sorts goes back, too. With tiles for the cache, shuffling 52 cards took 1.2
        # times as long.
        if count_primitives(traced.jaxpr.jaxpr)["sort"]:
            return _MAX_TILE
        return max(_MIN_TILE, min(_MAX_TILE, _CPU_TILE_BYTES // bytes_of(traced.out_info)))

    def _step_program(self) -> ClosedJaxpr:
        """Trace a step of a tile, which decides the compiler options of the chunk."""
        state = self._state_like
        keys = jax.ShapeDtypeStruct((3,), state.key.dtype)
        step = jax.make_jaxpr(vectorized(self._step))
        return step(state.batch_state, keys, state.high_episodes, state.env_params)

    def _trip_count(self, num_steps: int | None) -> jax.Array:
        if num_steps is None:
            return self._whole_chunk
        Integer(0, self.scan_chunk_size).require("num_steps", num_steps)
        if num_steps == self.scan_chunk_size:
            return self._whole_chunk
        # The number of steps is an argument, so a shorter chunk runs the same compiled program.
        return put_everywhere(np.int32(num_steps), self._replicated)

    def _first_state(
        self, key: jax.Array, own_params: tuple[jax.Array, ...], env_params: jax.Array
    ) -> RolloutState:
        layout = self.layout
        # Numbers leave out the padding, so that an environment draws the same in any layout.
        device = jnp.arange(layout.num_devices, dtype=jnp.uint32)[:, None]
        within = jnp.arange(layout.padded_envs_per_device, dtype=jnp.uint32)
        env_index = (device * np.uint32(layout.envs_per_device) + within).reshape(-1)
        keys = _fold_each(jax.random.fold_in(key, _FIRST_RESET), env_index)
        # Padding may have numbers beyond the last environment. It then gets the last one's
        # parameters, and its results are never read.
        known = jnp.minimum(env_index, layout.num_envs - 1)
        own_params = jax.tree.map(lambda leaf: leaf[known], own_params)
        batch_state = self._envs.reset(keys, own_params, env_params)
        return RolloutState(
            key, Counter.of(0), batch_state, jnp.zeros_like(env_index), jnp.asarray(env_params)
        )

    def _chunk(
        self, state: RolloutState, num_steps: jax.Array, *, final_obs: bool | None
    ) -> tuple[RolloutState, Transition | None]:
        """Run `num_steps` steps on all devices, and keep them unless `final_obs` is None."""
        by_env, whole = PartitionSpec("env"), PartitionSpec()
        run = shard_map(
            partial(self._run_on_device, final_obs=final_obs),
            self._mesh,
            (by_env, whole, whole, whole),
            (by_env, PartitionSpec(None, "env")),
        )
        # A key for each step and each purpose, `[T, 3]`, computed once per chunk. Inside the loop
        # only the environment's index is folded in. Of a single row XLA would draw before the loop,
        # and so round otherwise.
        steps = state.step + jnp.arange(max(2, self.scan_chunk_size), dtype=jnp.uint32)
        key_of = jax.vmap(Counter.key, in_axes=(0, None, None))
        keys = jnp.stack([key_of(steps, state.key, p) for p in (_ACT, _STEP, _RESET)], axis=1)
        batch_state, trajectory = run(state.batch_state, keys, num_steps, state.env_params)
        # The last device may have fewer environments than the others.
        trajectory = jax.tree.map(lambda leaf: leaf[:, : self.layout.num_envs], trajectory)
        if self._remembers and trajectory is not None:
            # A controller's action also contains its next memory, see `WithMemory`.
            trajectory = dataclasses.replace(trajectory, action=trajectory.action[0])
        before, after = state.batch_state.num_episodes, batch_state.num_episodes
        # A chunk has less than 2**32 steps, and an episode takes at least one.
        has_wrapped = after.astype(jnp.uint32) < before.astype(jnp.uint32)
        high_episodes = state.high_episodes + has_wrapped.astype(jnp.uint32)
        step = state.step + num_steps
        state = RolloutState(state.key, step, batch_state, high_episodes, state.env_params)
        return state, trajectory

    def _run_on_device(
        self,
        batch_state: BatchState,
        keys: jax.Array,
        num_steps: jax.Array,
        env_params: jax.Array,
        *,
        final_obs: bool | None,
    ) -> tuple[BatchState, Transition | None]:
        """Run the chunk on one device, in one kernel or tile after tile.

        Steps are recorded without tiles, since a trajectory outgrows the cache anyway.
        """
        if self._kernel and jax.random.key_impl(keys) == MIX2X32:
            first = self._env_indices(0, 1)[0]
            kept = partial(_kept, final_obs=final_obs)
            done = self._kernel.run(batch_state, keys, first, num_steps, env_params, kept)
            if done is not None:
                return done
        shared = {"keys": keys, "num_steps": num_steps, "env_params": env_params}
        run_tile = partial(self._run_tile, **shared, final_obs=final_obs)
        shape = self.layout.num_tiles, self.layout.tile_size
        if final_obs is not None or shape[0] == 1:
            return run_tile(0, batch_state)

        def run_next(index: jax.Array, carry: tuple[BatchState, None]) -> tuple[BatchState, None]:
            tiles, _ = carry
            take = partial(jax.lax.dynamic_index_in_dim, index=index, keepdims=False)
            tile, _ = run_tile(index, jax.tree.map(take, tiles))
            return _put_row(tiles, tile, index), None

        tiles = jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), batch_state)
        tiles, _ = _loop_out_of_line(shape[0], run_next, (tiles, None))
        return jax.tree.map(lambda leaf, tile: tile.reshape(leaf.shape), batch_state, tiles), None

    def _run_tile(
        self,
        index: jax.Array | int,
        tile: BatchState,
        *,
        keys: jax.Array,
        num_steps: jax.Array,
        env_params: jax.Array,
        final_obs: bool | None,
    ) -> tuple[BatchState, Transition | None]:
        """Run the chunk of the environments in one tile, in a loop of steps."""
        env_index = self._env_indices(index, tile.num_episodes.size)

        def step(i: jax.Array | int, tile: BatchState) -> tuple[BatchState, Any]:
            def of_tile(*args: Any) -> tuple[BatchState, Any]:
                tile, transition = self._step(*args)
                return tile, _kept(transition, final_obs=final_obs)

            tile, row = vectorized(of_tile)(tile, keys[i], env_index, env_params)
            return tile, jax.tree.map(lambda leaf: leaf[: self.layout.envs_per_device], row)

        def body(i: jax.Array, carry: tuple[BatchState, Any]) -> tuple[BatchState, Any]:
            tile, row = step(i, carry[0])
            return tile, _put_row(carry[1], row, i)

        rows = None
        if final_obs is not None:
            rows = jax.tree.map(
                lambda leaf: jnp.zeros((self.scan_chunk_size, *leaf.shape), leaf.dtype),
                jax.eval_shape(lambda: step(0, tile)[1]),
            )
        if _is_gpu():
            from myriad.engine import gpu_loops

            unroll = 1 if rows else gpu_loops.affordable_unroll(self._step_program().jaxpr)
            most = self.scan_chunk_size
            return gpu_loops.repeat(num_steps, body, (tile, rows), most=most, unroll=unroll)
        loop = _loop_out_of_line if rows else partial(jax.lax.fori_loop, 0)
        return loop(num_steps, body, (tile, rows))

    def _env_indices(self, tile: jax.Array | int, tile_size: int) -> jax.Array:
        """Return the indices of this tile's environments among all, uint32 `[tile_size]`."""
        device = jax.lax.axis_index("env").astype(jnp.uint32)
        first = device * np.uint32(self.layout.envs_per_device)
        within = jnp.arange(tile_size, dtype=jnp.uint32)
        return first + jnp.uint32(tile) * np.uint32(tile_size) + within

    def _step(
        self,
        batch_state: BatchState,
        keys: jax.Array,
        env_index: jax.Array,
        env_params: jax.Array,
    ) -> tuple[BatchState, Transition]:
        """Advance by one step with auto-reset. `keys` is `[3]`, `env_index` uint32 `[N]`."""
        act_keys, step_keys, reset_keys = (
            _fold_each(keys[purpose], env_index) for purpose in range(3)
        )
        agent: Any = self.agent
        if self._remembers:
            memory = batch_state.env_state.memory
            action = jax.vmap(agent.control)(memory, act_keys, batch_state.obs)
        else:
            action = jax.vmap(agent.act)(act_keys, batch_state.obs)
        return self._envs.step(batch_state, action, step_keys, reset_keys, env_params)


def _is_gpu() -> bool:
    """Return whether this device is a GPU. A test may say so for the interpreter."""
    return jax.default_backend() == "gpu"


def _loop_out_of_line(
    num_steps: Any, body: Any, carry: tuple[BatchState, Any]
) -> tuple[BatchState, Any]:
    """Loop `carry = body(i, carry)`, updating large arrays in place.

    XLA's option for small loops compiles a loop of only elementwise work into one function. The
    loop over steps needs that. But a loop that writes rows of large arrays would then copy whole
    arrays in each pass. A sort is the cheapest operation that excludes a loop from that option.
    """

    def anchored_body(i: jax.Array, carry: tuple[Any, jax.Array]) -> tuple[Any, jax.Array]:
        return body(i, carry[0]), jax.lax.sort(jnp.maximum(carry[1], i))

    (batch_state, rest), anchor = jax.lax.fori_loop(
        0, num_steps, anchored_body, (carry, jnp.zeros(2, jnp.int32))
    )
    # XLA would delete an unused sort, so add its result, a zero that XLA can't recognise.
    first = (0,) * batch_state.num_episodes.ndim
    num_episodes = batch_state.num_episodes.at[first].add(jnp.minimum(anchor[0], 0))
    return dataclasses.replace(batch_state, num_episodes=num_episodes), rest


def _kept(transition: Transition, *, final_obs: bool | None) -> Transition | None:
    """Return what is kept of a step: nothing for None, and final observations if they're asked."""
    if final_obs is None:
        return None
    return transition if final_obs else dataclasses.replace(transition, final_obs=None)


def _put_row(tree: Any, row: Any, index: jax.Array) -> Any:
    return jax.tree.map(
        lambda leaf, row: jax.lax.dynamic_update_index_in_dim(leaf, row, index, 0), tree, row
    )


def _fold_each(key: jax.Array, values: jax.Array) -> jax.Array:
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, values)
