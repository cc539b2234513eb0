"""The compiled training chunk: any number of a learner's updates in one call."""

import copy
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from myriad.agents.agent import ROW, Learner, row_of
from myriad.engine.devices import put_everywhere, shard_map
from myriad.engine.fusion import output_fusion
from myriad.engine.random import Counter, make_key
from myriad.envs import Environment
from myriad.envs.vector import MOST_SUMMED, BatchState, Transition, VectorEnv, float_parameters
from myriad.envs.wrappers import PrivilegedObservation
from myriad.errors import InvalidArgumentError
from myriad.ranges import ranges_of
from myriad.xla import is_on_host, result_shapes

# Folded into a key for each purpose, so that no two draws share a stream.
_AGENT, _ENVIRONMENTS, _UPDATE = range(3)
# The axis of the devices that train together.
DEVICE = "device"
_STEP, _RESET = range(2)
# Integers that are arguments of a compiled training, as all floats are. The others shape it.
_COUNTS = ("num_epochs", "anneal_updates", "exploration_steps")
# Above the purposes that learners fold in.
_OWN = 0xDE


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """All that a run carries: its key, the updates done, the learner and the environments.

    `metric_sums` adds up the metrics of the updates since the window began, in their order. The
    episode statistics of the environments count from there as well. `options` holds the learner's
    hyperparameters that are arguments of the program, rows of `myriad.agents.agent` in the
    order of `traced_names`, `[K, 34]`. They are one array, since a checkpoint takes longer with
    each. `env_params` holds the environment's `float_parameters`, float32 `[P]`.
    """

    key: jax.Array
    num_updates: Counter
    agent: Any
    batch_state: BatchState
    metric_sums: dict[str, jax.Array]
    options: jax.Array
    env_params: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Report:
    """The results of a chunk that the host reads.

    The sums cover the current window between two evaluations up to this chunk.

    Attributes:
        metric_sums: each metric's sum over the window's updates, float32 scalars.
        num_episodes: episodes that ended in the window, as `whole` reads it.
        return_sum: the sum of their returns, float32 scalar. It is nan if an environment ended more
            than 2**22 episodes in the window, since float32 would round too much of its sum away.
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
    """`num_envs` environments and the learner, as pure functions to jit or to vmap.

    On several devices, each has its share of the environments, and of the learner's state what the
    learner calls `per_device`. These leaves have an axis of devices in front, `[D, ...]`. All else
    is the same on every device. With fewer devices in this machine, one of them computes all
    shares: the algorithm is the same, only slower.

    Args:
        env: the environment.
        learner: the agent.
        num_envs: environments in parallel.
        num_devices: devices that train together, `D`.
        schedules: the rows of the hyperparameters that change in the training, by name, as in
            `TrainingConfig.schedules`.

    Attributes:
        learner: the learner of one device.
        env: the environment, as the learner acts in it.
        num_present: the devices of this machine that train: all `D`, or one that computes all.

    Raises:
        InvalidArgumentError: the devices can't share the training.
    """

    def __init__(
        self,
        env: Environment,
        learner: Learner,
        num_envs: int,
        *,
        num_devices: int = 1,
        schedules: Mapping[str, np.ndarray] | None = None,
    ):
        self.learner = learner_of_device(learner, num_envs, num_devices)
        self.num_envs = num_envs
        self.num_devices = num_devices
        self._schedules = schedules or {}
        self.env = env
        if getattr(learner, "sees_privileged", False):
            env = PrivilegedObservation(env)
        self.envs = VectorEnv(env, num_envs, floats=float_parameters(env))
        self.env_params: jax.Array | None = None  # known while an update is traced
        # A machine with fewer devices than the training was begun on has one device do all.
        self.num_present = num_devices if num_devices <= jax.device_count() else 1
        self._mesh = Mesh(np.array(jax.devices()[: self.num_present]), (DEVICE,))

    @property
    def options(self) -> dict[str, Any]:
        """The learner's hyperparameters that are arguments, each a row, and `env_params`."""
        rows = {name: row_of(getattr(self.learner, name)) for name in traced_names(self.learner)}
        given = {name: self._schedules.get(name, row) for name, row in rows.items()}
        return given | {"env_params": self.envs.params.values}

    def init(self, key: jax.Array, options: Mapping[str, Any] | None = None) -> TrainState:
        """Reset every environment and draw the learner's first parameters.

        Args:
            key: the key of the training.
            options: rows in place of those in `self.options`, or scalars, which are constant.
        """
        init = self._over_devices(self._init, (False, False), self._is_per_device)
        return init(key, self.options | dict(options or {}))

    def _init(self, key: jax.Array, options: dict[str, Any]) -> TrainState:
        rows = [jnp.broadcast_to(options[name], ROW) for name in traced_names(self.learner)]
        packed = jnp.stack(rows).astype(jnp.float32) if rows else jnp.zeros(0, jnp.float32)
        learner = self._learner_at(packed, Counter.of(0))
        agent = learner.init(jax.random.fold_in(key, _AGENT), self._envs_per_device)
        keys = self.keys(jax.random.fold_in(key, _ENVIRONMENTS))
        zeros = {name: jnp.zeros((), jnp.float32) for name in self.learner.metric_names}
        env_params = jnp.asarray(options["env_params"])
        batch_state = self.envs.reset(keys, (), env_params)
        return TrainState(key, Counter.of(0), agent, batch_state, zeros, packed, env_params)

    @functools.cached_property
    def shapes(self) -> TrainState:
        """The shapes of a state."""
        return result_shapes(self._jitted_init.trace(make_key(0), self.options))

    @functools.cached_property
    def _jitted_init(self) -> Any:
        if self.num_present == 1:
            return jax.jit(self.init)
        return jax.jit(self.init, in_shardings=self._whole, out_shardings=self.placement)

    def jitted(self, *, donate: bool = True) -> tuple[Any, Any]:
        """Return `init` and `run` as jitted functions.

        Args:
            donate: give the state's memory to the next state. Otherwise each call copies it.
        """
        shardings: dict[str, Any] = {}
        if self.num_present > 1:
            shardings = {
                "in_shardings": (self.placement, self._whole, self._whole),
                "out_shardings": (self.placement, self._whole),
            }
        learn = self.run  # JAX knows a trace again by the very same function.

        def traced() -> ClosedJaxpr:
            # JAX caches this trace and uses it again when the programs are compiled.
            return jax.jit(learn).trace(self.shapes, np.int32(0), np.bool_(False)).jaxpr  # noqa: FBT003

        options = output_fusion(traced)
        run = jax.jit(
            learn, donate_argnums=0 if donate else (), compiler_options=options, **shardings
        )
        return self._jitted_init, run

    @property
    def devices(self) -> str:
        """The devices that `run` trains on, such as "2 CPU devices"."""
        devices = self._mesh.devices.flat
        held = f"{self.num_present} {devices[0].platform.upper()} device"
        num_processes = len({device.process_index for device in devices})
        of_processes = f" of {num_processes} processes" if num_processes > 1 else ""
        return f"{held}{'s' if self.num_present > 1 else ''}{of_processes}"

    @property
    def placement(self) -> Any:
        """The placement of a state: a tree of shardings, a prefix of a `TrainState`."""
        return jax.tree.map(
            lambda is_own: NamedSharding(self._mesh, _spec(is_own)), self._is_per_device
        )

    def key(self, seed: int) -> jax.Array:
        """Return the key of a seed, on the devices where `init` takes it."""
        key = make_key(seed)
        return key if jax.process_count() == 1 else put_everywhere(key, self._whole)

    def everywhere_same(self, values: np.ndarray) -> jax.Array:
        """Put values that are the same on every device where `run` takes them."""
        return jnp.asarray(values) if self.num_present == 1 else put_everywhere(values, self._whole)

    def everywhere(self, state: TrainState) -> TrainState:
        """Put a state, for example from a checkpoint, on the devices where `run` takes it."""
        return state if self.num_present == 1 else jax.device_put(state, self.placement)

    def of_first_device(self, state: TrainState) -> TrainState:
        """Return a state, or its shapes, as the first device of this process has it."""
        if self.num_devices == 1:
            return state

        def first(leaf: Any, is_own: bool) -> Any:  # noqa: FBT001
            if isinstance(leaf, jax.ShapeDtypeStruct):
                return jax.ShapeDtypeStruct(leaf.shape[1:] if is_own else leaf.shape, leaf.dtype)
            share = leaf.addressable_data(0)
            return share[0] if is_own else share

        return jax.tree.map(first, state, jax.tree.broadcast(self._is_per_device, state))

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
        is_own = self._is_per_device
        run = self._over_devices(self._run, (is_own, False, False), (is_own, False))
        return run(state, num_updates, begin)

    def _run(
        self, state: TrainState, num_updates: jax.Array, begin: jax.Array
    ) -> tuple[TrainState, Report]:
        # A select and not an `if`, so that one program can both begin and continue a window.
        sums, num_episodes, return_sum = jax.tree.map(
            lambda leaf: jnp.where(begin, jnp.zeros_like(leaf), leaf),
            (state.metric_sums, state.batch_state.num_episodes, state.batch_state.return_sum),
        )
        batch_state = dataclasses.replace(
            state.batch_state, num_episodes=num_episodes, return_sum=return_sum
        )
        state = dataclasses.replace(state, metric_sums=sums, batch_state=batch_state)
        envs = self._in(state.env_params)

        def body(_: jax.Array, state: TrainState) -> TrainState:
            learner = self._learner_at(state.options, state.num_updates)
            # The key depends only on the number of the update, so a run draws the same numbers
            # whatever its chunks are and wherever it is resumed.
            key = state.num_updates.key(state.key, _UPDATE)
            agent, batch_state, metrics = learner.update(key, state.agent, state.batch_state, envs)
            return _after_update(state, agent, batch_state, metrics)

        state = jax.lax.fori_loop(0, num_updates, body, state)
        return state, self._report(state)

    def collect(self, state: TrainState) -> tuple[TrainState, Any]:
        """Do the first half of an update on one device, and return the experience as well.

        Raises:
            InvalidArgumentError: the learner's updates have no halves.
        """
        key = state.num_updates.key(state.key, _UPDATE)
        learner = self._learner_at(state.options, state.num_updates)
        envs = self._in(state.env_params)
        agent, batch_state, experience = learner.collect(key, state.agent, state.batch_state, envs)
        return dataclasses.replace(state, agent=agent, batch_state=batch_state), experience

    def learn(self, state: TrainState, experience: Any) -> TrainState:
        """Do the second half of an update on one device."""
        # The same key as in `collect`, as in `Learner.update`. Each half folds in its own purposes.
        key = self.own_key(state.num_updates.key(state.key, _UPDATE))
        learner = self._learner_at(state.options, state.num_updates)
        agent, metrics = learner.learn(key, state.agent, state.batch_state, experience, self.mean)
        return _after_update(state, agent, state.batch_state, metrics)

    def _learner_at(self, options: jax.Array, num_updates: Counter) -> Any:
        """Return the learner with the hyperparameters that it has after so many updates."""
        learner: Any = self.learner
        names = traced_names(learner)
        if not names:
            return learner
        given = dict(zip(names, values_at(options, num_updates), strict=True))
        if "num_epochs" in given:
            given["num_epochs"] = given["num_epochs"].astype(jnp.int32)
        return dataclasses.replace(learner, **given)

    def _in(self, env_params: jax.Array) -> "LearningLoop":
        """Return the loop with environments of these parameters."""
        loop = copy.copy(self)
        loop.env_params = env_params
        return loop

    # What follows is what a learner sees of the loop: `myriad.agents.agent.Environments`.

    def keys(self, key: jax.Array) -> jax.Array:
        """Return a key for each environment of this device, `[N]`."""
        env_index = self._device * np.uint32(self._envs_per_device) + jnp.arange(
            self._envs_per_device, dtype=jnp.uint32
        )
        return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, env_index)

    def step(
        self, key: jax.Array, batch_state: BatchState, action: jax.Array
    ) -> tuple[BatchState, Transition]:
        """Advance this device's environments by one step."""
        step_keys, reset_keys = (
            self.keys(jax.random.fold_in(key, purpose)) for purpose in (_STEP, _RESET)
        )
        return self.envs.step(batch_state, action, step_keys, reset_keys, self.env_params)

    def own_key(self, key: jax.Array) -> jax.Array:
        """Return a key that differs by device."""
        if self.num_devices == 1:
            return key
        return jax.random.fold_in(jax.random.fold_in(key, _OWN), self._device)

    def mean(self, tree: Any) -> Any:
        """Average over the devices."""
        if self.num_devices == 1:
            return tree
        # As one array. A CPU's runtime takes its time for each: PPO with 1,024 environments on two
        # devices trained at 0.81 of this speed.
        flat, unravel = ravel_pytree(tree)
        return unravel(jax.lax.pmean(flat, DEVICE))

    @property
    def _whole(self) -> Any:
        """The placement of what is the same on every device."""
        return NamedSharding(self._mesh, PartitionSpec())

    @property
    def _envs_per_device(self) -> int:
        return self.num_envs // self.num_devices

    @property
    def _device(self) -> Any:
        """The number of this device, uint32 scalar, or 0 if it is the only one."""
        if self.num_devices == 1:
            return np.uint32(0)
        return jax.lax.axis_index(DEVICE).astype(jnp.uint32)

    @functools.cached_property
    def _is_per_device(self) -> Any:
        """Which leaves of a state differ by device: booleans in a prefix of a `TrainState`."""
        if self.num_devices == 1:
            return False
        shapes = jax.eval_shape(lambda: self.learner.init(make_key(0), self._envs_per_device))
        own = self.learner.per_device or frozenset()
        agent = type(shapes)(**{each.name: each.name in own for each in dataclasses.fields(shapes)})
        shared: Any = False
        of_device: Any = True
        return TrainState(shared, shared, agent, of_device, shared, shared, shared)

    def _over_devices(self, function: Callable[..., Any], args: Any, results: Any) -> Any:
        """Turn a function of one device's share into a function of the whole.

        Args:
            function: what each device does.
            args: which leaves of the arguments differ by device, as `_is_per_device`.
            results: the same of the results.
        """
        if self.num_devices == 1:
            return function
        if self.num_present == 1:
            in_axes, out_axes = (
                jax.tree.map(lambda is_own: 0 if is_own else None, each) for each in (args, results)
            )
            return jax.vmap(
                function, in_axes, out_axes, axis_name=DEVICE, axis_size=self.num_devices
            )

        def of_device(*shares: Any) -> Any:
            found = function(*_for_own(lambda leaf: leaf[0], args, shares))
            return _for_own(lambda leaf: leaf[None], results, found)

        in_specs, out_specs = (jax.tree.map(_spec, each) for each in (args, results))
        return shard_map(of_device, self._mesh, in_specs, out_specs)

    def _report(self, state: TrainState) -> Report:
        batch_state = state.batch_state
        # In the order of `PARTS`. The sums keep a bad reward, so one check at the end of a chunk is
        # enough.
        seen = (batch_state.obs, batch_state.episode_return, batch_state.return_sum)
        parts = (state.metric_sums, state.agent, seen)
        is_bad = [_holds(lambda leaf: ~jnp.isfinite(leaf), part) for part in parts]
        is_bad.append(_holds(jnp.isnan, batch_state.env_state))
        is_exact = (batch_state.num_episodes.astype(jnp.uint32) <= MOST_SUMMED).all()
        of_device = (
            exact_sum(batch_state.num_episodes),
            jnp.where(is_exact, batch_state.return_sum.sum(), np.nan),
            jnp.stack(is_bad),
        )
        if self.num_devices > 1:
            num_episodes, return_sum, is_bad = jax.lax.psum(of_device, DEVICE)
            of_device = num_episodes, return_sum, is_bad > 0
        return Report(state.metric_sums, *of_device)


