"""What all commands share: how they parse flags, answer mistakes and end. Standard library only."""

import argparse
import contextlib
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from perfgate.errors import PreparationError, UsageError

DEFAULT_OUTPUT = Path(".asv/gate")
# Windows has no SIGHUP, and the command line must get as far as to say that the gate needs Linux.
_STOPPING = ("SIGINT", "SIGTERM", "SIGHUP")
STOPPING = tuple(getattr(signal, name) for name in _STOPPING if hasattr(signal, name))


@dataclass(frozen=True)
class Shard:
    """One of `count` parts of a run; `number` counts from 1."""

    number: int
    count: int

    def take(self, names: Iterable[str]) -> set[str]:
        """Return every `count`-th of the names in alphabetical order."""
        return set(sorted(names)[self.number - 1 :: self.count])


class Parser(argparse.ArgumentParser):
    """A parser that takes whole flags only and raises its mistakes as `UsageError`."""

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

    The code is 2 for wrong usage, 3 where the command could not tell, and 130 where it was stopped.
    A bug in the command also ends with 3, because Python's own exit code, 1, would look like a
    regression.

    Args:
        command: returns the exit code.
        stopped: what to say after Ctrl-C, a hang-up or a request to end.
    """
    # One that is ignored stays ignored, as SIGHUP does under nohup.
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
        # the terminal may be gone, and that is why
        with contextlib.suppress(OSError):
            print(stopped, file=sys.stderr)
        return 130
    except Exception as error:  # noqa: BLE001 - whatever it is, it is shown whole
        with contextlib.suppress(OSError):
            traceback.print_exc()
            print(
                f"COULD NOT TELL: a mistake in this command itself: {type(error).__name__}.",
                file=sys.stderr,
            )
        return 3
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)


def _stop(number: int, frame: Any) -> None:
    """Leave as Ctrl-C does, so that workers end and checkouts are removed.

    A closed terminal often hangs up twice. The second time must not interrupt the clearing up.
    """
    for each in STOPPING:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt
