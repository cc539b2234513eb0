"""The functions that a researcher calls: `create_config`, `train_and_evaluate` and others."""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from myriad import distributed
from myriad.agents.controller import ControllerLearner, trained
from myriad.autotune import autotune
from myriad.engine import machine
from myriad.engine.memory import require_room_for, stated_bytes
from myriad.engine.random import MIX2X32, is_key, make_key
from myriad.envs import OBJECT, Environment
from myriad.envs.environment import AnyEnvironment
from myriad.errors import InvalidArgumentError
from myriad.files import user_path
from myriad.host import release_freed_memory
from myriad.ranges import SEED_LIST, Integer, Seed, checked, require
from myriad.settings import wandb_names, xla_flags
from myriad.training.active_settings import active_settings
from myriad.training.callbacks import Callback
from myriad.training.callbacks.trackers import require_trackers
from myriad.training.compiled import EPISODE_BYTES, CompiledTraining, shortage_named
from myriad.training.config import TrainingConfig, make_config, require_values
from myriad.training.evaluation import Evaluation, evaluation_key, key_alone
from myriad.training.population import Population
from myriad.training.results import TrainingResults, slot_of
from myriad.training.run_folder import RunFolder
from myriad.training.start import Start
from myriad.training.trainer import Trainer, environment_record

# Seconds within which another host must see a folder that process 0 made.
_SEEN_S = 10.0

__all__ = ["create_config", "evaluate", "load_agent", "make_train", "resume", "train_and_evaluate"]


def create_config(
    env: str | Environment,
    agent: str,
    num_envs: int | None = None,
    steps_per_env: int | None = None,
    scan_chunk_size: int | None = None,
    *,
    auto_tune: bool | None = None,
    **overrides: Any,
) -> TrainingConfig:
    """Describe a training, and fill in everything that you leave open.

    The arguments are the fields of `TrainingConfig`, and options by dotted name, such as
    `"agent.learning_rate"` or `"env.gravity"`. In place of the environment's name you can give an
    environment that you built yourself. Two more decide what is filled in: `preset`, a name
    that `myriad presets` lists, sets what you leave open, and `total_steps` is the number of steps
    of all environments together, in place of `steps_per_env`. A field that is None is left open.
    With `auto_tune` the autotuner immediately chooses `scan_chunk_size` for this machine, and
    prints its progress. By default the `preset` decides whether it does.

    The devices of this machine are counted, so call `configure` before.

    Raises:
        UnknownNameError: there is no such environment, agent or field. The message names the
            closest one.
        InvalidArgumentError: a value can't be used, the agent can't act in the environment,
            `scan_chunk_size` is given together with `auto_tune`, or the tuned training does not fit
            into memory.

    Example:
        >>> config = create_config("cartpole-control", "ppo", **{"agent.learning_rate": 1e-3})
        >>> config.num_envs, config.agent_options["learning_rate"]
        (16, 0.001)
    """
    require("auto_tune", auto_tune, bool | None)
    config = make_config(env, agent, num_envs, steps_per_env, scan_chunk_size, **overrides)
    if not (config.tunes() if auto_tune is None else auto_tune):
        return config
    if distributed.count() > 1:
        raise InvalidArgumentError("auto_tune measures one process; turn it off (--no-auto-tune).")
    if scan_chunk_size is not None:
        raise InvalidArgumentError("scan_chunk_size", "must be left to auto_tune", scan_chunk_size)
    return config.changed(scan_chunk_size=autotune(config).scan_chunk_size)


