"""How the commands that measure begin and end: one sentence for each mistake, files whole or not at all."""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfgate.errors import PreparationError, UsageError

_STOPPING = (signal.SIGTERM, signal.SIGHUP)


def guarded(command: Callable[[], int], stopped: str) -> int:
    """Run a command and return its exit code: 2 for wrong usage, 3 where it could not tell, 130 where it was stopped.

    A mistake of ours could not tell either: Python's own exit code of it, 1, would pass for a
    regression.

    Args:
        command: returns the exit code.
        stopped: what to say after Ctrl-C, a hang-up or a request to end.
    """
    handlers = [signal.signal(each, _stop) for each in _STOPPING]
    try:
        return command()
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    except PreparationError as error:
        print(f"COULD NOT TELL: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print(stopped, file=sys.stderr)
        return 130
    except Exception as error:  # noqa: BLE001 - whatever it is, it is shown whole
        traceback.print_exc()
        print(
            f"COULD NOT TELL: a mistake in this command itself: {type(error).__name__}.",
            file=sys.stderr,
        )
        return 3
    finally:
        for each, handler in zip(_STOPPING, handlers, strict=True):
            signal.signal(each, handler)


def replace_text(file: Path, text: str) -> None:
    """Put a text in the place of a file's, all at once: a reader finds the old one or the new one."""
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8", newline="")
        part.replace(file)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def _stop(number: int, frame: Any) -> None:
    """Leave as Ctrl-C does, so that workers end and checkouts are removed."""
    raise KeyboardInterrupt
