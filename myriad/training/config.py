"""The configuration of a training: `TrainingConfig`, complete as soon as it is made.

`make_config` fills it from the agent, the environment, a preset and the sizes. The command line
takes its flags from here, so importing this module doesn't import JAX.
"""

import contextlib
import copy
import dataclasses
import functools
import itertools
import math
import tomllib
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tomli_w
from pydantic import Field

from myriad.errors import InvalidArgumentError, UnknownNameError, shown
from myriad.presets import Preset, load_preset
from myriad.ranges import HOST, INT64, SEED_LIST, Integer, Number, Seed, checked, ranges_of, require

if TYPE_CHECKING:
    import numpy as np

    from myriad.agents.agent import Learner
    from myriad.envs import Environment

# Fields of the configuration that are also hyperparameters of agents, under the same names.
SHARED_WITH_AGENT = ("rollout_steps", "buffer_size", "batch_size")
# Evaluations in a training by default: enough for a curve, at a few percent of the training's time.
_EVALUATIONS = 20
# Where no episode ends, so many evaluations have at most this share of the training's steps, but
# each of their episodes at least so many steps.
_EVALUATION_SHARE, _LEAST_EVALUATED = 0.1, 50
# More steps without compiling would run for hours.
_MOST_UNCOMPILED_STEPS = 1_000
# Between two evaluations, updates and each environment's episodes are counted in int32.
_LONGEST_WINDOW = 2**31 - 1
# Pairs of names that set the same thing: the length, the size of gradient steps, the seed.
SAME = (
    frozenset({"steps_per_env", "total_steps"}),
    frozenset({"batch_size", "agent.num_minibatches"}),
    frozenset({"seed", "seeds"}),
)
# The options that name a network.
NETWORK_FIELDS = ("agent.network", "agent.critic_network")
# The lengths of a tag that Weights & Biases accepts.
Tag = Annotated[str, Field(min_length=1, max_length=64)]
_Name = Annotated[str | None, Field(min_length=1, max_length=128)]
# The range of an argument of `make_config` that is not a field.
TOTAL_STEPS = Integer(1, INT64)
# TOML has no null, so a file says None like this.
_NONE = "none"
# The longest list in a configuration, since people read and compare configurations.
_MOST_ITEMS = 100_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """A training, with every value that it has. `myriad.create_config` makes it.

    Steps are counted per environment. All environments together do `num_envs` times as many. An
    agent learns in updates of `learner.steps_per_update` steps. The lengths of a training, of a
    chunk and of the window between two evaluations are whole updates. No chunk or window is longer
    than the training.

    To change a value, make another configuration: `changed` lets what you left open follow, and
    `create_config(**config.fields() | changes)` keeps all other values.

    Attributes:
        env: Environment: a name that `myriad envs` lists, or package.module:Name for your own. If
            you gave an object that no name makes, it is object: and the name of its class.
        agent: Agent: a name that `myriad agents` lists.
        num_envs: Environments in parallel. By default the agent's own number.
        steps_per_env: Steps of every environment in the whole training. By default it follows from
            the agent and num_envs.
        scan_chunk_size: Steps of every environment in one compiled call. Results don't depend on
            it. By default at most 1,000, and at most a million over all environments.
        rollout_steps: Steps of every environment between two updates of an on-policy agent. By
            default the agent's own number.
        buffer_size: Transitions that a replay buffer holds. By default the agent's own number.
        batch_size: Rows of experience in one gradient step. By default the agent's own number. For
            ppo and pqn it sets agent.num_minibatches.
        num_devices: Devices that train together, each with its share of the environments. By
            default all that are worth it. The algorithm is the same on any number, but rows of
            experience meet in other minibatches.
        eval_frequency: Steps of every environment between two evaluations. By default there are 20
            in a training.
        eval_rollouts: Episodes in one evaluation.
        eval_max_steps: Steps after which an evaluation cuts an episode off. By default 2,500. If
            the environment ends no episode, fewer, so that 20 evaluations take a tenth of the
            training's steps. Another eval_frequency doesn't change it, so more evaluations take
            more.
        target_return: Stop as soon as an evaluation's mean return reaches this. Without it, the
            training runs to its end.
        checkpoint_every_s: Minimum seconds between two checkpoints, each of which follows an
            evaluation. A checkpoint is also saved at the end and at an interrupt.
        monitor_every: Evaluations between two rows of monitor.jsonl, which show where the time
            goes. 0 writes none.
        film_every: Evaluations between two films of an episode, saved in the run's folder under
            films. 0 makes none.
        compile_mode: When programs compile. aot: before the first step. cached: at their first
            call. jit: at their first call, without keeping them for the next run. off: never, for
            debugging in at most 1,000 steps per environment.
        log_to: Trackers that get the metrics in addition to the run's folder: tensorboard, wandb.
        wandb_project: Project in Weights & Biases. By default WANDB_PROJECT, or else myriad.
        wandb_name: Name of the run in Weights & Biases. By default WANDB_NAME, or else the name of
            the run's folder.
        wandb_tags: Tags of the run in Weights & Biases.
        seed: Seed of all random numbers in the run.
        seeds: Seeds to train side by side in one program, in place of seed.
        grid: Values of float hyperparameters by dotted name. Each combination of them trains with
            each of the seeds, side by side in one program.
        mapping: How seeds share a device. map: one after another. vmap: side by side. By default
            map on a CPU and vmap elsewhere.
        env_options: Fields of the environment and of its parameters.
        agent_options: Hyperparameters of the agent. A float may be a schedule, such as
            "linear(0.2, 0)".
        given: What you gave `create_config`, options by dotted name. All else follows from it.
            Two configurations of equal values are equal, whatever was given.
    """

    env: str
    agent: str
    num_envs: Annotated[int, Integer(1)]
    steps_per_env: Annotated[int, Integer(1, INT64)]
    scan_chunk_size: Annotated[int, Integer(1, INT64)]
    rollout_steps: Annotated[int | None, Integer(1)] = None
    buffer_size: Annotated[int | None, Integer(1)] = None
    batch_size: Annotated[int | None, Integer(1)] = None
    num_devices: Annotated[int, Integer(1, 65_536)]
    eval_frequency: Annotated[int, Integer(1, INT64)]
    eval_rollouts: Annotated[int, Integer(1)] = 32
    eval_max_steps: Annotated[int, Integer(1)] = 2_500
    target_return: Annotated[float | None, Number(*HOST, words=(None,))] = None
    checkpoint_every_s: Annotated[float, Number(0, HOST[1], infinity=True)] = 60.0
    monitor_every: Annotated[int, Integer(0)] = 1
    film_every: Annotated[int, Integer(0)] = 0
    compile_mode: Literal["aot", "cached", "jit", "off"] = "aot"
    log_to: Annotated[list[str], Field(max_length=16)] = dataclasses.field(default_factory=list)
    wandb_project: _Name = None
    wandb_name: _Name = None
    wandb_tags: Annotated[list[Tag], Field(max_length=64)] = dataclasses.field(default_factory=list)
    seed: Seed = 0
    seeds: Annotated[list[int] | None, SEED_LIST] = None
    grid: dict[str, Any] | None = None
    mapping: Literal["map", "vmap"] | None = None
    env_options: dict[str, Any]
    agent_options: dict[str, Any]
    given: Any = dataclasses.field(default=None, compare=False)

    def __post_init__(self) -> None:
        given = self.fields() if self.given is None else self.given
        object.__setattr__(self, "given", dict(given))

    @functools.cached_property
    def environment(self) -> "Environment":
        """The environment, wrapped if its observations are no `Box`."""
        from myriad.adapters import make_env

        return _seen_by(self.agent, make_env(self.env, **with_tuples(self.env_options)))

    @functools.cached_property
    def learner(self) -> "Learner[Any]":
        """The agent, or a fixed policy that takes a learner's place."""
        from myriad.agents import make_learner

        shared = {name: getattr(self, name) for name in SHARED_WITH_AGENT}
        options = with_tuples(self.agent_options) | {k: v for k, v in shared.items() if v}
        return make_learner(self.agent, self.environment, self.num_envs, **options)

    @property
    def schedules(self) -> "dict[str, np.ndarray]":
        """The rows of the hyperparameters with a schedule, as `LearningLoop` takes them."""
        from myriad.agents.agent import is_schedule, row_of

        options = self.agent_options.items()
        return {k: row_of(v, self.num_updates) for k, v in options if is_schedule(v)}

    @property
    def num_updates(self) -> int:
        """Updates of the agent in the whole training."""
        return self.steps_per_env // self.learner.steps_per_update

    @property
    def updates_per_eval(self) -> int:
        """Updates between two evaluations."""
        return self.eval_frequency // self.learner.steps_per_update

    @property
    def updates_per_chunk(self) -> int:
        """Updates in one compiled call."""
        return self.scan_chunk_size // self.learner.steps_per_update

    @property
    def untuned_chunk_size(self) -> int:
        """The `scan_chunk_size` of such a training that leaves it open."""
        return _chunk_size(None, self.num_envs, self.steps_per_env, self.learner.steps_per_update)

    @property
    def points(self) -> list[dict[str, float]]:
        """The combinations of values in the grid; `[{}]` without one."""
        grid = self.grid or {}
        return [dict(zip(grid, each, strict=True)) for each in itertools.product(*grid.values())]

    @property
    def members(self) -> list[dict[str, Any]]:
        """What names each training of the run in its rows: a point of the grid, and a seed.

        The only training of a run needs no name.
        """
        if self.seeds is None:
            return [{}]
        return [{**point, "seed": seed} for point in self.points for seed in self.seeds]

    def fields(self) -> dict[str, Any]:
        """Return all values as `create_config` takes them, with options by dotted name."""
        return _flat(self.values())

    def values(self) -> dict[str, Any]:
        """Return a copy of all values by field, without `given`."""
        names = [each.name for each in dataclasses.fields(self) if each.name != "given"]
        return {name: copy.deepcopy(getattr(self, name)) for name in names}

    def value_of(self, name: str) -> Any:
        """Return a field, or an option by its dotted name."""
        owner, _, option = name.partition(".")
        if not option or canonical(name) == option:
            return getattr(self, option or name)
        return getattr(self, f"{owner}_options")[option]

    def from_preset(self) -> dict[str, Any]:
        """Return the values that come from the preset that you gave, by name."""
        return _of_preset(self.given)

    def tunes(self) -> bool:
        """Return whether the preset lets the autotuner choose the chunk, and you left it open."""
        preset = _preset_of(self.given)
        return preset is not None and preset.auto_tune and "scan_chunk_size" not in self.given

    def to_toml(self) -> str:
        """Write the configuration as TOML.

        An option that is None and a `target_return` of None are written as "none". Other fields
        that are None are left out.
        """
        table = self.values()
        if table["target_return"] is None:
            table["target_return"] = _NONE
        for owner in ("env_options", "agent_options"):
            table[owner] = {k: _NONE if v is None else v for k, v in table[owner].items()}
        return tomli_w.dumps({name: each for name, each in table.items() if each is not None})

    @classmethod
    @checked
    def from_toml(
        cls,
        text: str,
        file: Path | None = None,
        *,
        trust: bool = False,
        env: "Environment | None" = None,
    ) -> "TrainingConfig":
        """Read a configuration that `to_toml` or a person wrote, and fill in what it leaves open.

        Args:
            text: the configuration.
            file: where it comes from, for error messages.
            trust: whether the file may name code to import, as `module:Class`.
            env: the environment, in place of the one that the text names.

        Raises:
            InvalidArgumentError: the text is not TOML, or not a configuration, or it comes from a
                file that names code to import, and you don't trust it.
        """
        given = {} if env is None else {"env": env}
        try:
            return _made(read_fields(text, trust=trust or file is None, known=given) | given)
        except InvalidArgumentError as error:
            if file is None:
                raise
            raise InvalidArgumentError(f"{file}: {error}") from error

    def changed(self, **changes: Any) -> "TrainingConfig":
        """Return the training with other values, by the names that `create_config` takes.

        What you left open follows from the new values. None leaves a field open again.

        Raises:
            UnknownNameError: there is no such field.
            InvalidArgumentError: a value can't be used.
        """
        # `dataclasses.replace` sets values that don't follow from what was given.
        follows = _made(self.given).fields()
        replaced = {k: v for k, v in self.fields().items() if follows.get(k, follows) != v}
        return _made(_flat({**self.given, **replaced, **changes}))


