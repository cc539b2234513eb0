"""The compiled training chunk: any number of a learner's updates in one call."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr
from jax.sharding import NamedSharding, PartitionSpec

from myriad.agents.agent import LEARNER_AXIS, Learner
from myriad.agents.shards import SHARD_AXIS, Shards, largest_share, placement, shard_mesh
from myriad.counters import Counter, exact_sum
from myriad.envs import Environment
from myriad.envs.vector import BatchState, Transition, VectorEnv
from myriad.errors import InvalidArgumentError
from myriad.random import make_key
from myriad.xla import holds_keys, is_on_host, output_fusion, put_everywhere, result_shapes

# Folded into a key for each purpose, so that no two draws share a stream.
_AGENT, _ENVIRONMENTS, _UPDATE = range(3)
_STEP, _RESET = range(2)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """All that a run carries: its key, the updates done, the learner and the environments.

    `metric_sums` adds up the metrics of the updates since the window began, in their order. The
    episode statistics of the environments count from there as well. With shards, the leaves of the
    environments and some of the learner's leaves begin with an axis of shards, `[S, N / S, ...]`.
    """

    key: jax.Array
    num_updates: Counter
    agent: Any
    batch_state: BatchState
    metric_sums: dict[str, jax.Array]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Report:
    """The results of a chunk that the host reads.

    The sums cover the current window between two evaluations up to this chunk.

    Attributes:
        metric_sums: each metric's sum over the window's updates, float32 scalars.
        num_episodes: episodes that ended in the window, as `myriad.counters.whole` reads it.
        return_sum: the sum of their returns, float32 scalar.
        is_bad: for each of `PARTS`, whether it was found, boolean `[4]`.
    """

    metric_sums: dict[str, jax.Array]
    num_episodes: jax.Array
    return_sum: jax.Array
    is_bad: jax.Array


# What stops a run. An environment's state may hold an infinity, such as the best distance so far
# before the first step. But an agent can't learn from an infinity that it sees.
PARTS = (
    "NaN or infinity in a metric",
    "NaN or infinity in the agent's state",
    "NaN or infinity in an observation or a reward",
    "NaN in an environment's state",
)
# A leaf from this size on, or in the host's memory, is a replay buffer. It isn't searched for NaNs:
# its content came from the environments, which are searched themselves.
_LARGE = 1 << 20
# Leaves below this size are joined before the search, since copying them is cheap.
_SMALL = 1 << 16


class LearningLoop:
    """`num_envs` environments and the learner, as two pure functions to jit or to vmap.

    A learner with one shard may share large gradient steps among devices, see `parallel_learner`.
    Each device then holds the whole state and does all other work itself. With several shards, each
    device holds and computes its own shards, and all devices hold the parameters. `jitted` and
    `on_one_device` know the placement.

    Args:
        env: the environment.
        learner: the agent.
        num_envs: environments in parallel.
        params: environment parameters other than `env.default_params`.
        num_devices: devices that share the gradient steps or the shards.

    Raises:
        InvalidArgumentError: the devices don't divide the shards.
    """

    def __init__(
        self,
        env: Environment,
        learner: Learner,
        num_envs: int,
        params: Any = None,
        *,
        num_devices: int = 1,
    ):
        self.shards: Shards = learner.shards
        if self.shards.is_one:
            mesh = jax.make_mesh(
                (num_devices,), (LEARNER_AXIS,), devices=jax.local_devices()[:num_devices]
            )
        else:
            self.shards = self.shards.on(num_devices)
            learner = dataclasses.replace(cast("Any", learner), shards=self.shards)
            mesh = shard_mesh(num_devices)
        self.learner = learner
        self.num_envs = num_envs
        self.num_devices = num_devices
        self._everywhere: Any = NamedSharding(mesh, PartitionSpec())
        self.envs = VectorEnv(env, num_envs, params)

    def init(self, key: jax.Array) -> TrainState:
        """Reset every environment and draw the learner's first parameters."""
        return self._over_shards(self._init, (PartitionSpec(),), self._specs())(key)

    def _init(self, key: jax.Array) -> TrainState:
        agent = self.learner.init(jax.random.fold_in(key, _AGENT), self.num_envs)
        reset_key = jax.random.fold_in(key, _ENVIRONMENTS)

        def of_shard(shard: Any) -> BatchState:
            own_params = self.envs.params.own
            if shard is not None:
                own_params = tuple(self.shards.own_part(leaf, shard) for leaf in own_params)
            return self.envs.reset(self._env_keys(reset_key, shard), own_params)

        batch_state = self.shards.each(of_shard)
        zeros = {name: jnp.zeros((), jnp.float32) for name in self.learner.metric_names}
        return TrainState(key, Counter.of(0), agent, batch_state, zeros)

    def jitted(self, *, donate: bool = True) -> tuple[Any, Any]:
        """Return `init` and `run` as jitted functions. `init` takes a key or a seed.

        A seed keeps only 32 bits when traced. To keep all 64, call `make_key` and pass the key.

        Args:
            donate: give the state's memory to the next state. Otherwise each call copies it.
        """

        def init_from(seed: jax.Array) -> TrainState:
            return self.init(seed if holds_keys(seed) else make_key(seed))

        run = self.run
        shardings: dict[str, Any] = {}
        of_init: dict[str, Any] = {}
        if not self.shards.is_one:
            of_init = {"in_shardings": self._everywhere, "out_shardings": self.placement}
            shardings = {
                "in_shardings": (self.placement, self._everywhere, self._everywhere),
                "out_shardings": (self.placement, self._everywhere),
            }
        elif self.num_devices > 1:
            run = jax.shard_map(
                self.run,
                mesh=self._everywhere.mesh,
                in_specs=PartitionSpec(),
                out_specs=PartitionSpec(),
                check_vma=False,
            )
            of_init = shardings = {
                "in_shardings": self._everywhere,
                "out_shardings": self._everywhere,
            }
        init = jax.jit(init_from, **of_init)

        def traced() -> ClosedJaxpr:
            # JAX caches this trace and uses it again when the programs are compiled.
            state = result_shapes(init.trace(make_key(0)))
            return jax.jit(run).trace(state, np.int32(0), np.bool_(False)).jaxpr  # noqa: FBT003

        options = output_fusion(traced)
        donated = 0 if donate else ()
        return init, jax.jit(run, donate_argnums=donated, compiler_options=options, **shardings)

    def with_learner(self, learner: Learner) -> "LearningLoop":
        """Return the loop of the same environments with another learner, on one device."""
        other = copy.copy(self)
        other.learner = learner
        other.num_devices = 1
        return other

    @property
    def devices(self) -> str:
        """The devices that `run` trains on, such as "2 CPU devices"."""
        devices = self._everywhere.mesh.devices.flat
        held = f"{self.num_devices} {devices[0].platform.upper()} device"
        num_processes = len({device.process_index for device in devices})
        of_processes = f" of {num_processes} processes" if num_processes > 1 else ""
        return f"{held}{'s' if self.num_devices > 1 else ''}{of_processes}"

    @property
    def placement(self) -> Any:
        """The placement of a state: a tree of shardings, a prefix of a `TrainState`."""
        mesh = self._everywhere.mesh
        return jax.tree.map(lambda spec: NamedSharding(mesh, spec), self._specs())

    def key(self, seed: int) -> jax.Array:
        """Return the key of a seed, on the devices where `init` takes it."""
        key = make_key(seed)
        return key if jax.process_count() == 1 else put_everywhere(key, self._everywhere)

    def everywhere(self, state: TrainState) -> TrainState:
        """Put a state, for example from a checkpoint, on the devices where `run` takes it."""
        if not self.shards.is_one:
            return jax.device_put(state, self.placement)
        return state if self.num_devices == 1 else jax.device_put(state, self._everywhere)

    def on_one_device(self, tree: Any) -> Any:
        """Return a part of the state on the first device, with all shards.

        If several processes train, the part stays on their devices.
        """
        if self.num_devices == 1 or jax.process_count() > 1:
            return tree
        if not self.shards.is_one:
            return jax.device_put(tree, self._everywhere.mesh.devices.flat[0])
        return jax.tree.map(lambda leaf: leaf.addressable_data(0), tree)

    def for_evaluation(self, tree: Any) -> Any:
        """Return a part of the state, on the devices where an evaluation takes it."""
        return tree if not self.shards.is_one else self.on_one_device(tree)

    def _specs(self) -> Any:
        """Return how the mesh partitions a state: a tree that is a prefix of a `TrainState`."""
        whole: Any = PartitionSpec()
        if self.shards.is_one:
            return whole
        by_shard: Any = PartitionSpec(SHARD_AXIS)
        agent = jax.eval_shape(lambda: self.learner.init(make_key(0), self.num_envs))
        specs = placement(agent, self.learner.by_shard)
        return TrainState(whole, whole, specs, by_shard, whole)

    def _over_shards(self, function: Callable[..., Any], in_specs: Any, out_specs: Any) -> Any:
        """Turn a function of one device's part into a function of the whole state."""
        if self.shards.is_one:
            return function
        mesh = self._everywhere.mesh
        return jax.shard_map(
            function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
        )

    def run(
        self, state: TrainState, num_updates: jax.Array, begin: jax.Array
    ) -> tuple[TrainState, Report]:
        """Do some updates.

        Args:
            state: the result of `init` or `run`.
            num_updates: how many, int32 scalar. It is an argument, so that a shorter last chunk
                runs the same program.
            begin: whether a new window of sums begins here, boolean scalar.
        """
        whole = PartitionSpec()
        in_specs = (self._specs(), whole, whole)
        run = self._over_shards(self._run, in_specs, (self._specs(), whole))
        return run(state, num_updates, begin)

    def _run(
        self, state: TrainState, num_updates: jax.Array, begin: jax.Array
    ) -> tuple[TrainState, Report]:
        state = _begin_window(state, begin)

        def body(_: jax.Array, state: TrainState) -> TrainState:
            # The key depends only on the number of the update, so a run draws the same numbers
            # whatever its chunks are and wherever it is resumed.
            key = state.num_updates.key(state.key, _UPDATE)
            agent, batch_state, metrics = self.learner.update(
                key, state.agent, state.batch_state, self._step
            )
            sums = {name: state.metric_sums[name] + value for name, value in metrics.items()}
            return TrainState(state.key, state.num_updates + 1, agent, batch_state, sums)

        state = jax.lax.fori_loop(0, num_updates, body, state)
        return state, _report(state, self.shards)

    def collect(self, state: TrainState) -> tuple[TrainState, Any]:
        """Do the first half of an update, and return the experience to learn from as well.

        Raises:
            InvalidArgumentError: the learner's updates have no halves.
        """
        key = state.num_updates.key(state.key, _UPDATE)
        agent, batch_state, experience = self.learner.collect(
            key, state.agent, state.batch_state, self._step
        )
        return dataclasses.replace(state, agent=agent, batch_state=batch_state), experience

    def learn(self, state: TrainState, experience: Any) -> TrainState:
        """Do the second half of an update."""
        key = state.num_updates.key(state.key, _UPDATE)
        # The same key as in `collect`, as in `Learner.update`. Each half folds in its own purposes.
        agent, metrics = self.learner.learn(key, state.agent, state.batch_state, experience)
        sums = {name: state.metric_sums[name] + value for name, value in metrics.items()}
        return TrainState(state.key, state.num_updates + 1, agent, state.batch_state, sums)

    def _step(
        self, key: jax.Array, batch_state: BatchState, action: jax.Array
    ) -> tuple[BatchState, Transition]:
        # The learner has already folded the shard's number into `key`.
        step_keys, reset_keys = (
            self._env_keys(jax.random.fold_in(key, purpose)) for purpose in (_STEP, _RESET)
        )
        return self.envs.step(batch_state, action, step_keys, reset_keys)

    def _env_keys(self, key: jax.Array, shard: jax.Array | None = None) -> jax.Array:
        num_envs = self.num_envs // self.shards.num_shards
        env_index = jnp.arange(num_envs, dtype=jnp.uint32)
        if shard is not None:
            env_index = env_index + shard * np.uint32(num_envs)
        return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, env_index)


