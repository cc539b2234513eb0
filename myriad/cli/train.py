"""`myriad train`, whose flags are the fields of `TrainingConfig`."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from myriad.cli.flags import (
    NAMES,
    XlaFlags,
    config_flags,
    field_default,
    field_flag,
    hint_of,
    range_of,
    sentences,
    shown_flag,
)
from myriad.errors import InvalidArgumentError, UnknownNameError
from myriad.files import read_text, say
from myriad.ranges import Integer, ranges_of
from myriad.training.config import ResolvedConfig, TrainingConfig, make_config
from myriad.training.options import options_of


@dataclasses.dataclass(frozen=True)
class Train(config_flags(*NAMES), XlaFlags):
    """Train an agent, evaluating on the way.

    Give hyperparameters and environment parameters by dotted name, such as
    --agent.learning-rate 1e-3 or --env.gravity 3.7. To list them with their defaults, name the
    agent and the environment beside --help.
    """

    config: Path | None = None
    """Configuration in TOML, such as a run's config.toml. Other flags win over it."""

    resume: Path | None = None
    """Go on with the run in this folder."""

    run_folder: Path | None = None
    """Folder of the run. By default a new one under runs/."""

    auto_tune: bool = False
    """Have the autotuner choose the chunk size first."""

    quiet: bool = False
    """Show no progress."""

    profile: Annotated[int, Integer(0)] = 0
    """Chunks to trace for Perfetto. The trace is large: its size is printed."""

    options: tyro.conf.Suppress[dict[str, Any]] = dataclasses.field(default_factory=dict)
    """What was given by dotted name."""

    def run(self) -> None:
        """Train, and print what came of it.

        Raises:
            MyriadError: see `train_and_evaluate` and `resume`.
        """
        from myriad.api import resume, train_and_evaluate

        how = {"quiet": self.quiet, "profile_chunks": self.profile}
        if self.resume is None:
            results = train_and_evaluate(self.training(), self.run_folder, **how)
        else:
            given = [*self._given(besides=("resume", "quiet", "profile")), *self.options]
            if given:
                flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
                raise InvalidArgumentError(
                    f"--resume goes on as the run began, so {flags} can't be given."
                )
            results = resume(self.resume, **how)
        last = results.evaluations[-1]
        reached = "; stopped at the target" if results.stopped == "target" else ""
        print(f"return {last['return']:.1f} after {last['steps']:,} steps{reached}")
        timings = results.timings
        speed = "nothing was left to train"
        if timings.train_s:
            speed = f"trained at {timings.steps_per_s:,.0f} steps/s"
        print(f"{speed}, {timings.total_s:.1f} s in all; {results.run_folder}")
        if self.profile:
            self._print_halves(results.config)

    def _print_halves(self, config: TrainingConfig) -> None:
        """Print how an update divides, which a trace of whole chunks doesn't show."""
        from myriad.training.fits import shortage_named
        from myriad.training.halves import collect_share, measure_halves

        try:
            with shortage_named():
                share = collect_share(measure_halves(config.resolve()))
        except InvalidArgumentError as error:
            say(str(error))  # the training itself is done
            return
        print(f"an update: collecting {share:.0%}, learning {1 - share:.0%}, measured apart")

    def training(self) -> TrainingConfig:
        """Return the configuration that the flags and the file describe.

        Raises:
            InvalidArgumentError: the file can't be read, a value can't be used, or the environment
                or the agent is missing.
        """
        from myriad.api import create_config

        given = self._given(besides=("config", "run_folder", "quiet", "profile"))
        fields = {} if self.config is None else _read(self.config, given)
        lengths = ("steps_per_env", "total_steps")
        if any(name in given for name in lengths):
            fields = {name: value for name, value in fields.items() if name not in lengths}
        fields |= given
        for name in ("env", "agent"):
            if name not in fields:
                raise InvalidArgumentError(
                    f"--{name} is missing; `myriad {name}s` lists the names."
                )
        try:
            return create_config(**fields, **self.options)
        except InvalidArgumentError as error:
            raise self._placed(error, fields) from None

    def _placed(
        self, error: InvalidArgumentError, fields: Mapping[str, Any]
    ) -> InvalidArgumentError:
        """Return an error about an option with its place, if that is in the file."""
        unknown = isinstance(error, UnknownNameError)
        subject = error.name if unknown else str(error).partition(" must ")[0]
        owner, _, name = subject.partition(".")
        if self.config is None or name not in fields.get(f"{owner}_options", {}):
            return error
        if subject in self.options:
            return error
        return InvalidArgumentError(
            f"{self.config}: {error.renamed({subject: f'{owner}_options.{name}'})}"
        )

    def _given(self, besides: tuple[str, ...]) -> dict[str, Any]:
        """Return the flags that were set, without those in `besides`."""
        values = {
            field.name: (getattr(self, field.name), field.default)
            for field in dataclasses.fields(self)
            if field.name not in ("options", "without_xla_option", *besides)
        }
        return {name: value for name, (value, default) in values.items() if value != default}


def with_effective_defaults(argv: Sequence[str], options: Mapping[str, Any]) -> Any:
    """Return `Train` for `--help`: with the defaults that this agent has in this environment.

    Args:
        argv: the arguments. `--config`, `--env`, `--agent` and `--preset` are looked at.
        options: those given by dotted name.

    Raises:
        InvalidArgumentError: the file can't be read, or the agent can't act in the environment.
    """
    file = _argument(argv, "--config")
    given = {name: _argument(argv, f"--{name}") for name in ("env", "agent", "preset")}
    fields = {} if file is None else _read(Path(file), given)
    fields |= {name: value for name, value in given.items() if value is not None}
    if not {"env", "agent"} <= fields.keys():
        return Train
    resolved = make_config(**fields, **options).resolve()
    shown = [
        (name, field_flag(name, _hint(name, value)), field_default(name))
        for name, value in resolved.config.model_dump().items()
        if name in NAMES
    ]
    return dataclasses.make_dataclass(
        "Train",
        [*shown, *_options_shown(resolved)],
        bases=(Train,),
        frozen=True,
        namespace={"__doc__": Train.__doc__},
    )


def _hint(name: str, value: Any) -> str:
    declared = range_of(name)
    if value is None:
        return "" if declared is None else str(declared)
    return hint_of(value, declared)


def _options_shown(resolved: ResolvedConfig) -> list[tuple[str, Any, Any]]:
    owners = [
        ("agent", resolved.learner.agent),
        ("env", resolved.env),
        ("env", resolved.env.default_params),
    ]
    flags = []
    for owner, thing in owners:
        described = sentences(type(thing))
        ranges = ranges_of(thing)
        for name, value in (options_of(thing, with_none=True)).items():
            if name in NAMES:
                continue
            flag = shown_flag(
                f"{owner}.{name.replace('_', '-')}",
                value,
                described.get(name, ""),
                ranges.get(name),
            )
            flags.append((f"{owner}_option_{name}", flag, None))
    return flags


def _argument(argv: Sequence[str], flag: str) -> str | None:
    """Return the value of a flag, given as `--flag value` or `--flag=value`."""
    for word, following in zip(argv, [*argv[1:], None], strict=True):
        if word == flag:
            return following
        if word.startswith(f"{flag}="):
            return word.removeprefix(f"{flag}=")
    return None


def _read(file: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """Read a file, which may leave out the environment and the agent if flags name them."""
    named = {name: given[name] for name in ("env", "agent") if given.get(name) is not None}
    config = TrainingConfig.from_toml(read_text(file), file, otherwise=named)
    # What the file leaves open is for a preset to say, or for the agent.
    return config.model_dump(exclude_unset=True)
