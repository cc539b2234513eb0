"""Names for things that users choose by name. A registry holds strings and imports what they name on first use."""

import importlib
from collections.abc import Mapping
from typing import Any

from myriad.errors import InvalidArgumentError, UnknownNameError


class Registry:
    """A table from names and aliases to `module:attribute` targets.

    Example:
        >>> colours = Registry("colour", {"red": "fractions:Fraction"}, aliases={"rouge": "red"})
        >>> colours.load("rouge").__name__
        'Fraction'
    """

    def __init__(self, kind: str, targets: Mapping[str, str], aliases: Mapping[str, str] | None = None):
        self.kind = kind
        self._targets: dict[str, Any] = dict(targets)
        self._aliases = dict(aliases or {})

    def names(self) -> list[str]:
        """Return the registered names, sorted, without aliases."""
        return sorted(self._targets)

    def resolve(self, name: str) -> str:
        """Return the registered name behind `name`, which may be an alias.

        Raises:
            UnknownNameError: nothing of this name is registered; the message holds the closest one.
        """
        name = self._aliases.get(name, name)
        if name not in self._targets:
            raise UnknownNameError(self.kind, name, self._targets)
        return name

    def load(self, name: str) -> Any:
        """Return what `name` stands for, importing its module where that has not happened yet."""
        target = self._targets[self.resolve(name)]
        if not isinstance(target, str):
            return target
        module, _, attribute = target.partition(":")
        return getattr(importlib.import_module(module), attribute)

    def add(self, name: str, target: Any) -> None:
        """Register `target`, an object or a `module:attribute` string, under a name that is not yet taken."""
        if name in self._targets or name in self._aliases:
            raise InvalidArgumentError(f"{self.kind} {name!r} is already registered; choose another name.")
        self._targets[name] = target
