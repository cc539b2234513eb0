"""The measured libraries, as declared in libraries.toml: names, labels, notes and looks.

Standard library only: a peer's process imports this in a Python that lacks Myriad.
"""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

LIBRARIES_FILE = Path(__file__).parents[1] / "libraries.toml"
_KINDS = {str: "a text", bool: "true or false"}


class SuiteError(ValueError):
    """There is a mistake in suite.toml or libraries.toml, or in a request for their contents."""


@dataclass(frozen=True)
class Library:
    """A library, or a way to run one, and how plots and tables show it.

    Attributes:
        note: a description of what its rows measure.
        color: on a white page.
        dark_color: on a dark page.
        marker: of its points, as matplotlib writes it.
        line: of its lines, as matplotlib writes it.
        label: its text in a legend; empty if that is the name.
        runs: the library behind it; empty if it is a library itself.
        ours: whether it is this package.
        trains: whether only whole trainings of it are measured.
        in_title: whether a plot's title may compare with it.
    """

    note: str
    color: str
    dark_color: str
    marker: str
    line: str
    label: str = ""
    runs: str = ""
    ours: bool = False
    trains: bool = False
    in_title: bool = False


def read_libraries(path: Path) -> Mapping[str, Library]:
    """Read and check the declaration.

    Raises:
        SuiteError: there is a mistake. The message names the file, the table and the key.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise SuiteError(f"{path.name} is not valid TOML: {error}.") from error
    declared = {name: _library(f"{path.name}: {name}", table) for name, table in tables.items()}
    for name, library in declared.items():
        if library.runs:
            known(library.runs, declared, f"{path.name}: {name}.runs")
    if sum(library.ours for library in declared.values()) != 1:
        raise SuiteError(f"{path.name} must mark exactly one library with ours = true.")
    return declared


def _library(where: str, table: Any) -> Library:
    if not isinstance(table, dict):
        raise SuiteError(f"{where} must be a table, but got {table!r}.")
    keys = {key.name: key for key in fields(Library)}
    for name, value in table.items():
        kind: Any = keys[known(name, keys, f"{where}: key")].type
        if not isinstance(value, kind):
            raise SuiteError(f"{where}.{name} must be {_KINDS[kind]}, but got {value!r}.")
    for name, key in keys.items():
        if name not in table and key.default is MISSING:
            raise SuiteError(f"{where} lacks the key {name!r}.")
    return Library(**table)


def known(name: str, allowed: Iterable[str], kind: str) -> str:
    """Return `name` if it is allowed, else raise a SuiteError with the closest allowed name."""
    allowed = tuple(allowed)
    if name in allowed:
        return name
    close = difflib.get_close_matches(name, allowed, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise SuiteError(f"{kind} {name!r} is unknown; {hint}allowed: {', '.join(allowed) or 'none'}.")


# The libraries by their names in the column `library` of results.
DECLARED = read_libraries(LIBRARIES_FILE)
SIDES = tuple(DECLARED)
LIBRARIES = tuple(name for name, library in DECLARED.items() if not library.runs)
TRAINERS = tuple(name for name, library in DECLARED.items() if library.trains)
OURS = next(name for name, library in DECLARED.items() if library.ours)


def library_of(side: str) -> str:
    """Return the library behind a side: `gymnax` for `gymnax-configured`.

    An unknown name is its own library, so that plots can show rows of older files.
    """
    return DECLARED[side].runs or side if side in DECLARED else side
