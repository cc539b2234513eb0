"""Write files whole: a reader finds the old content or the new one, never a part of it.

Every file that a suite leaves is written here. The package has its own writer, which older commits
lack, and suites run on those too.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, and move it to `path` when the block succeeds."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path`, with the line endings that it has."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8", newline="")
