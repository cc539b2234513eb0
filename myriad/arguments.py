"""Check the arguments of public functions against their annotations before anything else."""

import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ParamSpec, TypeVar, Union, get_args, get_origin

from myriad.errors import InvalidArgumentError, shown
from myriad.ranges import range_in

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

# How messages call an annotation whose own name says too little.
_NAMES = {
    "bool": "True or False",
    "str": "a string",
    "Path": "a path",
    "Iterable": "a list",
    "Sequence": "a list",
    "Callable": "a function",
    "TrainingConfig": "a TrainingConfig, as create_config builds it",
}


class Like:
    """The members that an object must have: `Annotated[Environment, Like("an env", "reset")]`.

    Args:
        kind: the words for such an object, and where it comes from.
        *members: the attributes that it must have.
    """

    def __init__(self, kind: str, *members: str):
        self.kind = kind
        self.members = members

    def holds(self, value: Any) -> bool:
        """Return whether an object has the members. A class has them too, but doesn't count."""
        return not isinstance(value, type) and all(hasattr(value, name) for name in self.members)


def checked(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Make a function raise InvalidArgumentError if an argument doesn't match its annotation.

    It checks ranges, `Like` and types that `isinstance` understands. None passes if it is the
    default.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def wrapper(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return function(*args, **kwargs)  # Python itself says best which argument is missing.
        for argument, value in given.items():
            parameter = signature.parameters[argument]
            if parameter.kind is parameter.VAR_KEYWORD:
                continue
            if value is not None or parameter.default is not None:
                require(argument, value, parameter.annotation)
        return function(*args, **kwargs)

    return wrapper


def require(name: str, value: Any, annotation: Any) -> None:
    """Raise InvalidArgumentError unless a value matches an annotation."""
    if (declared := range_in(annotation)) is not None:
        declared.require(name, value)
    elif not _fits(value, annotation):
        raise InvalidArgumentError(
            name, f"must be {_described(annotation)}, but got {shown(value)}."
        )


def _fits(value: Any, annotation: Any) -> bool:
    origin = get_origin(annotation)
    if origin is Annotated:
        like = next((each for each in annotation.__metadata__ if isinstance(each, Like)), None)
        return like is None or like.holds(value)
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in get_args(annotation))
    kind = origin or annotation
    if kind is Any or kind is inspect.Parameter.empty or not isinstance(kind, type):
        return True
    if kind is Path:
        return isinstance(value, os.PathLike)
    return isinstance(value, kind)


def _described(annotation: Any) -> str:
    if get_origin(annotation) is Annotated:
        return next(each.kind for each in annotation.__metadata__ if isinstance(each, Like))
    if get_origin(annotation) in (Union, UnionType):
        kinds = [_described(each) for each in get_args(annotation) if each is not NoneType]
        return " or ".join(dict.fromkeys(kinds))
    name = (get_origin(annotation) or annotation).__name__
    return _NAMES.get(name, f"a {name}")