# The names that `make_config` takes, besides options by dotted name.
FIELDS = [each.name for each in dataclasses.fields(TrainingConfig) if each.name != "given"]
FIELDS += ["preset", "total_steps"]


def make_config(
    env: "str | Environment",
    agent: str,
    num_envs: int | None = None,
    steps_per_env: int | None = None,
    scan_chunk_size: int | None = None,
    **overrides: Any,
) -> TrainingConfig:
    """Make a configuration, as `myriad.create_config` does but without the autotuner.

    Raises:
        UnknownNameError: there is no such environment, agent or field.
        InvalidArgumentError: a value can't be used, or the agent can't act in the environment.
    """
    given = {"env": env, "agent": agent, "num_envs": num_envs, "steps_per_env": steps_per_env}
    return _made(_flat({**given, "scan_chunk_size": scan_chunk_size, **overrides}))


def read_fields(text: str, *, trust: bool, known: Container[str] = ()) -> dict[str, Any]:
    """Return what a file gives, options by dotted name. The values are not checked yet.

    Args:
        text: what the file holds.
        trust: whether it may name code to import, as `module:Class`.
        known: names whose values in the file are not used.

    Raises:
        InvalidArgumentError: the text is not TOML, or it names code that you don't trust.
    """
    try:
        fields = _flat(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgumentError(f"the configuration is not TOML: {error}.") from None
    except RecursionError:
        raise InvalidArgumentError("the configuration is nested too deeply.") from None
    for name in () if trust else names_of_code(fields):
        if name not in known:
            require_no_code(name, fields[name])
    return fields


def names_of_code(fields: Mapping[str, Any]) -> list[str]:
    """Return the fields that name code of others to import, as `module:Class`."""
    from myriad.adapters import ADAPTERS
    from myriad.envs import OBJECT

    names = ("env", "agent", *NETWORK_FIELDS)
    named = [name for name in names if ":" in str(fields.get(name))]
    is_no_code = str(fields.get("env")).startswith((*ADAPTERS, OBJECT))
    return [name for name in named if name != "env" or not is_no_code]


def require_values(where: str, settings: Iterable[tuple[str, Any, Any, str]]) -> None:
    """Raise InvalidArgumentError unless each setting has the value that it needs.

    Args:
        where: the rest of the sentence, such as "with many seeds".
        settings: of each its name, its value, the value that it needs, and the reason.
    """
    for name, value, needed, reason in settings:
        if value != needed:
            raise InvalidArgumentError(name, f"must be {needed!r} {where}, since {reason}", value)


def require_no_code(field: str, name: object) -> None:
    """Refuse a name from a file that would import code, which has the form `module:Class`."""
    if isinstance(name, str) and ":" in name:
        says = f"{field} {shown(name)} would be imported; to trust it, add --trust (trust=True)."
        raise InvalidArgumentError(says)


def default_mapping() -> Literal["map", "vmap"]:
    """Return how many trainings share a device by default.

    On a CPU they run one after another, since its caches hold one training better than all of them.
    """
    import jax

    return "map" if jax.default_backend() == "cpu" else "vmap"


def canonical(name: str) -> str:
    """Return the field's name for an option of the agent that is also a field."""
    option = name.removeprefix("agent.")
    return option if option in SHARED_WITH_AGENT else name


def options_of(thing: Any) -> dict[str, Any]:
    """Return the fields of an environment, its parameters or an agent that a file can hold.

    These are no arrays and no nested objects. Fields marked as derived are left out, since they
    follow from other fields or from the machine. An object that is no dataclass has none. A field
    marked as arguments holds pairs of names and values, as an adapter's does.
    """
    values = {}
    for field in dataclasses.fields(thing) if dataclasses.is_dataclass(thing) else ():
        value = getattr(thing, field.name)
        if field.metadata.get("arguments"):
            values |= dict(value)
        elif not field.metadata.get("derived"):
            values[field.name] = value
    values = {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}
    plain = bool | int | float | str | list | None
    # TOML has no null, and only None by itself is written as a word.
    return {
        k: v
        for k, v in values.items()
        if isinstance(v, plain) and not (isinstance(v, list) and None in v)
    }


def with_tuples(value: Any) -> Any:
    """Turn lists back into tuples, since environments and agents must be hashable."""
    if isinstance(value, Mapping):
        return {name: with_tuples(each) for name, each in value.items()}
    return tuple(map(with_tuples, value)) if isinstance(value, list) else value


def _made(given: dict[str, Any]) -> TrainingConfig:
    """Make the configuration of what you gave and of what your preset adds to it."""
    _require_known(given)
    from myriad.envs.environment import AnyEnvironment

    for name, kind in (("env", str | AnyEnvironment), ("agent", str)):
        if name not in given:
            raise InvalidArgumentError(f"the configuration has no {name}; see `myriad {name}s`.")
        require(name, given[name], kind)
    added = _of_preset(given)
    try:
        _require_known(added)
        config = _filled({**added, **given})
    except InvalidArgumentError as error:
        named = error.value if isinstance(error, UnknownNameError) else error.field
        # Some errors name an option without its owner.
        if str(named).rpartition(".")[2] in {name.rpartition(".")[2] for name in added}:
            raise InvalidArgumentError(f"preset {given['preset']!r}: {error}") from None
        raise
    object.__setattr__(config, "given", given)
    return config


def _require_known(fields: Iterable[str]) -> None:
    for name in fields:
        if name in FIELDS or name.startswith(("agent.", "env.")):
            continue
        known = [each for each in FIELDS if not each.endswith("_options")]
        raise UnknownNameError("field", name, [*known, "agent.<hyperparameter>", "env.<parameter>"])


def _preset_of(given: Mapping[str, Any]) -> Preset | None:
    """Return the preset that you gave.

    Raises:
        UnknownNameError: the agent has no such preset.
        InvalidArgumentError: the preset is for another agent or environment, or its file is
            damaged.
    """
    from myriad.agents import AGENTS
    from myriad.envs import ENVIRONMENTS

    if "preset" not in given:
        return None
    agent, env = AGENTS.resolve(given["agent"]), given["env"]
    is_name = isinstance(env, str)
    env = ENVIRONMENTS.resolve(env) if is_name else ENVIRONMENTS.name_of(type(env))
    return load_preset(given["preset"], agent, env)


def _of_preset(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the preset sets and you leave open."""
    preset = _preset_of(given)
    if preset is None:
        return {}
    chosen = given.keys() | set().union(*(names for names in SAME if names & given.keys()))
    return {k: v for k, v in _flat(preset.fields).items() if k not in chosen}


def _filled(fields: dict[str, Any]) -> TrainingConfig:
    """Check these values, and fill in every other that follows from them."""
    from myriad.agents.agent import is_schedule
    from myriad.training.loop import learner_of_device

    kinds: dict[str, Any] = {each.name: each.type for each in dataclasses.fields(TrainingConfig)}
    kinds |= {"env": Any, "total_steps": Annotated[int, TOTAL_STEPS]}  # It may be an object.
    for name, kind in kinds.items():
        if name in fields:
            require(name, fields[name], kind)
    if {"steps_per_env", "total_steps"} <= fields.keys():
        raise InvalidArgumentError("steps_per_env and total_steps say the same; give one of them.")
    _require_seeds(fields)
    options: dict[str, dict[str, Any]] = {"env": {}, "agent": {}}
    for name, value in fields.items():
        owner, _, option = name.partition(".")
        if option:
            options[owner][option] = value
    env, learner, num_envs = _built(fields, options)
    num_devices = fields.get("num_devices") or _default_num_devices(fields, learner, num_envs)
    unit = learner.steps_per_update
    total_steps = fields.get("total_steps") or learner.default_total_steps(num_envs)
    if "steps_per_env" in fields:
        total_steps = fields["steps_per_env"] * num_envs
    steps = _whole(fields.get("steps_per_env") or -(-total_steps // num_envs), unit)
    TOTAL_STEPS.require("steps_per_env x num_envs", steps * num_envs)
    _require_devices(fields, steps, num_devices)
    learner_of_device(learner, num_envs, num_devices)  # It refuses what can't be shared.
    window = fields.get("eval_frequency") or -(-steps // _EVALUATIONS)
    of_env = options["env"] | _env_options(env)
    of_agent = options_of(learner.agent)
    schedules = {name: value for name, value in options["agent"].items() if is_schedule(value)}
    complete = {
        "env": fields["env"] if isinstance(fields["env"], str) else _name_of(env, of_env),
        "num_envs": num_envs,
        "steps_per_env": steps,
        "scan_chunk_size": _chunk_size(fields.get("scan_chunk_size"), num_envs, steps, unit),
        "num_devices": num_devices,
        "eval_frequency": min(steps, _whole(min(window, _LONGEST_WINDOW), unit)),
        "eval_max_steps": fields.get("eval_max_steps")
        or _default_eval_max_steps(fields, env, total_steps),
        # None if the agent has no such field. `num_minibatches` says an on-policy agent's batch.
        **{name: of_agent.pop(name, None) for name in SHARED_WITH_AGENT},
        # Keep all options that you chose: an adapter may hold one where no field shows it.
        "env_options": of_env,
        "agent_options": options["agent"] | of_agent | schedules,
        "grid": _grid(fields, learner),
    }
    if "seeds" in fields:
        complete["mapping"] = fields.get("mapping") or default_mapping()
    chosen = {k: v for k, v in fields.items() if "." not in k} | complete
    chosen = {k: v for k, v in chosen.items() if k not in ("preset", "total_steps")}
    config = TrainingConfig(**chosen)
    config.__dict__.update(environment=_seen_by(config.agent, env), learner=learner)
    return config


def _env_options(env: "Environment") -> dict[str, Any]:
    """Return the fields of an environment and of its parameters, those drawn as "uniform(a, b)"."""
    from myriad.envs.wrappers import RandomisedParams, ResetPool, UniformDraws

    if isinstance(env, ResetPool):
        return _env_options(env.env) | {"reset_pool": env.reset_pool}
    if isinstance(env, RandomisedParams) and isinstance(env.draw, UniformDraws):
        return _env_options(env.env) | {name: str(each) for name, each in env.draw.ranges}
    return options_of(env) | options_of(env.default_params)


def _default_eval_max_steps(fields: Mapping[str, Any], env: "Environment", total_steps: int) -> int:
    """Return the steps of an evaluated episode, fewer if no step of `env` can end one."""
    from myriad.adapters.adapter import Adapter
    from myriad.envs import ENVIRONMENTS
    from myriad.envs.checker import never_ends
    from myriad.envs.wrappers import RandomisedParams, ResetPool

    env = env.env if isinstance(env, RandomisedParams | ResetPool) else env
    longest = TrainingConfig.eval_max_steps
    # All of Myriad's own have a time limit, and so do those of other libraries. Tracing takes time.
    is_own = type(env).__module__.startswith("myriad.")
    is_own = is_own and ENVIRONMENTS.name_of(type(env)) is not None
    if is_own or isinstance(env, Adapter) or not never_ends(env):
        return longest
    episodes = _EVALUATIONS * fields.get("eval_rollouts", TrainingConfig.eval_rollouts)
    # Of the length that you asked for, before it is rounded, so that all trials of a study agree.
    share = int(_EVALUATION_SHARE * total_steps) // episodes
    return max(_LEAST_EVALUATED, min(share, longest))


def _seen_by(agent: str, env: "Environment") -> "Environment":
    """Return the environment as an agent gets it. A controller gets the user's observations."""
    from myriad.agents import AGENTS
    from myriad.agents.agent import Learner
    from myriad.agents.random import RandomAgent
    from myriad.envs.wrappers import for_learner

    kind = AGENTS.load(agent)
    is_learner = isinstance(kind, type) and issubclass(kind, Learner)
    # A mask is appended to a flat observation, so random choices need one, too.
    has_mask = hasattr(env, "action_mask")
    return for_learner(env) if is_learner or (kind is RandomAgent and has_mask) else env


def _name_of(env: "Environment", options: Mapping[str, Any]) -> str:
    """Return the name from which `make_env(name, **options)` builds an environment again.

    If there is none, it is "object:" and the name of its class.
    """
    from myriad.adapters import ADAPTERS, make_env
    from myriad.envs import ENVIRONMENTS, OBJECT
    from myriad.envs.wrappers import RandomisedParams, ResetPool

    # A name and ranges make an environment that draws from them, or a name and a pool.
    inner = env.env if isinstance(env, RandomisedParams | ResetPool) else env
    prefixes = {library.module: prefix for prefix, library in ADAPTERS.items()}
    name = ENVIRONMENTS.name_of(type(inner))
    if prefix := prefixes.get(type(inner).__module__):
        name = f"{prefix}{inner.name}"  # pyright: ignore[reportAttributeAccessIssue]
    if name is not None and make_env(name, **with_tuples(options)) == env:
        return name
    return OBJECT + type(env).__name__


def _built(
    fields: Mapping[str, Any], options: Mapping[str, Mapping[str, Any]]
) -> tuple["Environment", "Learner[Any]", int]:
    """Build the environment and the learner for a number of environments, the third result."""
    from myriad.adapters import make_env
    from myriad.agents import default_num_envs, make_learner
    from myriad.envs.wrappers import Wrapper

    with _named("env", options):
        env = make_env(fields["env"], **with_tuples(options["env"]))
    if isinstance(env, Wrapper) or not type(env).__module__.startswith("myriad."):
        from myriad.envs.checker import require_trainable

        require_trainable(env)
    given = {name: fields[name] for name in SHARED_WITH_AGENT if name in fields}
    given |= with_tuples(options["agent"])
    num_envs = fields.get("num_envs") or default_num_envs(fields["agent"])
    steps = fields.get("steps_per_env")
    total_steps = fields.get("total_steps") or (steps and steps * num_envs)
    with _named("agent", options):
        learner = make_learner(
            fields["agent"], _seen_by(fields["agent"], env), num_envs, total_steps, **given
        )
    return env, learner, num_envs


@contextlib.contextmanager
def _named(owner: str, options: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """Make errors call an option by its dotted name, as you gave it."""
    try:
        yield
    except InvalidArgumentError as error:
        raise error.renamed({name: f"{owner}.{name}" for name in options[owner]}) from None


def _require_seeds(fields: dict[str, Any]) -> None:
    """Refuse seeds that can't go together, and fill in the one that stands for all of them."""
    if "grid" in fields:  # With one seed it is many trainings, too.
        fields.setdefault("seeds", [fields.get("seed", 0)])
    if "seeds" not in fields:
        return
    seeds = fields["seeds"]
    if len({*seeds}) < len(seeds):
        raise InvalidArgumentError("seeds", "must be different", seeds)
    if fields.setdefault("seed", seeds[0]) not in seeds:
        rule = f"must be among the seeds {shown(seeds)}"
        raise InvalidArgumentError("seed", rule, fields["seed"])


def _grid(fields: Mapping[str, Any], learner: "Learner[Any]") -> dict[str, list[float]] | None:
    """Return the grid, or refuse it if anything in it is no float argument of the program."""
    from myriad.training.loop import traced_names

    if "grid" not in fields:
        return None
    grid = fields["grid"]
    if not isinstance(grid, Mapping) or not grid:
        rule = "must be a table of hyperparameters, such as {'agent.learning_rate': [1e-4, 1e-3]}"
        raise InvalidArgumentError("grid", rule, grid)
    ranges, unused = ranges_of(type(learner)), getattr(learner.agent, "unused", {})
    names = [name for name in traced_names(learner) if name not in unused]
    floats = [f"agent.{name}" for name in names if not ranges[name].whole]
    for name, values in grid.items():
        if name not in floats:
            rule = f"must name float hyperparameters of {fields['agent']} ({', '.join(floats)})"
            raise InvalidArgumentError("grid", rule, {name: values})
        is_list = isinstance(values, list)
        for value in values if is_list else ():
            dataclasses.replace(ranges[name.removeprefix("agent.")], words=()).require(name, value)
        if not is_list or not values or len(set(values)) < len(values):
            raise InvalidArgumentError("grid", f"must list different values of {name}", values)
    count = math.prod(map(len, grid.values())) * len(fields["seeds"])
    if count > _MOST_ITEMS:
        raise InvalidArgumentError("grid", f"must be at most {_MOST_ITEMS:,} trainings", count)
    return {name: [*map(float, values)] for name, values in grid.items()}


def _default_num_devices(fields: Mapping[str, Any], learner: "Learner[Any]", num_envs: int) -> int:
    """Return how many devices are worth training on together."""
    import jax

    if "seeds" in fields:
        return 1
    if jax.process_count() > 1:
        return jax.device_count()
    # Uncompiled, one device does all the work.
    available = 1 if fields.get("compile_mode") == "off" else jax.local_device_count()
    return learner.default_num_devices(num_envs, available)


def _require_devices(fields: Mapping[str, Any], steps: int, num_devices: int) -> None:
    is_uncompiled = fields.get("compile_mode") == "off"
    if num_devices > 1 and ("seeds" in fields or is_uncompiled):
        rule = "must be 1 with seeds, with a grid and with compile_mode = 'off'"
        raise InvalidArgumentError("num_devices", rule, num_devices)
    if is_uncompiled and steps > _MOST_UNCOMPILED_STEPS:
        rule = f"must be at most {_MOST_UNCOMPILED_STEPS:,} with compile_mode = 'off'"
        raise InvalidArgumentError("steps_per_env", rule, steps)


def _chunk_size(chosen: int | None, num_envs: int, steps: int, unit: int) -> int:
    # About a million steps over all environments hide the overhead of a call, and still allow
    # several calls per second, so that the progress moves.
    return min(steps, _whole(chosen or max(1, min(1_000, 1_000_000 // num_envs)), unit))


def _whole(steps: int, unit: int) -> int:
    return -(-steps // unit) * unit


def _flat(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as a file holds them, with options by dotted name.

    A field that is None is left out, since it means that you leave it open. An option that is None
    stays, and so does a `target_return`.
    """
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        owner = name.removesuffix("_options")
        if name not in ("env_options", "agent_options"):
            flat[canonical(name)] = _plain(name, value)
            continue
        if not isinstance(value, Mapping):
            raise InvalidArgumentError(name, "must be a table of names and values", value)
        for option, each in value.items():
            flat[canonical(f"{owner}.{option}")] = _plain(f"{owner}.{option}", each)
    kept = {}
    for name, value in flat.items():
        can_be_none = "." in name or name == "target_return"
        if can_be_none and isinstance(value, str) and value == _NONE:
            kept[name] = None
        elif can_be_none or value is not None:
            kept[name] = value
    return kept


def _plain(name: str, value: Any) -> Any:
    """Return `value`, which the user calls `name`, as a file holds it.

    Scalars of NumPy and JAX become Python's numbers. Their arrays become lists, as tuples and
    ranges do.

    Raises:
        InvalidArgumentError: the value is or holds a long list.
    """
    if isinstance(value, Mapping):
        return {key: _plain(f"{name}.{key}", each) for key, each in value.items()}
    if type(value).__name__ == "Uniform":  # as a file holds it, without importing JAX
        return str(value)
    # NumPy's types have the attributes of an array. What has no numbers is refused later.
    is_array = hasattr(value, "tolist") and not isinstance(value, type)
    if is_array and value.size <= _MOST_ITEMS:
        value = value.tolist()
    if not isinstance(value, list | tuple | range):
        return value
    if len(value) > _MOST_ITEMS:
        raise InvalidArgumentError(name, f"must be at most {_MOST_ITEMS:,} items", len(value))
    return [_plain(name, each) for each in value]
