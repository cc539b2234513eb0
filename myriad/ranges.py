"""The range of every number that you can set, declared in the annotation of its field or argument.

The command line, TOML files and Python all use the same check. A field that declares no range, as
in your own environment, is not checked. `checked` has a public function check all its arguments.
"""

import dataclasses
import functools
import inspect
import math
import sys
from collections.abc import Callable
from numbers import Integral, Real
from types import UnionType
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, cast, get_args, get_origin

from myriad.errors import InvalidArgumentError

__all__ = ["Integer", "Number"]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

INT32 = 2**31 - 1
INT64 = 2**63 - 1
# Devices compute in float32, in which smaller numbers are 0 and larger ones infinite.
_SMALLEST, _LARGEST = 2.0**-126, 3.4028234663852886e38


@dataclasses.dataclass(frozen=True, repr=False)
class Range:
    """The values that a number may have, as in `Annotated[float, Number(0)]`.

    `Integer` and `Number` make it.

    Attributes:
        least: the least value.
        most: the greatest value.
        whole: only integers.
        positive: 0 is not in the range, nor any number that float32 rounds to 0.
        infinity: infinity is allowed and means no limit.
        words: other allowed values, such as None for off.
        items: the fewest and the most items, if it is a list of such numbers.
        arrays: an array of such numbers is allowed in place of the number.

    Example:
        >>> Integer(1, 8).require("num_envs", 9)
        Traceback (most recent call last):
        ...
        myriad.errors.InvalidArgumentError: num_envs must be an integer from 1 to 8, but got 9.
    """

    least: float
    most: float
    whole: bool = False
    positive: bool = False
    infinity: bool = False
    words: tuple[str | None, ...] = ()
    items: tuple[int, int] | None = None
    arrays: bool = False

    def require(self, name: str, value: Any) -> None:
        """Raise unless a value is in the range. A traced value is not known yet, so it passes.

        Args:
            name: the name by which you gave it.
            value: anything.

        Raises:
            InvalidArgumentError: it isn't in the range. The message names the value and the range.
        """
        is_word = (value is None or isinstance(value, str)) and value in self.words
        jax: Any = sys.modules.get("jax")  # If anything is traced, JAX is loaded.
        if is_word or (jax is not None and isinstance(value, jax.core.Tracer)):
            return
        if self.items is None:
            fits = self._holds(value)
        else:
            few, many = self.items
            is_list = isinstance(value, tuple | list | range) and few <= len(value) <= many
            fits = is_list and all(self._holds(each) for each in cast(Any, value))
        if not fits:
            raise InvalidArgumentError(name, f"must be {self}", value)

    def __str__(self) -> str:
        """Describe the range."""
        if self.items is not None:
            few, many = self.items
            return (
                f"a list of {few:,} to {many:,} items, each {dataclasses.replace(self, items=None)}"
            )
        others = ["None" if word is None else repr(word) for word in self.words]
        numbers = f"{self._numbers()}, infinity too" if self.infinity else self._numbers()
        return " or ".join([", ".join([numbers, *others[:-1]]), *others[-1:]])

    # What `help` shows of an argument.
    __repr__ = __str__

    def _numbers(self) -> str:
        if (self.least, self.most) == (-(2**63), INT64):
            return "an integer from -2**63 to 2**63 - 1"
        if self.whole:
            return f"an integer from {self.least:,} to {self.most:,}"
        if self.most < _LARGEST:
            least = "above 0 and at most" if self.positive else f"from {self.least:,g} to"
            return f"a number {least} {self.most:,g}"
        finite = "a number" if self.infinity else "a finite number"
        if self.least <= -_LARGEST:
            return finite
        least = "above 0" if self.positive else f"of at least {self.least:g}"
        return f"{finite} {least}"

    def _holds(self, value: Any) -> bool:
        # NumPy's booleans have the attributes of its numbers, and JAX's keys those of arrays.
        if isinstance(value, type) or "key" in str(getattr(value, "dtype", "")):
            return False
        if getattr(value, "shape", ()):
            is_numbers = hasattr(value, "min") and value.size > 0 and value.dtype.kind in "iuf"
            is_allowed = self.arrays and is_numbers
            return is_allowed and self._holds(value.min()) and self._holds(value.max())
        if hasattr(value, "item") and (self.arrays or not self.whole):
            value = value.item()
        kind: Any = Integral if self.whole else Real
        if isinstance(value, bool) or not isinstance(value, kind):
            return False
        # JAX refuses a large Python integer, even for an array of floats.
        is_on_device = not self.whole and self.most <= _LARGEST
        if is_on_device and isinstance(value, int) and abs(value) > INT32:
            return False
        if self.infinity and value == math.inf:
            return True
        return (_SMALLEST if self.positive else self.least) <= value <= self.most


