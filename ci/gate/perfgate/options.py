"""Parsing of flags, errors and exit codes, for all commands. Standard library only."""

import argparse
import contextlib
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from perfgate.errors import PreparationError, UsageError

DEFAULT_OUTPUT = Path(".asv/gate")
# Windows has no SIGHUP. This module must still load there, to say that the gate needs Linux.
_STOPPING = ("SIGINT", "SIGTERM", "SIGHUP")
STOPPING = tuple(getattr(signal, name) for name in _STOPPING if hasattr(signal, name))


class Parser(argparse.ArgumentParser):
    """A parser that accepts no abbreviated flags and raises mistakes as `UsageError`."""

    def __init__(self, prog: str, description: str, epilog: str | None = None):
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        """Raise the mistake as one sentence."""
        raise UsageError(f"{message}; {self.prog} --help lists the flags.")


def add_suite_config(parser: argparse.ArgumentParser) -> None:
    """Add the flag that names the suite."""
    parser.add_argument(
        "--suite-config",
        type=Path,
        default=Path("asv.conf.json"),
        metavar="FILE",
        help="the suite's configuration (default: %(default)s)",
    )


def guarded(command: Callable[[], int], stopped: str) -> int:
    """Run a command and return its exit code.

    The code is 2 for wrong usage, 3 if the command could not decide, and 130 if it was stopped. A
    bug in the command also ends with 3, because Python's own exit code, 1, would look like a
    regression.

    Args:
        command: the command, which returns the exit code.
        stopped: the message after Ctrl-C, a hang-up or a request to end.
    """
    # A signal that is ignored must stay ignored: nohup ignores SIGHUP.
    heeded = [each for each in STOPPING if signal.getsignal(each) is not signal.SIG_IGN]
    handlers = {each: signal.signal(each, _stop) for each in heeded}
    try:
        return command()
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    except PreparationError as error:
        print(f"COULD NOT TELL: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        # the terminal that was closed can't take the message
        with contextlib.suppress(OSError):
            print(stopped, file=sys.stderr)
        return 130
    except Exception as error:  # noqa: BLE001 - its whole traceback is printed
        with contextlib.suppress(OSError):
            traceback.print_exc()
            print(f"COULD NOT TELL: a bug in perfgate: {type(error).__name__}.", file=sys.stderr)
        return 3
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)


def _stop(number: int, frame: Any) -> None:
    """Exit as after Ctrl-C, so that workers end and checkouts are removed.

    A closed terminal often sends SIGHUP twice. The second one must not interrupt the cleanup.
    """
    for each in STOPPING:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt
