"""Files that are read with one sentence for a mistake, and written whole or not at all."""

import os
import tomllib
from pathlib import Path
from typing import Any

from perfgate.errors import UsageError


def read_toml(file: Path, failure: type[Exception] = UsageError) -> dict[str, Any]:
    """Read a TOML file.

    Args:
        file: an existing file; the error names it with its folder.
        failure: what to raise where the file is not valid TOML.
    """
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise failure(f"{file.parent.name}/{file.name} is not valid TOML: {error}.") from None


def replace_text(file: Path, text: str) -> None:
    """Replace a file's text all at once: a reader finds the old text or the new one."""
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8", newline="")
        part.replace(file)
    except OSError:
        part.unlink(missing_ok=True)
        raise