@checked
def train_and_evaluate(  # noqa: PLR0913 (all that a training takes beside its configuration)
    config: TrainingConfig,
    run_folder: str | Path | None = None,
    *,
    seeds: Annotated[Sequence[int] | None, SEED_LIST] = None,
    grid: Mapping[str, Any] | None = None,
    quiet: bool = False,
    profile_chunks: Annotated[int, Integer(0)] = 0,
    sources: Mapping[str, str] | None = None,
    callbacks: Sequence[Callback] = (),
    start_from: str | Path | None = None,
    best: bool = False,
) -> TrainingResults:
    """Train as `config` says, and evaluate along the way.

    With `seeds` or a `grid`, given here or in `config`, all trainings run side by side in one
    program and one run folder.

    Args:
        config: the training, from `create_config`.
        run_folder: the folder for configuration, metrics and checkpoints; by default a new one
            under `runs/`.
        seeds: seeds of the trainings, such as `range(64)`, in place of `config.seed`.
        grid: values of float hyperparameters, such as `{"agent.learning_rate": [1e-4, 1e-3]}`.
            Each combination trains with each of the seeds.
        quiet: show no progress.
        profile_chunks: chunks to trace into the folder `profile`, for Perfetto.
        sources: where values of `config` were set, by their names, for the record.
        callbacks: your own, called after those that Myriad brings; an exception of one ends the
            run. Of several processes, only process 0 calls them.
        start_from: the folder of another run, in place of drawn parameters. The new run begins
            with what its agent had learned by its newest checkpoint. Steps and replay buffers
            begin at 0. Both need the same agent and network, and spaces of the same shapes.
        best: begin with the best agent of `start_from`, and not with its newest.

    Raises:
        InvalidArgumentError: the folder is not empty, is in use or can't be written, the training
            does not fit into memory, there is no such tracker, the environment of a film can't be
            drawn, a setting of `config` can't be combined with many seeds, or `start_from` holds
            another agent.
        NotInstalledError: the library of a tracker in `log_to` or of a film is not installed.
        DivergedError: there is a NaN, or an infinity where the agent can't learn from one.
        KeyboardInterrupt: you interrupted it. `resume` continues from there.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> config = create_config("cartpole-control", "pid", num_envs=4, steps_per_env=64)
        >>> with TemporaryDirectory() as folder:
        ...     results = train_and_evaluate(config, folder, quiet=True)
        >>> results.stopped, len(results.evaluations)
        ('end', 16)
    """
    given = {"seeds": seeds, "grid": grid}
    if changes := {name: each for name, each in given.items() if each is not None}:
        config = config.changed(**changes)
    settings = active_settings(config, sources)
    record = environment_record(config, settings)
    if "wandb" in config.log_to:
        # Only a new run reads these variables. A resumed run keeps its names.
        config = config.changed(**wandb_names() | config.given)
    _require_runnable("train_and_evaluate", config, profile_chunks)
    path = user_path(_new_path(config) if run_folder is None else run_folder, "run_folder")
    start = None
    if start_from is not None:
        start = Start.read(user_path(start_from, "start_from"), config, best=best)
        record["start_from"] = start.record
    elif best:
        raise InvalidArgumentError("best", "must be left out without start_from", best)
    toml = config.to_toml()
    path = Path(distributed.broadcast(str(path)))
    folder = distributed.on_first(lambda: RunFolder.create(path, toml, record))
    with _held(folder or RunFolder(path)) as folder:
        trainer = Trainer(
            _trainings(config),
            folder,
            callbacks,
            start,
            settings,
            quiet=quiet,
            profile_chunks=profile_chunks,
        )
        try:
            _require_shared(folder)
            return trainer.run()
        except BaseException:
            # A folder without rows would only block the corrected call.
            if distributed.is_first():
                folder.discard()
            raise


@checked
def resume(
    run_folder: str | Path,
    *,
    quiet: bool = False,
    profile_chunks: Annotated[int, Integer(0)] = 0,
    trust: bool = False,
    env: AnyEnvironment | None = None,
    callbacks: Sequence[Callback] = (),
) -> TrainingResults:
    """Resume a run from its newest checkpoint, or from the start if there is none.

    On the same devices the result equals that of an uninterrupted run bit for bit. On another
    number of devices there is a warning, and each update agrees within 1e-5. A run of many seeds
    resumes all of them. A run of another version continues with the values in its `config.toml`.
    Fields that the file lacks have their defaults.

    Args:
        run_folder: the folder that `train_and_evaluate` wrote.
        quiet: show no progress, not even on a terminal.
        profile_chunks: as in `train_and_evaluate`.
        trust: whether the run may name code of others to import, as `module:Class`.
        env: the environment, if you gave `create_config` an object.
        callbacks: as in `train_and_evaluate`. The run remembers none.

    Raises:
        InvalidArgumentError: the folder holds no run, names code that you don't trust, is in use,
            the training does not fit into memory, or another version of Myriad wrote it and its
            checkpoint no longer fits.
        UnknownNameError: its configuration names a tracker that doesn't exist.
        NotInstalledError: the library of a tracker or of a film is not installed.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> config = create_config("cartpole-control", "pid", num_envs=4, steps_per_env=64)
        >>> with TemporaryDirectory() as folder:
        ...     first = train_and_evaluate(config, folder, quiet=True)
        ...     again = resume(folder, quiet=True)  # it is at its end already
        >>> again.final_returns == first.final_returns
        True
    """
    folder = RunFolder(user_path(run_folder, "run_folder"))
    config = TrainingConfig.from_toml(
        folder.config_toml(), folder.path / "config.toml", trust=trust, env=env
    )
    _require_runnable("resume", config, profile_chunks)
    settings = active_settings(config, dict.fromkeys(config.given, "config.toml"))
    with _held(folder):
        start = None
        if folder.checkpoints.latest() is None and (
            record := folder.environment().get("start_from")
        ):
            start = Start.read(config=config, **record)
        trainer = Trainer(
            _trainings(config),
            folder,
            callbacks,
            start,
            settings,
            quiet=quiet,
            profile_chunks=profile_chunks,
        )
        return trainer.run()


