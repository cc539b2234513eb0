"""The flags that describe a training, and what they come to with a file and the settings.

`myriad train` and `myriad doctor` take them. A flag overrides the file of `--config`, which
overrides variables and `.env`.
"""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from myriad.cli.flags import (
    NAMES,
    XlaFlags,
    config_flags,
    field_flag,
    hint_of,
    option_flag,
    sentences,
)
from myriad.errors import InvalidArgumentError, UnknownNameError
from myriad.files import read_text
from myriad.ranges import ranges_of
from myriad.settings import Settings
from myriad.training.config import (
    FIELDS,
    SAME,
    TOTAL_STEPS,
    TrainingConfig,
    canonical,
    make_config,
    options_of,
    read_fields,
)

# A flag with a positive and a negative form. Without either, `.env` or a file may say it.
Switch = Annotated[bool, tyro.conf.arg(help_behavior_hint="")]
# Of each switch the field of a training that it sets, the values of that field, and what an agent
# must have for it.
_SWITCHES: dict[str, tuple[str, dict[bool, str], str]] = {
    "batch_size": ("batch_size", {}, "batches to learn from"),
    "compile": ("compile_mode", {True: "aot", False: "cached"}, ""),
    "bf16": ("agent.compute_dtype", {True: "bfloat16", False: "float32"}, "a network"),
    # `auto` is cuDNN's kernel where a GPU has it for the dtype, which a later layer may set.
    "flash_attention": ("agent.attention", {True: "auto", False: "xla"}, "the network attention"),
}
_SWITCH_OF = {field: switch for switch, (field, _, _) in _SWITCHES.items()}


