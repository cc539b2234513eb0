"""Options of environments and agents as a file holds them: numbers, strings, booleans, lists."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from myriad.errors import InvalidArgumentError

# The longest list in a configuration, since people read and compare configurations.
_MOST_ITEMS = 100_000
_PLAIN = (bool, int, float, str, list)


def plain(name: str, value: Any) -> Any:
    """Return `value` as a file holds it.

    Scalars of NumPy and JAX become Python's numbers. Their arrays of one dimension become lists, as
    tuples and ranges do.

    Args:
        name: the user's name of the value, for the message.
        value: any value.

    Raises:
        InvalidArgumentError: the value is or holds an array of several dimensions, or a key.
    """
    if isinstance(value, Mapping):
        owner = name.removesuffix("_options")
        return {key: plain(f"{owner}.{key}", each) for key, each in value.items()}
    # By its name, since a configuration is read without JAX.
    if str(getattr(value, "dtype", "")).startswith("key<"):
        raise InvalidArgumentError(
            name, "must be a number or a list, but got a JAX key: give the seed itself."
        )
    if isinstance(value, type):  # such as numpy.float32, which has the attributes of an array
        return value
    shape = getattr(value, "shape", None)
    is_vector = hasattr(value, "tolist") and shape is not None and len(shape) == 1
    if is_vector or isinstance(value, list | tuple | range):
        if len(value) > _MOST_ITEMS:
            raise InvalidArgumentError(
                name, f"must be a list of at most {_MOST_ITEMS:,} items, but got {len(value):,}."
            )
        return [plain(name, each) for each in value]
    if not hasattr(value, "item"):
        return value
    if shape:
        raise InvalidArgumentError(
            name, f"must be a number or a list, but got an array of shape {shape}."
        )
    return value.item()


def with_tuples(value: Any) -> Any:
    """Turn lists back into tuples, since environments and agents must be hashable."""
    if isinstance(value, Mapping):
        return {name: with_tuples(each) for name, each in value.items()}
    return tuple(map(with_tuples, value)) if isinstance(value, list) else value


def options_of(thing: Any, *, with_none: bool = False) -> dict[str, Any]:
    """Return the fields of a dataclass that a file can hold: no arrays and no nested objects.

    Fields marked as derived are left out, since they follow from other fields or from the machine.

    Args:
        thing: a dataclass: an environment, its parameters, or an agent.
        with_none: also return fields that are None, for which TOML has no word.
    """
    options = {}
    for field in dataclasses.fields(thing):
        value = getattr(thing, field.name)
        if isinstance(value, tuple):
            value = list(value)
        is_shown = isinstance(value, _PLAIN) or (with_none and value is None)
        if is_shown and not field.metadata.get("derived"):
            options[field.name] = value
    return options


def without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out every None, at any depth, since TOML has no word for it."""
    return {
        name: without_none(value) if isinstance(value, dict) else value
        for name, value in table.items()
        if value is not None
    }
