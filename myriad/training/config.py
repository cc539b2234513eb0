"""The configuration of a training: `TrainingConfig` as you write it, `ResolvedConfig` as it runs.

The command line takes its flags from here, so importing this module doesn't import JAX.
"""

import collections
import contextlib
import dataclasses
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import tomli_w
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from myriad.arguments import checked
from myriad.errors import InvalidArgumentError, UnknownNameError, shown
from myriad.files import parse_toml
from myriad.presets import Preset, load_preset
from myriad.ranges import HOST, INT64, SEED_LIST, Integer, Number, Range, Seed
from myriad.training.options import options_of, plain, with_tuples, without_none

if TYPE_CHECKING:
    from myriad.agents.agent import Learner
    from myriad.envs import Environment

# Fields of the configuration that are also hyperparameters of agents, under the same names.
_SHARED_WITH_AGENT = ("rollout_steps", "buffer_size", "batch_size")
# Evaluations in a training by default: enough for a curve, at a few percent of the training's time.
_EVALUATIONS = 20
# Between two evaluations, updates and each environment's episodes are counted in int32.
_LONGEST_WINDOW = 2**31 - 1
# Pairs of fields that set the same thing: the length, the size of gradient steps, the seed.
SAME = (
    frozenset({"steps_per_env", "total_steps"}),
    frozenset({"batch_size", "agent.num_minibatches"}),
    frozenset({"seed", "seeds"}),
)
# The lengths of a tag that Weights & Biases accepts.
Tag = Annotated[str, Field(min_length=1, max_length=64)]
# Switches and variables are not fields. Each is listed with the field that it sets, for messages.
_BEHIND_SWITCH = {
    "bf16": "agent.compute_dtype to 'bfloat16'",
    "flash_attention": "agent.attention to 'chunked', or to 'cudnn' on a GPU,",
    "compile": "compile_mode to 'aot' or 'off'",
    "torch_compile": "compile_mode to 'aot' or 'off'",
    "optimal_batch_size": "batch_size",
}
# TOML has no null, so a file says None like this.
_NONE = "none"


