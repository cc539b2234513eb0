"""Flags made from the fields of a class. Their help comes from the class's docstring."""

import dataclasses
import inspect
import re
import tomllib
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import tyro

from myriad.errors import InvalidArgumentError
from myriad.ranges import Range, Seed, range_in
from myriad.training.config import TrainingConfig

_FIELDS = {field.name: field for field in dataclasses.fields(TrainingConfig)}
del _FIELDS["given"]  # It is no setting.
# The two tables of options have no flag: you give each option by its dotted name.
NAMES = [name for name in _FIELDS if not name.endswith("_options")]


def toml_value(text: str) -> Any:
    """Read a value as TOML does. Anything that TOML can't read is a string."""
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return table["value"] if len(table) == 1 else text


def assignments(metavar: str, read: Callable[[str], Any]) -> Any:
    """Make tyro read words NAME=TEXT as a table of what `read` returns for each text."""

    def table_of(words: list[str]) -> dict[str, Any]:
        parts = (word.partition("=") for word in words)
        return {name.replace("-", "_"): read(text) for name, _, text in parts}

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs="*",
        metavar=f"{metavar} [{metavar} ...]",
        instance_from_str=table_of,
        is_instance=lambda value: True,
        str_from_instance=lambda value: [str(value)],
    )


@dataclasses.dataclass(frozen=True)
class XlaFlags:
    """Flags of every command, for the options that XLA starts with."""

    without_xla_option: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]],
        tyro.conf.arg(metavar="NAME", help_behavior_hint=""),
    ] = dataclasses.field(default=(), kw_only=True)
    """Leave out one of XLA's options that Myriad sets. You can give it more than once."""


@dataclasses.dataclass(frozen=True)
class AgentFlags(XlaFlags):
    """Flags of every command that loads the trained agent of a run."""

    train_seed: Seed | None = dataclasses.field(default=None, kw_only=True)
    """Seed of the training, in a run of many seeds."""

    point: Annotated[
        Any,
        assignments("NAME=VALUE", toml_value),
        tyro.conf.arg(help_behavior_hint=""),
    ] = dataclasses.field(default=None, kw_only=True)
    """Hyperparameters of the training, in a run of a grid, such as agent.learning_rate=1e-3."""

    best: bool = dataclasses.field(default=False, kw_only=True)
    """Take the agent of the best evaluation so far, not the newest."""

    trust: bool = dataclasses.field(default=False, kw_only=True)
    """Import code that the run names as module:Class."""

    def load(self, run_folder: Path) -> tuple[TrainingConfig, Any, Any]:
        """Return what `load_agent` returns. Errors name its arguments as flags."""
        from myriad.api import load_agent

        try:
            return load_agent(
                run_folder, self.train_seed, point=self.point, best=self.best, trust=self.trust
            )
        except InvalidArgumentError as error:
            names = {"seed": "--train-seed", "point": "--point", "best": "--best"}
            raise error.renamed(names) from None


def sentences(kind: type) -> dict[str, str]:
    """Return the sentences of the `Attributes:` sections of a class and its bases, by attribute.

    There are none if Python dropped the docstrings.
    """
    lines: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        section = re.search(
            r"^Attributes:\n(.*?)(?=^\S|\Z)",
            inspect.cleandoc(each.__doc__ or ""),
            re.MULTILINE | re.DOTALL,
        )
        if section is not None:
            entries = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", section[1], re.MULTILINE)
            lines |= {name: " ".join(text.split()) for name, text in entries}
    return {name: line[:1].upper() + line[1:] for name, line in lines.items()}


def config_flags(*names: str) -> Any:
    """Return a dataclass with a flag for each of these fields of `TrainingConfig`.

    The value of a flag that you don't give is None. `make_config` checks the others.
    """
    flags = [(name, field_flag(name, _FIELDS[name].default), None) for name in names]
    return dataclasses.make_dataclass("ConfigFlags", flags, frozen=True)


def field_flag(name: str, default: Any) -> Any:
    """Return the type of the flag for a field of `TrainingConfig`, and show this default."""
    if name == "grid":
        words = assignments("NAME=VALUE,...", lambda text: [*map(toml_value, text.split(","))])
        shown = tyro.conf.arg(help=_SENTENCES.get(name, ""), help_behavior_hint="")
        return Annotated[Any, words, shown]
    declared = range_in(_FIELDS[name].type)
    kind = _bare(_FIELDS[name].type)
    is_list = get_origin(kind) is list
    item = _bare(get_args(kind)[0]) if is_list else kind
    choices = get_args(item)
    metavar = f"{{{','.join(choices)}}}" if choices else item.__name__.upper()
    shown = tyro.conf.arg(
        help=_SENTENCES.get(name, ""),
        metavar=f"[{metavar} [{metavar} ...]]" if is_list else metavar,
        help_behavior_hint=hint_of(default, declared),
    )
    return Annotated[(tuple[item, ...] if is_list else kind) | None, shown]


def _bare(kind: Any) -> Any:
    """Return a type without None and what annotates it."""
    if get_origin(kind) is Annotated:
        return _bare(get_args(kind)[0])
    if get_origin(kind) in (Union, types.UnionType):
        (kind,) = (each for each in get_args(kind) if each is not types.NoneType)
    return kind


def option_flag(
    name: str, default: Any = None, sentence: str = "", declared: Range | None = None
) -> Any:
    """Return the type of the flag for an option by its dotted name. Its value is read as TOML."""
    metavar = "VALUE" if default is None else type(default).__name__.upper()
    value = tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: toml_value(words[0]),
        is_instance=lambda value: True,
        str_from_instance=lambda value: [str(value)],
    )
    hint = hint_of(str(default), declared)
    shown = tyro.conf.arg(name=name.replace("_", "-"), help=sentence, help_behavior_hint=hint)
    return Annotated[Any, value, shown]


def table(rows: Sequence[Sequence[str]], align: Callable[[str, int], str] = str.ljust) -> str:
    """Return rows of cells as lines, with aligned columns, such as by `str.rjust`."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(align, row, widths)).rstrip() for row in rows)
    return "\n".join(lines)


def refuse_flags(command: Any, names: Sequence[str], why: str) -> None:
    """Refuse flags that would be ignored. One that has its default passes."""
    defaults = {field.name: field.default for field in dataclasses.fields(command)}
    given = [name for name in names if getattr(command, name) != defaults[name]]
    if given:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise InvalidArgumentError(f"{flags} can't be given {why}.")


def hint_of(default: Any, declared: Range | None) -> str:
    """Return a default, if there is one, and a range as `--help` shows them."""
    parts = []
    if default is not None and default is not dataclasses.MISSING:
        parts.append(f"(default: {default})")
    if declared is not None:
        allowed = str(declared)
        parts.append(f"{allowed[0].upper()}{allowed[1:]}.")
    return " ".join(parts)


_SENTENCES = sentences(TrainingConfig)