@checked
def evaluate(
    config: TrainingConfig,
    agent_state: Any,
    num_episodes: Annotated[int, Integer(1)] = 128,
    seed: Seed = 0,
) -> jax.Array:
    """Return the returns of whole greedy episodes of a trained agent, float32 `[num_episodes]`.

    Args:
        config: the training, such as `results.config`.
        agent_state: what it learned, `results.agent_state`, or `agent.state` of `load_agent`.
        num_episodes: episodes to play.
        seed: the seed of their random numbers.

    Raises:
        InvalidArgumentError: `num_episodes` is not an integer of at least 1 or does not fit into
            memory, `seed` does not fit in 64 bits, or `agent_state` is not from such an agent.

    Example:
        >>> config = create_config("cartpole-control", "ppo")
        >>> untrained = config.learner.init(make_key(0), config.num_envs)
        >>> evaluate(config, untrained, num_episodes=8).shape
        (8,)
    """
    if isinstance(config.learner, ControllerLearner):
        agent_state = None  # A fixed policy needs none, so any is passed over.
    else:
        _require_state(config, agent_state)
    key = key_alone(seed)
    evaluation = Evaluation(
        config.environment, config.learner, num_episodes, max_steps=config.eval_max_steps
    )
    returns = jax.jit(evaluation.returns)
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((agent_state, key))):
        # Inside your own traced program, memory can't be checked here.
        return returns(agent_state, key, evaluation.env_params)[0]
    with shortage_named():
        # First, since an impossible number raises an unclear error where it is traced.
        least = EPISODE_BYTES * num_episodes
        require_room_for(num_episodes, least, what="episodes", at_most="fewer than")
        compiled = returns.lower(agent_state, key, evaluation.env_params).compile()
        release_freed_memory()
        # The agent's state is in memory already, so only the rest counts.
        _, added = stated_bytes(compiled)
        require_room_for(num_episodes, added, what="episodes")
        return jax.block_until_ready(compiled(agent_state, key, evaluation.env_params)[0])


class PureTraining(Protocol):
    """The training function that `make_train` returns.

    Attributes:
        steps: steps of all environments together at each evaluation, NumPy's int64 `[E]`. They are
            not among the results because JAX's integers have 32 bits.
    """

    steps: np.ndarray

    def __call__(self, key: jax.Array) -> dict[str, Any]: ...


@checked
def make_train(config: TrainingConfig) -> PureTraining:
    """Return `train(key)`, the whole training as one pure function of a key.

    `jax.vmap` it over keys to train many seeds at once. With `E` evaluations it returns
    `agent_state`, `eval_return`, `[E, eval_rollouts]`, and `metric_sums`, the sums of the metrics
    over each window. With the key `myriad.random.make_key(config.seed)`, the results are those of
    `train_and_evaluate`.

    Raises:
        InvalidArgumentError: `config` has a `target_return`, `seeds` or several devices.

    Example:
        >>> train = make_train(create_config("cartpole-control", "pqn", steps_per_env=640))
        >>> keys = jax.vmap(make_key)(jnp.arange(3))
        >>> jax.eval_shape(jax.vmap(train), keys)["eval_return"].shape
        (3, 10, 32)
    """
    settings = [
        ("target_return", config.target_return, None, "every seed runs to the end"),
        ("seeds", config.seeds, None, "the seed is the key, over which you can map the function"),
        # A number that was filled in may be larger, since a training may use more devices.
        ("num_devices", config.given.get("num_devices", 1), 1, "it is a program of one device"),
    ]
    require_values("for make_train", settings)
    training = CompiledTraining(config, num_devices=1)
    loop, evaluation, every = training.loop, training.evaluation, training.eval_every
    ends = [*range(every, training.num_updates, every), training.num_updates]
    # Trip counts don't depend on the key, since under vmap a loop whose end depends on the key
    # would run masked.
    trips = jnp.asarray(np.diff(ends, prepend=0), jnp.int32)

    def train(key: jax.Array) -> dict[str, Any]:
        def window(state: Any, trips: jax.Array) -> tuple[Any, Any]:
            state, report = loop.run(state, trips, jnp.ones((), bool))
            returns, _ = evaluation.returns(
                state.agent,
                evaluation_key(state.key, state.num_updates),
                evaluation.env_params,
            )
            return state, (returns, report.metric_sums)

        if not is_key(key):
            rule = "must be one typed key, as make_key or jax.random.key makes"
            raise InvalidArgumentError("key", rule, key)
        if jax.random.key_impl(key) != MIX2X32:
            # With JAX's own keys, random numbers would take most of a step's time. Two words that
            # one draws make a key of ours.
            key = jax.random.wrap_key_data(jax.random.bits(key, (2,), jnp.uint32), impl=MIX2X32)
        state, (returns, metrics) = jax.lax.scan(window, loop.init(key), trips)
        return {"agent_state": state.agent, "eval_return": returns, "metric_sums": metrics}

    pure: Any = train
    pure.steps = np.asarray(ends, np.int64) * training.steps_per_update
    return pure


