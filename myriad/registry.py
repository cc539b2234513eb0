"""Registries of things that you choose by name, whose targets are imported on first use."""

import importlib
from collections.abc import Mapping
from numbers import Integral
from typing import Any

from myriad.errors import InvalidArgumentError, UnknownNameError, shown
from myriad.ranges import require


class Registry:
    """A table from names and aliases to `module:attribute` targets.

    Args:
        kind: the word for a target in messages.
        targets: the `module:attribute` of each name.
        aliases: other names, and the name that each stands for.
        member: the field or method that a target must have. It must then be a dataclass.

    Example:
        >>> colours = Registry("colour", {"red": "fractions:Fraction"}, aliases={"rouge": "red"})
        >>> colours.load("rouge").__name__
        'Fraction'
    """

    def __init__(
        self,
        kind: str,
        targets: Mapping[str, str],
        aliases: Mapping[str, str] | None = None,
        *,
        member: str | None = None,
    ):
        self.kind = kind
        self._member = member
        self._targets: dict[str, Any] = dict(targets)
        self._aliases = dict(aliases or {})
        self._built_in = {*self._targets, *self._aliases}

    def names(self) -> list[str]:
        """Return the registered names, sorted, without aliases."""
        return sorted(self._targets)

    def resolve(self, name: str) -> str:
        """Return the registered name of an alias. `module:attribute` stands for itself.

        Raises:
            UnknownNameError: the name is not registered. The message suggests the closest one.
        """
        if ":" in name:
            return name
        name = self._aliases.get(name, name)
        if name not in self._targets:
            known = [*self._targets, "your_module:YourClass"]
            raise UnknownNameError(self.kind, name, known, self._aliases)
        return name

    def name_of(self, target: type) -> str | None:
        """Return the registered name of a class, or None."""
        path = f"{target.__module__}:{target.__qualname__}"
        return next((name for name, each in self._targets.items() if each in (target, path)), None)

    def load(self, name: str) -> Any:
        """Return the target of `name`, and import its module if that has not happened yet.

        A `name` that is not registered but has the form `module:attribute` is imported.

        Raises:
            UnknownNameError: the name is not registered.
            InvalidArgumentError: the module of `module:attribute` can't be imported, lacks the
                attribute, or the target lacks the member.
        """
        target = self._import(name) if ":" in name else self._targets[self.resolve(name)]
        if isinstance(target, str):
            module, _, attribute = target.partition(":")
            target = getattr(importlib.import_module(module), attribute)
        fields = getattr(target, "__dataclass_fields__", None)
        if self._member is None or (
            isinstance(target, type)
            and fields is not None
            and (self._member in fields or hasattr(target, self._member))
        ):
            return target
        rule = f"must be a dataclass with {self._member}"
        raise InvalidArgumentError(f"{self.kind} {shown(name)}", rule, target)

    def add(self, name: str, target: Any) -> Any:
        """Register `target`, an object or a `module:attribute` string, and return it.

        If you register a name again, as a notebook cell that runs twice does, the new target
        replaces the old one. Names that came with the registry can't be replaced.

        Raises:
            InvalidArgumentError: the name is empty, holds a colon, or came with the registry.
        """
        if not name.strip() or ":" in name or name in self._built_in:
            rule = "must be a new one without a colon"
            raise InvalidArgumentError(f"the name of an {self.kind}", rule, name)
        self._targets[name] = target
        return target

    def _import(self, name: str) -> Any:
        module, _, attribute = name.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, ValueError, TypeError) as error:
            # The console script, unlike `python -m myriad`, doesn't look into the current folder.
            absent = isinstance(error, ModuleNotFoundError) and error.name == module.split(".")[0]
            hint = "; if its file is in this folder, set PYTHONPATH=." if absent else ""
            kind = type(error).__name__
            says = f"{self.kind} {shown(name)} can't be imported: {kind}: {error}{hint}"
            raise InvalidArgumentError(says) from error


def check_overrides(owner: str, defaults: Mapping[str, Any], overrides: Mapping[str, Any]) -> None:
    """Refuse values that don't fit the fields of `owner`. If a default is None, any value fits.

    Fields that declare a range have None here, since `require_ranges` checks them.

    Raises:
        UnknownNameError: `owner` has no such field.
        InvalidArgumentError: a value is of another kind than the default.
    """
    for name, value in overrides.items():
        if name not in defaults:
            raise UnknownNameError("field", name, defaults, owner=owner)
        kind: Any = type(defaults[name])
        is_array = kind in (int, float) and hasattr(value, "dtype")
        if kind in (bool, int, float, str, tuple, list) and not is_array:
            require(name, value, tuple | list if kind in (tuple, list) else kind)


def refuse_unused(thing: Any, defaults: Mapping[str, Any], overrides: Mapping[str, Any]) -> None:
    """Refuse values that would change nothing. A value that equals the default passes.

    So does an array, since it may be traced. `unused` of an environment or an agent maps each field
    without effect to the reason.

    Raises:
        InvalidArgumentError: a value has no effect.
    """
    for name, reason in getattr(thing, "unused", {}).items():
        value = overrides.get(name, defaults[name])
        if not hasattr(value, "dtype") and value != defaults[name]:
            rule = f"must be {shown(defaults[name])} {reason}, where it has no effect"
            raise InvalidArgumentError(name, rule, value)


def is_integer(value: Any) -> bool:
    """Return whether `value` is an integer of Python or NumPy. True and False are not."""
    return isinstance(value, Integral) and not isinstance(value, bool)
