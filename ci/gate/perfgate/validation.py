"""Read a TOML table into a model, with one-sentence errors. `config` calls it."""

from collections.abc import Sequence
from typing import Any, TypeVar, get_args

from pydantic import TypeAdapter, ValidationError

from perfgate.errors import UsageError, closest

T = TypeVar("T")
Place = Sequence[str | int]
_UNKNOWN = "unexpected_keyword_argument"

# The right value, by pydantic's name of the mistake or by that name's first word.
_WANTED = {
    "bool": "true or false",
    "dataclass": "a table",
    "date": "a day such as 2030-01-31",
    "finite": "a finite number",
    "float": "a number",
    "greater_than": "above {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "int": "a whole number",
    "less_than": "below {lt:g}",
    "literal_error": "one of {expected}",
    "string": "text in quotes",
}


def validated(model: type[T], table: dict[str, Any], source: str) -> T:
    """Return the table as a pydantic dataclass.

    Args:
        model: a dataclass whose fields are values, dataclasses or tuples of dataclasses.
        table: the table as read.
        source: the file's name, for the error.

    Raises:
        UsageError: the table has a mistake.
    """
    try:
        return TypeAdapter(model).validate_python(table)
    except ValidationError as caught:
        # A misspelt key also causes a missing one, but the misspelt name says more.
        mistakes = sorted(caught.errors(), key=lambda each: each["type"] != _UNKNOWN)
        raise UsageError(f"{source}: {_sentence(mistakes[0], model)}") from None


def _sentence(mistake: Any, model: Any) -> str:
    """Say where the mistake is, which value was given and what is right."""
    kind = mistake["type"]
    *above, last = mistake["loc"]
    where = _written(mistake["loc"])
    context = mistake.get("ctx", {})
    if kind == "missing":
        return f"{_written(above)} lacks the key {last!r}."
    if kind == _UNKNOWN:
        subject = f"{_written(above)}: the key" if above else "the key"
        return f"{subject} {last!r} is unknown; {closest(last, sorted(_keys(model, above)))}"
    if kind == "tuple_type":
        return f"{where} must be a list of tables, [[{last}]]."
    if kind == "value_error":
        # An error of a whole table begins with one of its keys.
        is_table = bool(_keys(model, mistake["loc"]))
        return f"{where}{'.' if is_table else ' '}{context['error']}."
    wanted = _WANTED.get(kind) or _WANTED[kind.split("_")[0]]
    return f"{where} must be {wanted.format(**context)}, but got {mistake['input']!r}."


def _written(place: Place) -> str:
    """Write a place with indices that start at 1: `metric 3.tolerance`."""
    words = [f" {part + 1}" if isinstance(part, int) else f".{part}" for part in place]
    return "".join(words).lstrip(".")


def _keys(model: Any, place: Place) -> list[str]:
    """Return the keys of the table at this place, or none if it is not a table."""
    kind = model
    for part in place:
        is_key = isinstance(part, str)
        kind = kind.__pydantic_fields__[part].annotation if is_key else get_args(kind)[0]
    return list(getattr(kind, "__pydantic_fields__", ()))