@checked
def load_agent(
    run_folder: str | Path,
    seed: Seed | None = None,
    *,
    point: Mapping[str, Any] | None = None,
    best: bool = False,
    trust: bool = False,
    env: AnyEnvironment | None = None,
) -> tuple[TrainingConfig, Any, Any]:
    """Return the configuration of a run, its environment and its trained agent.

    You can pass the agent to `Rollout`, or call `agent.act(key, obs)` in each step of any
    environment. It is a fixed greedy policy from the newest checkpoint, or the controller. Of a
    network with a memory it is a controller, too, with `first_memory()` and
    `control(memory, key, obs)`. From a run of many seeds, you get the agent of one seed.

    Args:
        run_folder: the folder that `train_and_evaluate` wrote.
        seed: the training's seed. A run of many seeds needs it.
        point: the training's hyperparameters by dotted name. A run of a grid needs it.
        best: load what the agent had learned at its best evaluation by then, the first of equal
            ones.
        trust: whether the run may name code of others to import, as `module:Class`.
        env: the environment, if you gave `create_config` an object.

    Raises:
        InvalidArgumentError: the folder holds no run, no checkpoint or no best agent yet, or no
            training of this seed or point, or names code that you don't trust.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> config = create_config("cartpole-control", "pqn", steps_per_env=64)
        >>> with TemporaryDirectory() as folder:
        ...     results = train_and_evaluate(config, folder, quiet=True)
        ...     config, env, agent = load_agent(folder)
        >>> agent.act(make_key(0), jnp.zeros(4)).shape
        ()
    """
    folder = RunFolder(user_path(run_folder, "run_folder"))
    config = TrainingConfig.from_toml(
        folder.config_toml(), folder.path / "config.toml", trust=trust, env=env
    )
    slot = slot_of(config, seed, point)
    trainings = _trainings(config)
    is_of_many = config.seeds is not None
    alone: dict[str, Any] = {"seeds": None, "grid": None, "mapping": None}
    config = config.changed(**alone | trainings.members[slot])
    env, learner = config.environment, config.learner
    if isinstance(learner, ControllerLearner):
        return config, env, learner.controller
    checkpoints = folder.checkpoints
    shapes = trainings.saved_shapes
    state = checkpoints.read_newest(lambda update: checkpoints.restore(update, shapes, best=best))
    if state is None:
        raise InvalidArgumentError(f"{folder.path} holds no checkpoint yet: resume the run first.")
    release_freed_memory()
    agent = trainings.loop.of_first_device(state).agent
    if is_of_many:
        agent = jax.tree.map(lambda leaf: leaf[slot], agent)
    return config, env, trained(learner.scheduled(config.num_updates), agent, env)


def _trainings(config: TrainingConfig) -> CompiledTraining:
    if config.seeds is None:
        return CompiledTraining(config)
    differing = [name.removeprefix("agent.") for name in config.grid or ()]
    return Population(config, len(config.members), differing, mapping=config.mapping)


def _require_state(config: TrainingConfig, agent_state: Any) -> None:
    """Raise unless a state has the leaves of the learner's state, of any sizes."""

    def kinds(state: Any) -> Any:
        leaves, structure = jax.tree.flatten(state)
        return structure, [(getattr(x, "ndim", -1), getattr(x, "dtype", None)) for x in leaves]

    one = jax.eval_shape(lambda: config.learner.init(make_key(0), config.num_envs))
    if kinds(agent_state) != kinds(one):
        rule = f"must be that of one trained {config.agent}, such as results.agent_state_of(seed)"
        raise InvalidArgumentError("agent_state", rule, agent_state)


