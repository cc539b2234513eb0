"""The repository whose results are shown: its name, and how to show each library it is compared to.

Nothing here is required. `asv.conf.json` and `pyproject.toml` name the project. The tables
`[<library>]` of `<benchmark_dir>/libraries.toml` say how the site shows a library.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ci.site.palette import Style, style
from perfgate.errors import UsageError
from perfgate.files import read_toml
from perfgate.source.asv_config import read_config


@dataclass(frozen=True)
class Library:
    """How the site shows a library.

    Attributes:
        name: what the rows' column `library` says.
        label: what the pages call it.
        style: the look of its line.
        note: what a reader must know of its figures.
        variant_of: the library that it is under other options, if it is one.
        is_limit: whether it stands for what the machine itself can do, and is no library.
        package: what a reader installs, of which this is one way to call it.
    """

    name: str
    label: str
    style: Style
    note: str = ""
    variant_of: str = ""
    is_limit: bool = False
    package: str = ""


@dataclass(frozen=True)
class Project:
    """The repository whose results are shown.

    Attributes:
        title: what the pages call it.
        ours: the library that every ratio compares with the others, "" where nothing says which.
        libraries: the declared libraries and those of the results, ours first.
        suite: the folder of benchmarks.
        commit_url: the address to which a commit is added, "" where the configuration has none.
        code: the folder of the code that is measured.
        guides: where each page of the documentation's source is: its address, or its path.
    """

    title: str
    ours: str = ""
    libraries: Mapping[str, Library] = field(default_factory=dict)
    suite: str = "benchmarks"
    commit_url: str = ""
    code: str = "."
    guides: Mapping[str, str] = field(default_factory=dict)

    def order(self, names: Iterable[str]) -> list[str]:
        """Return each of the names once, as a legend lists them: ours first."""
        found = set(names)
        return [name for name in self.libraries if name in found]


def read_project(root: Path, measured: Iterable[str]) -> Project:
    """Return what the repository at `root` says of itself; `measured` are the results' libraries.

    Raises:
        UsageError: one of its files has a mistake.
    """
    config = root / "asv.conf.json"
    asv = read_config(config, root) if config.is_file() else None
    settings = asv.settings if asv else {}
    pyproject_file = root / "pyproject.toml"
    tables = read_toml(pyproject_file) if pyproject_file.is_file() else {}
    pyproject = tables.get("project", {})
    name = (asv.project if asv else "") or pyproject.get("name", "") or root.resolve().name
    suite = asv.benchmark_dir if asv else Path("benchmarks")
    declared = _declared(root / suite / "libraries.toml")
    ours = next((each for each, table in declared.items() if table.get("ours")), "")
    if not ours:
        # As package indexes compare names.
        alike = {each.lower().replace("_", "-"): each for each in sorted(measured)}
        ours = alike.get(name.lower().replace("_", "-"), "")
    package = ours.replace("-", "_")
    repo = _web(str(settings.get("repo") or "").rstrip("/").removesuffix(".git"))
    folder = f"{repo}/blob/HEAD/" if repo else ""
    return Project(
        title=declared[ours].get("label", ours) if ours in declared else name,
        ours=ours,
        libraries=_libraries(declared, ours, measured),
        suite=suite.as_posix(),
        commit_url=_web(str(settings.get("show_commit_url") or (repo and f"{repo}/commit/"))),
        code=package if package and (root / package).is_dir() else ".",
        guides={page.stem: f"{folder}docs/{page.name}" for page in (root / "docs").glob("*.md")},
    )


def _web(address: str) -> str:
    """Return an address of the web, and "" for any other, such as a script."""
    return address if re.match("https?://", address) else ""


def _declared(path: Path) -> dict[str, dict[str, Any]]:
    tables = read_toml(path) if path.is_file() else {}
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise UsageError(f"{path}: {name} must be a table, but got {table!r}.")
        for key in ("color", "dark_color"):
            colour = table.get(key, "")
            if colour and not re.fullmatch(r"#[0-9A-Fa-f]{6}", str(colour)):
                problem = f"{name}.{key} must be #RRGGBB, but got {colour!r}"
                raise UsageError(f"{path}: {problem}.")
    return tables


def _libraries(
    declared: Mapping[str, Mapping[str, Any]], ours: str, measured: Iterable[str]
) -> dict[str, Library]:
    """Return ours, then the declared libraries in their order, then the others by name."""
    others = sorted(set(measured) - set(declared))
    names = dict.fromkeys([*filter(None, [ours]), *declared, *others])
    found = {}
    # The first place is ours, also where nothing says which library that is.
    for place, name in enumerate(names, 0 if ours else 1):
        table = declared.get(name, {})
        found[name] = Library(
            name,
            label=table.get("label", name),
            style=style(place, table),
            note=table.get("note", ""),
            variant_of=table.get("runs", ""),
            is_limit=bool(table.get("limit", False)),
            package=table.get("package", name),
        )
    return found