def parallel_learner(learner: Any, num_envs: int) -> tuple[Any, int]:
    """Return the learner, and how many devices it finds worth sharing its gradient steps among.

    Shards always spread over the largest number of devices that divides them.
    """
    if not learner.shards.is_one:
        return learner, _devices_of_shards(learner.shards.num_shards)
    num_devices = learner.shared_among(num_envs, jax.local_device_count())
    if num_devices == 1:
        return learner, 1
    return dataclasses.replace(learner, num_devices=num_devices), num_devices


def _devices_of_shards(num_shards: int) -> int:
    """Return how many of the devices of all processes share the shards.

    Raises:
        InvalidArgumentError: several processes can't share them evenly.
    """
    num_devices = jax.device_count()
    num_processes = jax.process_count()
    # A process whose devices have no shard would take no part in the training.
    if num_processes > 1 and num_shards % num_devices:
        fits = num_devices if num_devices & (num_devices - 1) == 0 else "a power of two"
        raise InvalidArgumentError(
            f"num_shards must be divisible by the {num_devices} devices of the {num_processes} "
            f"processes, such as {fits}, but is {num_shards}."
        )
    return largest_share(num_shards, num_devices)


def _begin_window(state: TrainState, begin: jax.Array) -> TrainState:
    # A select and not an `if`, so that one program can both begin and continue a window.
    sums, num_episodes, return_sum = jax.tree.map(
        lambda leaf: jnp.where(begin, jnp.zeros_like(leaf), leaf),
        (state.metric_sums, state.batch_state.num_episodes, state.batch_state.return_sum),
    )
    batch_state = dataclasses.replace(
        state.batch_state, num_episodes=num_episodes, return_sum=return_sum
    )
    return dataclasses.replace(state, metric_sums=sums, batch_state=batch_state)


