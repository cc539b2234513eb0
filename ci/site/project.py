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
    libraries = _libraries(declared, ours, measured)
    title = libraries[ours].label if ours in declared else name
    address = _commit_url(asv.settings) if asv else ""
    package = ours.replace("-", "_")
    code = package if package and (root / package).is_dir() else "."
    repo = _repo_url(asv.settings) if asv else ""
    folder = f"{repo}/blob/HEAD/" if repo else ""
    pages = (root / "docs").glob("*.md")
    guides = {page.stem: f"{folder}docs/{page.name}" for page in pages}
    return Project(title, ours, libraries, suite.as_posix(), address, code, guides)


def _repo_url(settings: Mapping[str, Any]) -> str:
    """Return the web address of the repository that asv.conf.json names, "" if it has none."""
    repo = str(settings.get("repo") or "").rstrip("/").removesuffix(".git")
    return repo if re.match("https?://", repo) else ""


def _commit_url(settings: Mapping[str, Any]) -> str:
    """Return the address of commits, which asv.conf.json names itself or by its repository."""
    address = str(settings.get("show_commit_url") or "")
    if not address and (repo := _repo_url(settings)):
        address = f"{repo}/commit/"
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
    # The first place is ours, also where nothing says which library that is.
    first = 0 if ours else 1
    found = {}
    for place, name in enumerate(names, first):
        table = declared.get(name, {})
        look = style(
            place,
            colour=table.get("color", ""),
            dark=table.get("dark_color", ""),
            marker=table.get("marker", ""),
            line=table.get("line", ""),
        )
        note = table.get("note", "")
        label = table.get("label", name)
        is_limit = bool(table.get("limit", False))
        package = table.get("package", name)
        found[name] = Library(name, label, look, note, table.get("runs", ""), is_limit, package)
    return found
