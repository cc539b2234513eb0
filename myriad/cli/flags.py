"""Flags made from the fields of a class. Their help comes from the class's docstring."""

import dataclasses
import inspect
import re
import types
from typing import Annotated, Any, Union, get_args, get_origin

import tyro

from myriad.ranges import Range, range_in
from myriad.training.config import TrainingConfig

# The two tables of options have no flag: you give each option by its dotted name.
_FIELDS = {field.name: field for field in dataclasses.fields(TrainingConfig)}
NAMES = [name for name in _FIELDS if not name.endswith("_options")]


@dataclasses.dataclass(frozen=True)
class XlaFlags:
    """Flags of every command, for the options that XLA starts with."""

    without_xla_option: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]],
        tyro.conf.arg(metavar="NAME", help_behavior_hint=""),
    ] = dataclasses.field(default=(), kw_only=True)
    """Leave out one of XLA's options that Myriad sets. You can give it more than once."""


def sentences(kind: type) -> dict[str, str]:
    """Return the sentences of a class's `Attributes:` section by attribute name.

    There are none if Python dropped the docstrings.
    """
    docstring = inspect.getdoc(kind) or ""
    section = re.search(r"^Attributes:\n(.*?)(?=^\S|\Z)", docstring, re.MULTILINE | re.DOTALL)
    if section is None:
        return {}
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", section[1], re.MULTILINE)
    lines = {name: _unbroken(" ".join(text.split())) for name, text in entries}
    return {name: line[:1].upper() + line[1:] for name, line in lines.items()}


def config_flags(*names: str) -> Any:
    """Return a dataclass with a flag for each of these fields of `TrainingConfig`."""
    fields = [(name, field_flag(name), field_default(name)) for name in names]
    return dataclasses.make_dataclass("ConfigFlags", fields, frozen=True)


def field_flag(name: str, hint: str | None = None) -> Any:
    """Return the type of the flag for a field of `TrainingConfig`, with its sentence.

    The flag's own default is None, which means that you didn't give the field.

    Args:
        name: the field's name.
        hint: the text that `--help` shows after the sentence; by default the field's own default.
    """
    kind = _given_type(_FIELDS[name].type)
    declared = range_of(name)
    if get_origin(kind) is list:
        (item,) = get_args(kind)
        items: Any = tuple[item, ...]
        if field_default(name) is None:
            items = items | None
        return Annotated[
            items,
            tyro.conf.arg(help=_sentence(name), help_behavior_hint=hint_of(None, declared)),
            declared,
        ]
    return Annotated[
        kind | None,
        tyro.conf.arg(
            help=_sentence(name),
            metavar=kind.__name__.upper(),
            help_behavior_hint=_own_hint(name) if hint is None else hint,
        ),
        declared,
    ]


def field_default(name: str) -> Any:
    """Return the value of a flag that you didn't give."""
    return () if _FIELDS[name].default_factory is list else None


def shown_flag(name: str, value: Any, sentence: str, declared: Range | None) -> Any:
    """Return the type of a flag that `--help` shows and `parse` takes out beforehand."""
    metavar = "VALUE" if value is None else type(value).__name__.upper()
    return Annotated[
        str | None,
        tyro.conf.arg(
            name=name,
            help=sentence,
            metavar=metavar,
            help_behavior_hint=hint_of(str(value), declared),
        ),
    ]


def range_of(name: str) -> Range | None:
    """Return the range of a field of `TrainingConfig`."""
    return range_in(_FIELDS[name].type)


def hint_of(value: Any, declared: Range | None) -> str:
    """Return a default, unless it is None, and a range as `--help` shows them."""
    parts = []
    if value is not None:
        parts.append(f"(default: {value})")
    if declared is not None:
        allowed = _unbroken(str(declared))
        parts.append(f"{allowed[0].upper()}{allowed[1:]}.")
    return " ".join(parts)


def _unbroken(text: str) -> str:
    """Leave the commas out of numbers, since tyro breaks lines there."""
    return re.sub(r"(?<=\d),(?=\d)", "", text)


def _own_hint(name: str) -> str:
    default = _FIELDS[name].default
    return hint_of(None if default is dataclasses.MISSING else default, range_of(name))


def _given_type(annotation: Any) -> Any:
    """Return a field's type without its range and None."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, types.UnionType):
        (kind,) = (each for each in get_args(annotation) if each is not types.NoneType)
        return kind
    return annotation


def _sentence(name: str) -> str:
    return _SENTENCES.get(name, "")


_SENTENCES = sentences(TrainingConfig)