def _report(state: TrainState, shards: Shards) -> Report:
    batch_state = shards.joined(state.batch_state)
    # In the order of `PARTS`. The sums keep a bad reward, so one check at the end of a chunk is
    # enough.
    seen = (batch_state.obs, batch_state.episode_return, batch_state.return_sum)
    is_bad = [_holds(_is_not_finite, part) for part in (state.metric_sums, state.agent, seen)]
    is_bad.append(_holds(jnp.isnan, batch_state.env_state))
    return Report(
        state.metric_sums,
        shards.total_count(exact_sum(batch_state.num_episodes)),
        shards.total(shards.each(lambda _, sums: sums.sum(), state.batch_state.return_sum)),
        shards.any(jnp.stack(is_bad)),
    )


def _is_not_finite(array: jax.Array) -> jax.Array:
    return ~jnp.isfinite(array)


def _holds(is_bad: Callable[[jax.Array], jax.Array], tree: Any) -> jax.Array:
    """Return whether any number in a tree is bad."""
    floats = [
        x
        for x in jax.tree.leaves(tree)
        if jnp.issubdtype(x.dtype, jnp.floating) and x.size < _LARGE and not is_on_host(x)
    ]
    small = [leaf.ravel() for leaf in floats if leaf.size < _SMALL]
    if small:
        # The barrier makes this one plain loop, not fused with the concatenation. A loop for each
        # leaf would be a tenth of all that is to compile.
        small = [jax.lax.optimization_barrier(jnp.concatenate(small))]
    looked_at = small + [leaf for leaf in floats if leaf.size >= _SMALL]
    return (
        jnp.any(jnp.stack([is_bad(leaf).any() for leaf in looked_at]))
        if looked_at
        else jnp.zeros((), bool)
    )
