"""The registry of measured libraries, as libraries.toml declares them."""

import difflib
import json
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pydantic import TypeAdapter, ValidationError

from benchmarks.harness.workload import Workload


class SuiteError(ValueError):
    """There is a mistake in suite.toml or libraries.toml, or in a request for their contents."""


def validated(kind: Any, tables: Any) -> Any:
    """Read what TOML holds as a kind of declaration."""
    # As JSON, since in Python a strict tuple can't be a list, nor a strict dataclass a table.
    return TypeAdapter(kind).validate_json(json.dumps(tables, default=str))


def mistake_in(path: Path, error: tomllib.TOMLDecodeError | ValidationError) -> SuiteError:
    """Return the first mistake in a file as one sentence."""
    if not isinstance(error, ValidationError):
        return SuiteError(f"{path.name} is not valid TOML: {error}.")
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return SuiteError(f"{path.name}: {where}: {first['msg']}, but got {first['input']!r}.")


@dataclass(frozen=True)
class Library:
    """A library, or a way to run one, and how plots and tables show it.

    Attributes:
        note: a description of what its rows measure.
        dark_color: on a dark page.
        marker, line: as matplotlib writes them.
        label: its text in a legend; empty if that is the name.
        runs: the library behind it; empty if it is a library itself.
        package: the library that it is one way to call; empty if that is its own name.
        ours: whether it is this package.
        trains: whether only whole trainings of it are measured.
        envs: its name for each environment that it has.
        requirements: what pip installs into a virtual environment of its own; empty if it runs in
            ours.
    """

    __pydantic_config__: ClassVar = Workload.__pydantic_config__

    note: str
    color: str
    dark_color: str
    marker: str
    line: str
    label: str = ""
    runs: str = ""
    package: str = ""
    ours: bool = False
    trains: bool = False
    envs: Mapping[str, str] = field(default_factory=dict)
    requirements: tuple[str, ...] = ()


def read_libraries(path: Path) -> Mapping[str, Library]:
    """Read and check the declaration.

    Raises:
        SuiteError: there is a mistake. The message names the file, the table and the key.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        declared = validated(dict[str, Library], tables)
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise mistake_in(path, error) from error
    for name, library in declared.items():
        if library.runs:
            known(library.runs, declared, f"{path.name}: {name}.runs")
    if sum(library.ours for library in declared.values()) != 1:
        raise SuiteError(f"{path.name} must mark exactly one library with ours = true.")
    return declared


def known(name: str, allowed: Iterable[str], kind: str) -> str:
    """Return `name` if it is allowed, else raise a SuiteError with the closest allowed name."""
    allowed = tuple(allowed)
    if name in allowed:
        return name
    close = difflib.get_close_matches(name, allowed, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise SuiteError(f"{kind} {name!r} is unknown; {hint}allowed: {', '.join(allowed) or 'none'}.")


def at_import(read: Callable[[], Any]) -> Any:
    """Read a declaration while a module is imported, where no `main` shows a mistake."""
    try:
        return read()
    except SuiteError as error:
        # A script ends with 2 as for any bad input, and asv and the gate show what they caught.
        print(error, file=sys.stderr)
        end = SystemExit(str(error))
        end.code = 2
        raise end from None


# The libraries by their names in the column `library` of results.
DECLARED: Mapping[str, Library] = at_import(
    lambda: read_libraries(Path(__file__).parents[1] / "libraries.toml")
)
LIBRARIES = tuple(name for name, library in DECLARED.items() if not library.runs)
TRAINERS = tuple(name for name, library in DECLARED.items() if library.trains)
OURS = next(name for name, library in DECLARED.items() if library.ours)


def library_of(name: str) -> str:
    """Return the library behind a name: `gymnax` for `gymnax-configured`.

    An unknown name is its own library, so that plots can show rows of older files.
    """
    return DECLARED[name].runs or name if name in DECLARED else name


def env_id_of(name: str, env: str) -> str:
    """Return a library's name for an environment; empty if it has none."""
    library = DECLARED.get(library_of(name))
    return library.envs.get(env, "") if library else ""