def _require_runnable(call: str, config: TrainingConfig, profile_chunks: int) -> None:
    """Raise unless the training can run here, and all processes are about to run the same one.

    Raises:
        InvalidArgumentError: a setting is only for many seeds, or for a single seed or process, the
            environment of a film can't be drawn, or the processes differ.
        UnknownNameError: there is no such tracker.
        NotInstalledError: the library of a tracker or of a film is not installed.
    """
    if config.seeds is not None:
        replay_memory = config.agent_options.get("replay_memory", "device")
        # Their programs compile before the first step in either mode.
        mode = "aot" if config.compile_mode == "cached" else config.compile_mode
        settings = [
            ("film_every", config.film_every, 0, "films show one training"),
            ("log_to", config.log_to, [], "trackers show one training"),
            ("compile_mode", mode, "aot", "seeds share one compiled program"),
            ("agent.replay_memory", replay_memory, "device", "a device holds all of its seeds"),
            ("profile_chunks", profile_chunks, 0, "a trace shows one training"),
        ]
        require_values("with many seeds", settings)
        if isinstance(config.learner, ControllerLearner):
            rule = f"must be left out for {config.agent}, which learns nothing"
            raise InvalidArgumentError("seeds", rule, config.seeds)
    elif config.mapping is not None:
        raise InvalidArgumentError("mapping", "must be left out without seeds", config.mapping)
    if distributed.count() > 1:
        facts = {"the call": call} | config.fields()
        versions = machine.package_versions().items()
        facts |= {f"the version of {name}": each for name, each in versions}
        facts["XLA_FLAGS"] = " ".join(xla_flags())
        distributed.require_equal(facts)
        settings = [
            ("seeds", config.seeds, None, "seeds are spread over the devices of one"),
            ("film_every", config.film_every, 0, "a film shows what one holds"),
            ("profile_chunks", profile_chunks, 0, "a trace shows one"),
        ]
        require_values("with several processes", settings)
        if config.num_devices != (count := jax.device_count()):
            rule = f"must be {count}, the devices of all {distributed.count()} processes"
            raise InvalidArgumentError("num_devices", rule, config.num_devices)
    if config.log_to:
        require_trackers(config.log_to)
    if config.film_every and not callable(getattr(config.environment, "render", None)):
        rule = f"must be 0 for {config.env}, which has no method render(state)"
        raise InvalidArgumentError("film_every", rule, config.film_every)


@contextlib.contextmanager
def _held(folder: RunFolder) -> Iterator[RunFolder]:
    """Hold a run's folder in process 0, and end the block in all processes together.

    Raises:
        InvalidArgumentError: another run holds the folder.
    """
    with contextlib.ExitStack() as opened:
        distributed.on_first(lambda: opened.enter_context(folder.held()))
        yield folder
    # A tracker of process 0 may have needed longer than JAX lets the others wait at their exit.
    distributed.broadcast(None)


def _require_shared(folder: RunFolder) -> None:
    """Raise in all processes unless each sees the folder that process 0 made.

    Raises:
        InvalidArgumentError: a process doesn't see it, so its part of a checkpoint would be lost.
    """
    until_s = time.monotonic() + _SEEN_S
    while not folder.path.exists() and time.monotonic() < until_s:
        time.sleep(0.1)
    seen = distributed.all_gather(folder.path.exists())
    if not all(seen):
        says = f"run folder {folder.path} must be shared; process {seen.index(False)} lacks it."
        raise InvalidArgumentError(says)


def _new_path(config: TrainingConfig) -> Path:
    """Return the name of a folder that doesn't exist yet."""
    now = time.strftime("%Y%m%d-%H%M%S")
    # The name of your own environment has a colon, which some file systems refuse.
    seeds = f"seed{config.seed}" if config.seeds is None else f"{len(config.seeds)}seeds"
    seeds = seeds if config.grid is None else f"{len(config.points)}points-{seeds}"
    stem = f"{config.env.removeprefix(OBJECT)}-{config.agent}-{seeds}-{now}".replace(":", "-")
    path = Path("runs") / stem
    number = 1
    # Another process may still take the name first. `RunFolder.create` then refuses it here.
    while path.exists():
        number += 1
        path = Path("runs") / f"{stem}-{number}"
    return path
