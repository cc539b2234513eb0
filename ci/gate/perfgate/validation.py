"""Read a TOML table into a model, with the field and the value of each mistake."""

from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from perfgate.errors import UsageError

T = TypeVar("T")


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
        first = min(caught.errors(), key=lambda each: each["type"] == "missing")
        place = ".".join(map(str, first["loc"]))
        said = f"{place}: {first['msg']}, but got {first['input']!r}"
        if first["type"] == "value_error":  # a check of our own, which says the value
            said = f"{place} {first.get('ctx', {}).get('error')}"
        raise UsageError(f"{source}: {said}.") from None
