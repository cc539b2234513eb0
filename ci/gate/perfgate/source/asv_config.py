"""What the gate needs to know of an asv.conf.json: JSON with comments and trailing commas."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfgate.errors import UsageError


@dataclass(frozen=True)
class SuiteConfig:
    """What the gate needs of an asv.conf.json.

    Attributes:
        folder: the folder of the file, relative to the repository's root.
        benchmark_dir: the suite, relative to `folder`.
        package_dir: the package's root, relative to the repository's root.
        matrix: asv's matrix of requirements, as written.
        extras: the package's extras that asv installs, by its install_command.
        timeout_s: seconds a benchmark may take unless it says otherwise.
        project: the project's name.
    """

    folder: Path
    benchmark_dir: Path
    package_dir: Path = Path()
    matrix: Any = None
    extras: tuple[str, ...] = ()
    timeout_s: float = 60.0
    project: str = ""


def read_config(file: Path, root: Path) -> SuiteConfig:
    """Read asv.conf.json, JSON with comments and trailing commas."""
    text = re.sub(
        r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/',
        lambda m: m[1] or " ",
        file.read_text(),
        flags=re.DOTALL,
    )
    text = re.sub(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])', lambda m: m[1] or "", text)
    try:
        table = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{file.name} is no valid configuration of asv: {error}.") from None
    extras = re.search(
        r"\{(?:wheel_file|build_dir)\}\[([^\]]+)\]", str(table.get("install_command"))
    )
    return SuiteConfig(
        folder=file.parent.relative_to(root),
        benchmark_dir=Path(table.get("benchmark_dir", "benchmarks")),
        package_dir=Path(table.get("repo_subdir", "")),
        matrix=table.get("matrix"),
        extras=tuple(name.strip() for name in extras[1].split(",")) if extras else (),
        timeout_s=float(table.get("default_benchmark_timeout", 60.0)),
        project=str(table.get("project", "")),
    )
