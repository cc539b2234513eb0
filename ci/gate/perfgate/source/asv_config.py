"""Read asv.conf.json, which is JSON with comments and trailing commas."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfgate.errors import UsageError

_STRING = r'("(?:\\.|[^"\\])*")'


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
    """Read the configuration of the suite in the repository `root`.

    Raises:
        UsageError: the file is not JSON.
    """
    # Each expression also matches whole strings and keeps them, so that what is inside stays.
    text = file.read_text(encoding="utf-8")
    comments = rf"{_STRING}|//[^\n]*|/\*.*?\*/"
    text = re.sub(comments, lambda found: found[1] or " ", text, flags=re.DOTALL)
    trailing_commas = rf"{_STRING}|,(?=\s*[}}\]])"
    text = re.sub(trailing_commas, lambda found: found[1] or "", text)
    try:
        table = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{file.name} is not a valid configuration of asv: {error}.") from None
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
