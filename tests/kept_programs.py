"""Where tests keep the programs that they compile, and for how long."""

import contextlib
import os
import time
from pathlib import Path

from myriad.settings import compilation_cache

# Programs are compiled anew after so long. Most are of code that is gone by then.
FORGOTTEN_S = 30 * 86_400.0


def folder_for_programs(clone: Path) -> Path:
    """Make a folder that lasts from run to run and serves every clone, and return it.

    It lies beside the user's own programs, or in `clone` where the user has no folder to write in.
    It doesn't move with a clone, since JAX's keys of programs hold the folder's path.
    """
    if (programs := compilation_cache()) is not None:
        folder = programs.with_name("tests")
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    folder = clone / ".pytest_cache" / "xla"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def forget_old_programs(folder: Path) -> None:
    """Remove programs that are old, or empty because a process was killed as it began to write."""
    for program in folder.glob("*-cache"):
        with contextlib.suppress(OSError):  # Another run tidies too.
            kept = program.stat()
            if time.time() - kept.st_mtime > FORGOTTEN_S or not kept.st_size:
                program.unlink()