@dataclasses.dataclass(frozen=True)
class TrainingFlags(XlaFlags, config_flags(*NAMES)):
    """The flags that describe a training."""

    preset: Annotated[str | None, tyro.conf.arg(metavar="STR", help_behavior_hint="")] = None
    """Preset of the agent, a name that `myriad presets` lists. It sets what you leave open."""

    total_steps: Annotated[
        int | None, tyro.conf.arg(metavar="INT", help_behavior_hint=hint_of(None, TOTAL_STEPS))
    ] = None
    """Steps of all environments together, in place of steps_per_env.
    Rounded up to whole updates."""

    config: Path | None = None
    """Configuration in TOML, such as a run's config.toml. Other flags override it."""

    trust: bool = False
    """Import code that the file of --config or the resumed run names as module:Class."""

    compile: Switch = True
    """Compile programs before the first step.
    --no-compile compiles each at its first call. --compile-mode off never compiles."""

    flash_attention: Switch = False
    """Compute attention by cuDNN's kernel where a GPU has it.
    --no-flash-attention chooses XLA's."""

    bf16: Switch = False
    """Compute networks in bfloat16. --no-bf16 chooses float32."""

    wandb: Switch = False
    """Log to Weights & Biases. --no-wandb takes it out of log_to."""

    auto_tune: Switch = False
    """Let the autotuner choose the chunk size first.
    --no-auto-tune stops a preset from doing that."""

    options: tyro.conf.Suppress[dict[str, Any]] = dataclasses.field(default_factory=dict)
    """The options given by dotted name."""

    given: tyro.conf.Suppress[dict[str, str]] = dataclasses.field(default_factory=dict)
    """The flags that were given, as you wrote them, by name. `--no-compile` is one of `compile`."""

    def described(self) -> tuple[TrainingConfig, dict[str, str]]:
        """Return the training that flags, file and settings describe, and the sources of `fields`.

        Raises:
            InvalidArgumentError: see `fields`, or a value can't be used.
        """
        from myriad.api import create_config

        fields, sources = self.fields()
        auto_tune = self.auto_tune if "auto_tune" in self.given else None
        return create_config(**fields, auto_tune=auto_tune), sources

    def fields(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the fields of a training that flags, file and settings give.

        Returns:
            the values, and where each was set, both keyed as in `TrainingConfig.given`. A setting
            that the agent has no use for has a source but no value.

        Raises:
            InvalidArgumentError: the file or a setting can't be read, the environment or the agent
                is missing, or the agent has no use for a flag.
        """
        of_file, flags = self._of_file_and_flags()
        known = of_file | flags
        for name in ("env", "agent"):
            if name not in known:
                raise InvalidArgumentError(f"--{name} is missing; see `myriad {name}s`.")
        agent, network = known["agent"], known.get("agent.network")
        on = {name: getattr(self, name) for name in _SWITCHES if name in self.given}
        switched, useless = fields_of(on, agent, network)
        for name in useless:
            says = f"{self.given[name]} is for agents with {_SWITCHES[name][2]}."
            raise InvalidArgumentError(says)
        switched.pop("batch_size", None)  # It is a flag of a field as well.
        if twice := switched.keys() & flags.keys():
            name = min(twice)
            both = f"{self.given[_SWITCH_OF[name]]} and {self.given[name]}"
            raise InvalidArgumentError(f"{both} say the same; give one of them.")
        settings = Settings.read()
        # A setting of `.env` may be meant for trainings with another network, so it is not refused.
        of_settings, useless = fields_of(vars(settings), agent, network)
        layers = [
            (of_settings, {name: settings.sources[_SWITCH_OF[name]] for name in of_settings}),
            (of_file, dict.fromkeys(of_file, str(self.config))),
            (switched, {name: self.given[_SWITCH_OF[name]] for name in switched}),
            (flags, {name: f"--{name.replace('_', '-')}" for name in flags}),
        ]
        fields, sources = _merged(layers)
        for name in useless:
            if _SWITCHES[name][0] not in fields:
                sources[_SWITCHES[name][0]] = settings.sources[name]
        if sources.get("batch_size") in settings.sources.values():
            # Its rows may suit another agent or other sizes.
            try:
                make_config(**fields)
            except InvalidArgumentError as error:
                if error.field == "batch_size":
                    del fields["batch_size"]
        self._add_wandb(fields, sources, settings)
        return fields, sources

    def _add_wandb(
        self, fields: dict[str, Any], sources: dict[str, str], settings: Settings
    ) -> None:
        """Add or remove Weights & Biases, and name its run as the settings do."""
        if "wandb" in self.given:
            others = [name for name in fields.get("log_to") or () if name != "wandb"]
            fields["log_to"] = [*others, "wandb"] if self.wandb else others
            sources["log_to"] = self.given["wandb"]
        names = [name for name in NAMES if name.startswith("wandb_")]
        if "wandb" not in (fields.get("log_to") or ()):
            if useless := [name for name in names if name in self.given]:
                raise InvalidArgumentError(f"{self.given[useless[0]]} needs --wandb as well.")
            return
        for name in names:
            if name in settings.sources and name not in fields:
                fields[name] = getattr(settings, name)
                sources[name] = settings.sources[name]

    def _of_file_and_flags(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the fields that the file gives and those that flags give, options dotted."""
        flags = {name: getattr(self, name) for name in FIELDS if name in self.given}
        flags |= {canonical(name): value for name, value in self.options.items()}
        if self.config is None:
            return {}, flags
        text = read_text(self.config)
        try:
            # Names of code that flags replace need no trust.
            of_file = read_fields(text, trust=self.trust, known=flags)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{self.config}: {error}") from error
        return _for_env(of_file, flags), flags

    def with_effective_defaults(self) -> type:
        """Return the class for `--help`, with the defaults of the training that flags describe.

        Raises:
            InvalidArgumentError: see `described`.
        """
        from myriad.envs.wrappers import Wrapper

        kind = type(self)
        of_file, flags = self._of_file_and_flags()
        if not {"env", "agent"} <= of_file.keys() | flags.keys():
            return kind
        config = make_config(**self.fields()[0])
        shown = [(name, field_flag(name, getattr(config, name)), None) for name in NAMES]
        envs: list[Any] = [config.environment]
        while isinstance(envs[-1], Wrapper):
            envs.append(envs[-1].env)
        owners = [("agent", config.learner.agent)]
        owners += [("env", each) for each in (*envs, config.environment.default_params)]
        for owner, thing in owners:
            described = sentences(type(thing))
            ranges = ranges_of(thing)
            # As they are written: a schedule, or the range of what each reset draws.
            chosen = getattr(config, f"{owner}_options")
            for name, value in options_of(thing).items():
                if name in NAMES:
                    continue
                default, sentence = chosen.get(name, value), described.get(name, "")
                flag = option_flag(f"{owner}.{name}", default, sentence, ranges.get(name))
                shown.append((f"{owner}_option_{name}", flag, None))
        return dataclasses.make_dataclass(
            kind.__name__, shown, bases=(kind,), frozen=True, namespace={"__doc__": kind.__doc__}
        )


def fields_of(
    switches: Mapping[str, Any], agent: str, network: str | None
) -> tuple[dict[str, Any], list[str]]:
    """Return the fields of a training that switches set, with options by dotted name.

    `switches` has values by the names of `Settings`, of which others are passed over.

    Returns:
        the fields, and the switches that are on although the agent has no use for them. Turning
        off what it doesn't have changes nothing.
    """
    from myriad.agents import AGENTS

    switches = {k: switches[k] for k in _SWITCHES if switches.get(k) is not None}
    if not switches:  # Importing the agent takes long, and `make_config` first checks other names.
        return {}, []
    options = {field.name for field in dataclasses.fields(AGENTS.load(agent))}
    useful = {
        "batch_size": bool(options & {"batch_size", "num_minibatches"}),
        "compile": True,
        "bf16": "compute_dtype" in options,
        "flash_attention": "attention" in options and network == "attention",
    }
    fields = {}
    for name, value in switches.items():
        if useful[name]:
            field, values, _ = _SWITCHES[name]
            fields[field] = values.get(value, value)
    return fields, [name for name, value in switches.items() if value and not useful[name]]


def _merged(
    layers: Sequence[tuple[dict[str, Any], dict[str, str]]],
) -> tuple[dict[str, Any], dict[str, str]]:
    """Merge layers of values and sources. Later layers override earlier ones."""
    fields: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for values, of_values in layers:
        for names in SAME:
            if names & values.keys():
                for name in names & fields.keys():
                    del fields[name], sources[name]
        fields |= values
        sources |= of_values
    return fields, sources


def _for_env(of_file: dict[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Drop the parameters of a file's environment, if flags choose another environment."""
    from myriad.envs import ENVIRONMENTS

    before, now = (str(fields.get("env", "")) for fields in (of_file, {**of_file, **flags}))
    with contextlib.suppress(UnknownNameError):  # An unknown name is refused later.
        if before == now or ENVIRONMENTS.resolve(before) == ENVIRONMENTS.resolve(now):
            return of_file
    return {name: value for name, value in of_file.items() if not name.startswith("env.")}
