"""Read asv.conf.json, which is JSON with comments and trailing commas."""

import json
import re
import reprlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfgate.errors import UsageError
from perfgate.files import read_text

_STRING = r'("(?:\\.|[^"\\])*")'
# the keys of a matrix; asv's old form has only requirements and no keys
KINDS = ("req", "env", "env_nobuild")
_MOST_S = 1e9  # a longer wait is an error of the system


@dataclass(frozen=True)
class SuiteConfig:
    """The settings of an asv.conf.json that the gate uses.

    Attributes:
        folder: the file's folder, relative to the repository's root.
        benchmark_dir: the suite's folder, relative to `folder`.
        package_dir: the package's root, relative to the repository's root.
        matrix: asv's matrix as written.
        extras: the package's extras that asv's install_command installs.
        timeout_s: seconds a benchmark may take unless it says otherwise.
        project: the project's name.
        python: the interpreter that has what the suite imports; asv has no such setting.
        settings: the contents of the whole file.
    """

    folder: Path
    benchmark_dir: Path
    package_dir: Path = Path()
    matrix: Any = None
    extras: tuple[str, ...] = ()
    timeout_s: float = 60.0
    project: str = ""
    python: str = sys.executable
    settings: Mapping[str, Any] = field(default_factory=dict)

    def values(self, kind: str) -> dict[str, list[str | None]]:
        """Return the matrix's values under `req`, `env` or `env_nobuild`, by name.

        A requirement without a version has the value "". A value of None means that the name is
        left out.
        """
        matrix = self.matrix or {}
        is_old_form = not any(name in matrix for name in KINDS)
        table = matrix if is_old_form and kind == "req" else matrix.get(kind) or {}
        found = {}
        for name, values in table.items():
            listed = values if isinstance(values, list) else [values]
            found[name] = [None if each is None else str(each) for each in listed] or [""]
        return found

    @property
    def requirements(self) -> list[str]:
        """The first version of each requirement in the matrix, in pip's syntax."""
        first = {
            name.removeprefix("pip+"): values[0] for name, values in self.values("req").items()
        }
        return [
            f"{name}=={version}" if version[:1].isalnum() else f"{name}{version}"
            for name, version in first.items()
            if version is not None
        ]

    @property
    def environment(self) -> dict[str, str | None]:
        """The first value of each environment variable in the matrix; None unsets it."""
        tables = (self.values("env"), self.values("env_nobuild"))
        return {name: values[0] for table in tables for name, values in table.items()}


def read_config(file: Path, root: Path) -> SuiteConfig:
    """Read the configuration of the suite in the repository `root`.

    Raises:
        UsageError: the file is not JSON, or one of its values is of another type than asv's.
    """
    # Each expression also matches whole strings and keeps them, so that strings stay unchanged.
    comments = rf"{_STRING}|//[^\n]*|/\*.*?\*/"
    trailing_commas = rf"{_STRING}|,(?=\s*[}}\]])"
    try:
        text = re.sub(comments, lambda found: found[1] or " ", read_text(file), flags=re.DOTALL)
        table = json.loads(re.sub(trailing_commas, lambda found: found[1] or "", text))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file.name} is not a valid configuration of asv: {error}.") from None
    if not isinstance(table, dict):
        raise UsageError(f"{file.name} is not a valid configuration of asv: it must be a table.")
    extras = re.search(
        r"\{(?:wheel_file|build_dir)\}\[([^\]]+)\]", str(table.get("install_command"))
    )

    def value(name: str, kinds: Any, default: Any, table: Mapping[str, Any] = table) -> Any:
        found = table.get(name, default)
        if not isinstance(found, kinds):
            raise UsageError(f"{file.name}: {name} can't be {reprlib.repr(found)}.")
        return found

    matrix = value("matrix", dict | None, None) or {}
    for kind in KINDS:
        value(kind, dict | None, None, matrix)
    timeout_s = value("default_benchmark_timeout", int | float, 60.0)
    if not 0 <= timeout_s < _MOST_S:
        raise UsageError(f"{file.name}: default_benchmark_timeout can't be {timeout_s!r:.30}.")
    return SuiteConfig(
        folder=file.parent.relative_to(root),
        benchmark_dir=Path(value("benchmark_dir", str, "benchmarks")),
        package_dir=Path(value("repo_subdir", str, "")),
        matrix=matrix,
        extras=tuple(name.strip() for name in extras[1].split(",")) if extras else (),
        timeout_s=float(timeout_s),
        project=str(table.get("project", "")),
        settings=table,
    )