def Integer(least: int, most: int = INT32, **others: Any) -> Range:  # noqa: N802 (as a type)
    """Return the range of an integer, or of the integers in a list. `others` are as in `Range`."""
    return Range(least, most, whole=True, **others)


def Number(least: float = -_LARGEST, most: float = _LARGEST, **others: Any) -> Range:  # noqa: N802
    """Return the range of a number. Numbers that float32 can't hold are outside."""
    return Range(0 if others.get("positive") else least, most, **others)


# Numbers that stay on the host need not fit into float32.
HOST = (-sys.float_info.max, sys.float_info.max)

# Ranges that several modules declare.
SEEDS = Integer(-(2**63), INT64)
Seed = Annotated[int, SEEDS]
# As many seeds as a configuration may list.
SEED_LIST = Integer(-(2**63), INT64, items=(1, 100_000))
NumSeeds = Annotated[int | None, Integer(1, 100_000)]
Bytes = Annotated[int, Integer(0, INT64)]
Seconds = Annotated[float, Number(0, infinity=True)]
VideoSteps = Annotated[int, Integer(1, 100_000)]
FramesPerSecond = Annotated[int, Integer(1, 1_000)]


def range_in(annotation: Any) -> Range | None:
    """Return the range that an annotation declares, if it declares one."""
    parts: Any = getattr(annotation, "__metadata__", ())
    if get_origin(annotation) in (Union, UnionType):
        parts = map(range_in, get_args(annotation))
    found = [each for each in parts if isinstance(each, Range)]
    return found[0] if len(found) == 1 else None


def ranges_of(kind: Any) -> dict[str, Range]:
    """Return the ranges that a dataclass declares, by the names of their fields."""
    # An environment of your own may be any object.
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    return {each.name: found for each in fields if (found := range_in(each.type)) is not None}


def require_ranges(instance: Any) -> None:
    """Raise InvalidArgumentError unless a dataclass has the ranges and the words that it declares.

    None passes if it is the field's default.
    """
    for field in dataclasses.fields(instance) if dataclasses.is_dataclass(instance) else ():
        is_word = field.type is str or get_origin(field.type) is Literal
        value = getattr(instance, field.name)
        if (is_word or range_in(field.type)) and (value is not None or field.default is not None):
            require(field.name, value, field.type)


class Like:
    """The members that an object must have: `Annotated[Environment, Like("an env", "reset")]`.

    Args:
        kind: the words for such an object, and where it comes from.
        *members: the attributes that it must have.
    """

    def __init__(self, kind: str, *members: str):
        self.kind = kind
        self.members = members

    def __repr__(self) -> str:
        return self.kind

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import PydanticCustomError, core_schema

        def like(value: Any) -> Any:
            if not self.holds(value):
                raise PydanticCustomError("like", "Input should be {kind}", {"kind": self.kind})
            return value

        return core_schema.no_info_plain_validator_function(like)

    def holds(self, value: Any) -> bool:
        """Return whether an object has the members. A class has them, too, but is none."""
        return not isinstance(value, type) and all(hasattr(value, name) for name in self.members)


def checked(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Make a function raise InvalidArgumentError if an argument doesn't match its annotation.

    Ranges are checked here, and all else by pydantic. None passes if it is the default.
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
    """Raise InvalidArgumentError unless a value matches an annotation, strictly as in pydantic."""
    if (declared := range_in(annotation)) is not None:
        declared.require(name, value)
        return
    is_unknown = annotation is inspect.Parameter.empty or isinstance(annotation, str)
    if is_unknown or _surely_fits(value, annotation):
        return
    from pydantic import ValidationError

    try:
        _adapter(annotation).validate_python(value, strict=True)
    except ValidationError as error:
        says = dict.fromkeys(each["msg"] for each in error.errors(include_url=False))
        raise InvalidArgumentError(name, f"is refused: {'; '.join(says)}", value) from None


def _surely_fits(value: Any, annotation: Any) -> bool:
    """Tell what needs no pydantic, whose import made a first step take 17% longer."""
    parts = get_args(annotation)
    if get_origin(annotation) in (Union, UnionType):
        return any(_surely_fits(value, each) for each in parts)
    if get_origin(annotation) is Annotated:
        return any(isinstance(each, Like) and each.holds(value) for each in annotation.__metadata__)
    if get_origin(annotation) is Literal:
        return isinstance(value, str) and value in parts
    return annotation is Any or type(value) is annotation


@functools.cache
def _adapter(annotation: Any) -> Any:
    from pydantic import PydanticUserError, TypeAdapter

    try:
        return TypeAdapter(annotation, config={"arbitrary_types_allowed": True})
    except PydanticUserError:  # A dataclass may have a configuration of its own.
        return TypeAdapter(annotation)
