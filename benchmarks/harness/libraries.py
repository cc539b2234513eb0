"""Who is measured, as libraries.toml declares it: names, labels, notes and looks.

Standard library only: a peer's process imports this in a Python that lacks Myriad.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

LIBRARIES_FILE = Path(__file__).parents[1] / "libraries.toml"


@dataclass(frozen=True)
class Library:
    """A library, or a way to run one, and how plots and tables show it.

    Attributes:
        note: what its rows measure.
        color: on a white page.
        dark_color: on a dark page.
        marker: of its points, as matplotlib writes it.
        line: of its lines, as matplotlib writes it.
        label: what a legend says; empty where it is the name.
        runs: the library behind it; empty where it is one itself.
        ours: whether it is this package.
        trains: whether only its whole trainings are measured.
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


def _read(path: Path) -> Mapping[str, Library]:
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    return {name: Library(**table) for name, table in tables.items()}


# By the name that a row of results has in its column `library`.
DECLARED = _read(LIBRARIES_FILE)
SIDES = tuple(DECLARED)
LIBRARIES = tuple(name for name, library in DECLARED.items() if not library.runs)
TRAINERS = tuple(name for name, library in DECLARED.items() if library.trains)
OURS = next(name for name, library in DECLARED.items() if library.ours)


def library_of(side: str) -> str:
    """Return the library behind a side: `gymnax` for `gymnax-configured`.

    An unknown name is its own library, so that plots can show rows of older files.
    """
    return DECLARED[side].runs or side if side in DECLARED else side