def learner_of_device(learner: Learner[Any], num_envs: int, num_devices: int) -> Learner[Any]:
    """Return the learner of one of the devices that share `num_envs` environments.

    Raises:
        InvalidArgumentError: the devices can't share them, or it can't learn from so many.
    """
    if num_devices > 1 and learner.per_device is None:
        rule = f"must be 1 with {type(learner.agent).__name__}, which trains on one device"
        raise InvalidArgumentError("num_devices", rule, num_devices)
    if num_envs % num_devices:
        rule = f"must divide num_envs = {num_envs:,}"
        raise InvalidArgumentError("num_devices", rule, num_devices)
    shared = learner.on_each_of(num_devices)
    shared.require_num_envs(num_envs // num_devices)
    return shared


def exact_sum(values: jax.Array) -> jax.Array:
    """Add up fewer than 2**24 counts, uint32 or int32 `[N]`, into `[4]` sums that `whole` reads."""
    words = values.astype(jnp.uint32)
    # Byte by byte, so that no sum exceeds 32 bits.
    return jnp.stack([jnp.sum(words >> shift & 0xFF, dtype=jnp.uint32) for shift in (0, 8, 16, 24)])


def whole(sums: jax.Array | np.ndarray) -> int:
    """Return the total from the sums of `exact_sum`, outside a trace."""
    return sum(int(part) << shift for part, shift in zip(sums, (0, 8, 16, 24), strict=True))


def traced_fields(kind: type) -> list[str]:
    """Return the hyperparameters of a class of learners that a compiled training can take.

    These are all floats and some counts.
    """
    structural = getattr(kind, "structural", ())
    return [
        name
        for name, declared in ranges_of(kind).items()
        if (not declared.whole or name in _COUNTS) and name not in structural
    ]


def traced_names(learner: Learner[Any]) -> list[str]:
    """Return the hyperparameters that are arguments of a compiled training and no constants.

    A field that switches a part of the program off, such as None, is none of them.
    """
    fields = traced_fields(type(learner))
    return [name for name in fields if isinstance(getattr(learner, name), int | float)]


def values_at(rows: jax.Array, num_updates: Counter) -> jax.Array:
    """Return the values, `[K]`, after so many updates, from rows `[K, 34]`."""
    last = ROW[0] - 2  # Behind the values, a row holds the length of the schedule.

    def value_at(row: jax.Array) -> jax.Array:
        place = last * jnp.minimum(num_updates.as_float() / row[-1], 1)
        index = jnp.minimum(place.astype(jnp.int32), last - 1)
        left, right = jax.lax.dynamic_slice(row, (index,), (2,))
        between = left + (right - left) * (place - index.astype(jnp.float32))
        # A constant keeps its bits, also if it is infinite.
        return jnp.where(left == right, left, between)

    # The barrier keeps the lookup out of the loops over parameters that use the values.
    return jax.lax.optimization_barrier(jax.vmap(value_at)(rows))


def _spec(is_own: bool) -> PartitionSpec:  # noqa: FBT001
    return PartitionSpec(DEVICE) if is_own else PartitionSpec()


def _for_own(function: Callable[[Any], Any], is_own: Any, tree: Any) -> Any:
    """Apply a function to the leaves that differ by device. `is_own` is a prefix of the tree."""
    return jax.tree.map(
        lambda leaf, own: function(leaf) if own else leaf, tree, jax.tree.broadcast(is_own, tree)
    )


def _after_update(
    state: TrainState, agent: Any, batch_state: BatchState, metrics: dict[str, jax.Array]
) -> TrainState:
    sums = {name: state.metric_sums[name] + value for name, value in metrics.items()}
    return dataclasses.replace(
        state,
        num_updates=state.num_updates + 1,
        agent=agent,
        batch_state=batch_state,
        metric_sums=sums,
    )


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