class TrainingConfig(BaseModel):
    """A training as you describe it. `myriad.create_config` checks it and `resolve` completes it.

    Steps are counted per environment. All environments together do `num_envs` times as many.

    Attributes:
        env: Environment: a name that `myriad envs` lists, or package.module:Name for your own.
        agent: Agent: a name that `myriad agents` lists.
        preset: Preset of the agent, a name that `myriad presets` lists. It sets what you leave
            open.
        num_envs: Environments in parallel. By default the agent's own number.
        steps_per_env: Steps of every environment in the whole training. By default it follows from
            the agent and num_envs.
        total_steps: Steps of all environments together, in place of steps_per_env. Rounded up to
            whole updates.
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
        eval_max_steps: Steps after which an evaluation cuts an episode off.
        target_return: Stop as soon as an evaluation's mean return reaches this. Without it, the
            training runs to its end.
        checkpoint_every_s: Minimum seconds between two checkpoints, each of which follows an
            evaluation. A checkpoint is also saved at the end and at an interrupt.
        monitor_every: Evaluations between two rows of monitor.jsonl, which show where the time
            goes. 0 writes none.
        compile_mode: When programs compile. aot: before the first step. cached: at their first
            call. jit: at their first call, without keeping them for the next run. off: never, for
            debugging at tiny sizes.
        film_every: Evaluations between two films of an episode, saved in the run's folder under
            films. 0 makes none.
        log_to: Trackers that get the metrics in addition to the run's folder: tensorboard, wandb.
        wandb_project: Project in Weights & Biases. By default WANDB_PROJECT, or else myriad.
        wandb_name: Name of the run in Weights & Biases. By default WANDB_NAME, or else the name of
            the run's folder.
        wandb_tags: Tags of the run in Weights & Biases.
        seed: Seed of all random numbers in the run.
        seeds: Seeds to train side by side in one program, in place of seed.
        mapping: How seeds share a device. map: one after another. vmap: side by side. By default
            map on a CPU and vmap elsewhere.
        env_options: Fields of the environment, or of its parameters, that differ from the defaults.
        agent_options: Hyperparameters of the agent that differ from the defaults.
    """

    # TOML and Python's JSON can write infinity. Pydantic would write null, which would be read as
    # the default.
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, ser_json_inf_nan="constants"
    )

    env: str
    agent: str
    preset: str | None = None
    num_envs: Annotated[int | None, Integer(1)] = None
    steps_per_env: Annotated[int | None, Integer(1, INT64)] = None
    total_steps: Annotated[int | None, Integer(1, INT64)] = None
    scan_chunk_size: Annotated[int | None, Integer(1, INT64)] = None
    rollout_steps: Annotated[int | None, Integer(1)] = None
    buffer_size: Annotated[int | None, Integer(1)] = None
    batch_size: Annotated[int | None, Integer(1)] = None
    num_devices: Annotated[int | None, Integer(1, 65_536)] = None
    eval_frequency: Annotated[int | None, Integer(1, INT64)] = None
    eval_rollouts: Annotated[int, Integer(1)] = 32
    eval_max_steps: Annotated[int, Integer(1)] = 10_000
    target_return: Annotated[float | None, Number(*HOST, words=(None,))] = None
    checkpoint_every_s: Annotated[float, Number(0, HOST[1], infinity=True)] = 60.0
    monitor_every: Annotated[int, Integer(0)] = 1
    film_every: Annotated[int, Integer(0)] = 0
    compile_mode: Literal["aot", "cached", "jit", "off"] = "aot"
    log_to: list[str] = Field(default_factory=list, max_length=16)
    wandb_project: Annotated[str | None, Field(min_length=1, max_length=128)] = None
    wandb_name: Annotated[str | None, Field(min_length=1, max_length=128)] = None
    wandb_tags: Annotated[list[Tag], Field(max_length=64)] = Field(default_factory=list)
    seed: Seed = 0
    seeds: Annotated[list[int] | None, SEED_LIST] = None
    mapping: Literal["map", "vmap"] | None = None
    env_options: dict[str, Any] = Field(default_factory=dict)
    agent_options: dict[str, Any] = Field(default_factory=dict)

    @field_validator("*", mode="before")
    @classmethod
    def _in_range(cls, value: Any, info: ValidationInfo) -> Any:
        field = cls.model_fields[str(info.field_name)]
        declared = next((each for each in field.metadata if isinstance(each, Range)), None)
        if declared is not None and (value is not None or field.default is not None):
            declared.require(str(info.field_name), value)
        return value

    @field_validator("target_return", mode="before")
    @classmethod
    def _or_none(cls, value: Any) -> Any:
        return None if value == _NONE else value

    @field_validator("seeds")
    @classmethod
    def _different(cls, seeds: list[int] | None) -> list[int] | None:
        for seed, count in collections.Counter(seeds or ()).items():
            if count > 1:
                raise InvalidArgumentError(
                    "seeds", f"must be different, but {seed} is among them {count} times."
                )
        return seeds

    @field_validator("agent_options", "env_options")
    @classmethod
    def _with_none(cls, options: dict[str, Any]) -> dict[str, Any]:
        return {name: None if value == _NONE else value for name, value in options.items()}

    def to_toml(self) -> str:
        """Write the configuration as TOML.

        An option that is None and a `target_return` of None are written as "none". Other fields
        that are None follow from the rest and are left out.
        """
        table = self.model_dump(mode="json")
        for off in (table["agent_options"], table["env_options"]):
            off |= {name: _NONE for name, value in off.items() if value is None}
        if table["target_return"] is None:
            table["target_return"] = _NONE
        return tomli_w.dumps(without_none(table))

    def named(self) -> set[str]:
        """Return the names of the fields that you gave a value, with options by dotted name."""
        given = {name for name in self.model_fields_set if getattr(self, name) is not None}
        tables = {"env": self.env_options, "agent": self.agent_options}
        dotted = {f"{owner}.{name}" for owner, table in tables.items() for name in table}
        return {*map(canonical, given | dotted)} - {"env_options", "agent_options"}

    def value_of(self, name: str) -> Any:
        """Return a field, or an option by its dotted name."""
        owner, _, option = name.partition(".")
        if not option or canonical(name) == option:
            return getattr(self, option or name)
        return getattr(self, f"{owner}_options")[option]

    @classmethod
    @checked
    def from_toml(
        cls,
        text: str,
        file: Path | None = None,
        *,
        otherwise: Mapping[str, Any] | None = None,
        trust: bool = False,
    ) -> Self:
        """Read a configuration that `to_toml` or a person wrote.

        Args:
            text: the configuration.
            file: where it comes from, for error messages.
            otherwise: values of fields that the text leaves out.
            trust: whether the file may name code to import, as `module:Class`.

        Raises:
            InvalidArgumentError: the text is not TOML, or not a configuration, or it comes from a
                file that names code to import, and you don't trust it.
        """
        try:
            config = _checked(cls, {**(otherwise or {}), **_parsed(text)})
            return config if file is None or trust else _without_code(config, otherwise or {})
        except InvalidArgumentError as error:
            if file is None:
                raise
            raise InvalidArgumentError(f"{file}: {error}") from error

    @checked
    def with_seeds(self, seeds: Iterable[int]) -> Self:
        """Return the same training with these seeds side by side.

        Raises:
            InvalidArgumentError: the seeds are not different 64-bit integers.
        """
        fields = self.model_dump(exclude_unset=True) | {"seeds": plain("seeds", [*seeds])}
        return _checked(type(self), fields)

    def of_seed(self, seed: int) -> Self:
        """Return the training of one of the seeds alone."""
        return self.model_copy(update={"seed": seed, "seeds": None, "mapping": None})

    def from_preset(self) -> dict[str, Any]:
        """Return the fields that the preset sets and you leave open, with options by dotted name.

        Raises:
            UnknownNameError: the agent has no such preset.
            InvalidArgumentError: the preset is for another agent or environment, or its file is
                damaged.
        """
        if self.preset is None:
            return {}
        given = self.named() | ({"target_return"} & self.model_fields_set)
        given = given.union(*(names for names in SAME if given & names))
        fields = {canonical(name): value for name, value in self._preset().fields.items()}
        return {name: value for name, value in fields.items() if name not in given}

    def tunes(self) -> bool:
        """Return whether the preset lets the autotuner choose the chunk, and you leave it open."""
        return self.preset is not None and self._preset().auto_tune and not self.scan_chunk_size

    def _preset(self) -> Preset:
        from myriad.agents import AGENTS
        from myriad.envs import ENVIRONMENTS

        assert self.preset is not None
        env = self.env if ":" in self.env else ENVIRONMENTS.resolve(self.env)
        return load_preset(self.preset, AGENTS.resolve(self.agent), env)

    def _filled_in(self, missing: Mapping[str, Any]) -> "ResolvedConfig":
        """Resolve the configuration with these values from its preset."""
        fields = self.model_dump(exclude_unset=True) | {"preset": None}
        for name, value in missing.items():
            _set(fields, name, value)
        whose = f" of preset {self.preset!r}"
        names = {name: f"{name}{whose}" for name in missing}
        # Some errors name an option without its owner.
        names |= {name.rpartition(".")[2]: f"{name}{whose}" for name in missing}
        try:
            return _checked(type(self), fields).resolve()
        except UnknownNameError as error:
            if error.name in missing or error.name.partition(".")[2] in missing:
                raise InvalidArgumentError(f"preset {self.preset!r}: {error}") from None
            raise
        except InvalidArgumentError as error:
            raise error.renamed(names) from None

    @contextlib.contextmanager
    def _options_named(self, owner: str) -> Iterator[None]:
        """Make errors call an option by its dotted name, as you gave it."""
        table = self.env_options if owner == "env" else self.agent_options
        try:
            yield
        except InvalidArgumentError as error:
            raise error.renamed({name: f"{owner}.{name}" for name in table}) from None

    def _one_seed(self) -> int:
        """Return the seed, or the first of several seeds."""
        if self.seeds is None or self.seed in self.seeds:
            return self.seed
        if "seed" in self.model_fields_set:
            raise InvalidArgumentError(
                "seed",
                f"must be among the seeds, if both are given, but got {self.seed} and "
                f"{shown(self.seeds)}.",
            )
        return self.seeds[0]

    def resolve(self) -> "ResolvedConfig":
        """Build the environment and the agent, and fill in every default that follows from them.

        Raises:
            UnknownNameError: there is no such environment, agent or option.
            InvalidArgumentError: an option can't be used, the agent can't act in this environment,
                or it can't learn from so many environments.
        """
        from myriad.agents import default_num_envs, make_learner
        from myriad.envs import make_env

        if missing := self.from_preset():
            return self._filled_in(missing)
        self._require_one_length()
        seed = self._one_seed()
        with self._options_named("env"):
            env = make_env(self.env, **with_tuples(self.env_options))
        shared = {name: getattr(self, name) for name in _SHARED_WITH_AGENT}
        options = without_none(shared) | with_tuples(self.agent_options)
        num_envs = self.num_envs or default_num_envs(self.agent)
        asked = self.total_steps or (self.steps_per_env and self.steps_per_env * num_envs)
        with self._options_named("agent"):
            learner = make_learner(self.agent, env, num_envs, asked, **options)
        self._require_devices(learner, num_envs)
        unit = learner.steps_per_update
        total_steps = self.total_steps or learner.default_total_steps(num_envs)
        steps = _whole(self.steps_per_env or -(-total_steps // num_envs), unit)
        if steps * num_envs > INT64:
            raise InvalidArgumentError(
                f"steps_per_env x num_envs must be at most {INT64:,}, but is {steps * num_envs:,}."
            )
        window = self.eval_frequency or -(-steps // _EVALUATIONS)
        eval_frequency = min(steps, _whole(min(window, _LONGEST_WINDOW), unit))
        # About a million steps over all environments hide the overhead of a call, and still allow
        # several calls per second, so that the progress moves.
        default_chunk = max(1, min(1_000, 1_000_000 // num_envs))
        untuned = min(steps, _whole(default_chunk, unit))
        chunk = min(steps, _whole(self.scan_chunk_size or untuned, unit))
        filled = {
            "num_envs": num_envs,
            "steps_per_env": steps,
            "total_steps": None,
            "preset": None,
            # `num_minibatches` says it for an on-policy agent.
            "batch_size": None,
            "seed": seed,
            "eval_frequency": eval_frequency,
            "scan_chunk_size": chunk,
        }
        return ResolvedConfig(
            config=self.model_copy(update=filled | _filled_options(self, env, learner)),
            env=env,
            learner=learner,
            num_envs=num_envs,
            steps_per_env=steps,
            eval_frequency=eval_frequency,
            scan_chunk_size=chunk,
            untuned_chunk_size=untuned,
        )

    def _require_devices(self, learner: "Learner[Any]", num_envs: int) -> None:
        """Raise InvalidArgumentError if so many devices can't train together."""
        from myriad.agents.agent import learner_of_device

        num_devices = self.num_devices or 1
        for name, needed, given in (
            ("seeds", "left out", self.seeds),
            ("compile_mode", "aot, cached or jit", self.compile_mode == "off" and "off"),
        ):
            if given and num_devices > 1:
                raise InvalidArgumentError(
                    name,
                    f"must be {needed} with num_devices = {num_devices}, but got {shown(given)}.",
                )
        learner_of_device(learner, num_envs, num_devices)

    def _require_one_length(self) -> None:
        if self.steps_per_env is not None and self.total_steps is not None:
            raise InvalidArgumentError(
                "steps_per_env and total_steps say the same, so only one of them can be given, "
                f"but got {self.steps_per_env} and {self.total_steps}."
            )


@dataclasses.dataclass(frozen=True)
class ResolvedConfig:
    """A training as it runs, with every default filled in and the environment and agent built.

    `TrainingConfig.resolve` makes it. An agent learns in updates of `steps_per_update` steps.
    The length of a training, of a chunk and of the window between two evaluations is rounded up to
    whole updates. No chunk or window is longer than the training.

    Attributes:
        config: the configuration with every default filled in. A run's `config.toml` holds it, and
            it resolves to this object again.
        env: the environment.
        learner: the agent, or a fixed policy that takes a learner's place.
        num_envs: environments in parallel.
        steps_per_env: steps of every environment in the whole training.
        eval_frequency: steps of every environment between two evaluations.
        scan_chunk_size: steps of every environment in one compiled call.
        untuned_chunk_size: the `scan_chunk_size` of a configuration that leaves it open.
    """

    config: TrainingConfig
    env: "Environment" = dataclasses.field(compare=False)
    learner: "Learner[Any]" = dataclasses.field(compare=False)
    num_envs: int
    steps_per_env: int
    eval_frequency: int
    scan_chunk_size: int
    untuned_chunk_size: int

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

    def num_devices(self) -> int:
        """Return how many devices train together."""
        import jax

        if self.config.num_devices is not None:
            return self.config.num_devices
        if jax.process_count() > 1:
            return jax.device_count()
        # Uncompiled, one device does all the work.
        available = 1 if self.config.compile_mode == "off" else jax.local_device_count()
        return self.learner.default_num_devices(self.num_envs, available)

    def with_devices(self) -> "ResolvedConfig":
        """Return the same training with the number of its devices filled in."""
        config = self.config.model_copy(update={"num_devices": self.num_devices()})
        return dataclasses.replace(self, config=config)

    def compiled_first(self) -> "ResolvedConfig":
        """Return the same training with programs that compile before the first step."""
        config = self.config.model_copy(update={"compile_mode": "aot"})
        return dataclasses.replace(self, config=config)

    def logged_as(self, names: Mapping[str, str | None]) -> "ResolvedConfig":
        """Return the same training, with its names in Weights & Biases filled in.

        Args:
            names: values of `project` and `name` that are used if the training sets none; None for
                a name that nobody set.

        Raises:
            InvalidArgumentError: a name is too long.
        """
        if "wandb" not in self.config.log_to:
            return self
        given = {f"wandb_{name}": value for name, value in names.items() if value is not None}
        fields = given | without_none(self.config.model_dump(exclude_unset=True))
        return dataclasses.replace(self, config=_checked(TrainingConfig, fields))

    def with_chunk(self, scan_chunk_size: int) -> "ResolvedConfig":
        """Return the same training with this chunk size, rounded up to whole updates."""
        chunk = min(self.steps_per_env, _whole(scan_chunk_size, self.learner.steps_per_update))
        config = self.config.model_copy(update={"scan_chunk_size": chunk})
        return dataclasses.replace(self, config=config, scan_chunk_size=chunk)


def make_config(
    env: str,
    agent: str,
    num_envs: int | None = None,
    steps_per_env: int | None = None,
    scan_chunk_size: int | None = None,
    **overrides: Any,
) -> TrainingConfig:
    """Describe a training, as `myriad.create_config` does but without the autotuner.

    The arguments are the fields of `TrainingConfig`, and options by dotted name, such as
    `"agent.learning_rate"` or `"env.gravity"`.

    Raises:
        UnknownNameError: there is no such environment, agent or field.
        InvalidArgumentError: a value can't be used, or the agent can't act in the environment.

    Example:
        >>> config = make_config("cartpole-control", "ppo", **{"agent.learning_rate": 1e-3})
        >>> config.agent_options
        {'learning_rate': 0.001}
    """
    fields: dict[str, Any] = {
        "env": env,
        "agent": agent,
        "num_envs": num_envs,
        "steps_per_env": steps_per_env,
        "scan_chunk_size": scan_chunk_size,
    }
    for table in ("env_options", "agent_options"):
        options = overrides.pop(table, {})
        if not isinstance(options, Mapping):
            raise InvalidArgumentError(
                table, f"must be a table of names and values, but got {shown(options)}."
            )
        fields[table] = dict(options)
    for name, value in overrides.items():
        _set(fields, name, value)
    known = [name for name in TrainingConfig.model_fields if not name.endswith("_options")]
    config = _checked(
        TrainingConfig,
        {name: plain(name, value) for name, value in fields.items()},
        [*known, "agent.<hyperparameter>", "env.<parameter>"],
    )
    # Resolve it now, to report a mistake in the options here and not when the training starts.
    config.resolve()
    return config


def _without_code(config: Any, given: Container[str]) -> Any:
    """Return a file's configuration, and refuse names of code to import that are not given."""
    from myriad.envs import ADAPTERS

    names = {"env": config.env, "agent": config.agent}
    names["agent_options.network"] = config.agent_options.get("network")
    if config.env.startswith(ADAPTERS):
        del names["env"]
    for field, name in names.items():
        if field not in given:
            require_no_code(field, name)
    return config


def require_values(where: str, settings: Iterable[tuple[str, Any, Any, str]]) -> None:
    """Raise InvalidArgumentError unless each setting has the value that it needs.

    Args:
        where: the rest of the sentence, such as "with many seeds".
        settings: of each its name, its value, the value that it needs, and the reason.
    """
    for name, value, needed, reason in settings:
        if value != needed:
            raise InvalidArgumentError(
                name, f"must be {needed!r} {where}, since {reason}, but got {shown(value)}."
            )


def require_no_code(field: str, name: object) -> None:
    """Refuse a name from a file that would import code, which has the form `module:Class`."""
    if isinstance(name, str) and ":" in name:
        raise InvalidArgumentError(
            f"{field} {shown(name)} would be imported, which runs its code; "
            "if you trust it, add --trust (in Python trust=True)."
        )


def canonical(name: str) -> str:
    """Return the field's name for an option of the agent that is also a field."""
    option = name.removeprefix("agent.")
    return option if option in _SHARED_WITH_AGENT else name


def _set(fields: dict[str, Any], name: str, value: Any) -> None:
    """Set a field, or an option by its dotted name."""
    table, _, option = name.partition(".")
    if option and table in ("env", "agent"):
        fields.setdefault(f"{table}_options", {})[option] = value
    else:
        fields[name] = value


def _filled_options(
    config: TrainingConfig, env: "Environment", learner: "Learner[Any]"
) -> dict[str, Any]:
    """Return the configuration's options with the defaults of environment and agent filled in."""
    of_env = options_of(env, with_none=True) | options_of(env.default_params, with_none=True)
    of_agent = options_of(learner.agent, with_none=True)
    shared = {name: of_agent.pop(name) for name in _SHARED_WITH_AGENT if name in of_agent}
    chosen = {
        name: value
        for name, value in config.agent_options.items()
        if name not in _SHARED_WITH_AGENT
    }
    # Keep all options that you chose: an adapter may hold one where no field shows it.
    return shared | {
        "env_options": config.env_options | of_env,
        "agent_options": chosen | of_agent,
    }


def _parsed(text: str) -> dict[str, Any]:
    try:
        return parse_toml(text)
    except ValueError as error:
        # The last match is the place. Before it, the message may quote a key that says "line 9".
        places = re.findall(r"line (\d+),? column", str(error))
        line = text.split("\n")[int(places[-1]) - 1].rstrip("\r") if places else ""
        shows = f"; the line is {shown(line)}" if line else ""
        raise InvalidArgumentError(f"the configuration is not TOML: {error}{shows}.") from None
    except RecursionError:
        raise InvalidArgumentError("the configuration is nested too deeply.") from None


def _checked(cls: Any, fields: Mapping[str, Any], known: Sequence[str] = ()) -> Any:
    """Build the configuration, and turn pydantic's report of a mistake into one sentence.

    Args:
        cls: the class of the configuration.
        fields: the values of its fields.
        known: the names to suggest for an unknown one; by default those of a file.
    """
    if not isinstance(fields, Mapping):
        raise InvalidArgumentError(
            f"the configuration must be a table of names and values, but got {shown(fields)}."
        )
    for name in fields:
        if name in cls.model_fields:
            continue
        if (setting := str(name).lower().removeprefix("use_")) in _BEHIND_SWITCH:
            raise InvalidArgumentError(
                f"{name} is not a field of a training: set {_BEHIND_SWITCH[setting]} instead."
            )
        raise UnknownNameError("field", name, known or cls.model_fields)
    try:
        return cls(**fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if isinstance(refused := first.get("ctx", {}).get("error"), InvalidArgumentError):
            raise refused from None
        name = ".".join(str(part) for part in first["loc"])
        if first["type"] == "missing":
            raise InvalidArgumentError(
                f"the configuration has no {name}; `myriad {name}s` lists the names."
            ) from None
        says = re.sub(r"^\w+ should", "must", first["msg"]).partition(" after validation")[0]
        raise InvalidArgumentError(name, f"{says}, but got {shown(first['input'])}.") from None


def _whole(steps: int, unit: int) -> int:
    return -(-steps // unit) * unit
