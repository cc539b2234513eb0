"""The command `myriad`.

Each subcommand is a dataclass: its fields are the options, and its `run` does the work. Heavy
modules are imported inside functions, so that `myriad --help` answers at once.
"""

import contextlib
import gc
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import NoReturn

from myriad.errors import InvalidArgumentError, MyriadError
from myriad.files import say
from myriad.signals import end_at_once, raise_once

__all__ = ["main"]

# The exit codes that a shell reports for a process that a signal ended.
_INTERRUPTED = 128 + signal.SIGINT
_NOBODY_READS = 128 + 13  # SIGPIPE, which Windows lacks


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    The code is 0 on success. It is 1 if `doctor` finds a problem, 2 if the input can't be used or
    the output can't be written, 130 after an interrupt, and 141 if nobody reads the output any
    more.

    Args:
        argv: the arguments; by default those of this process.
    """
    is_ours = argv is None  # Otherwise the caller owns the process and its signals.
    _open_standard_files()
    if is_ours:
        end_at_once()
    code = _code_of(argv, is_ours=is_ours)
    if is_ours:
        # Otherwise Python would look for garbage once more at exit, just before all memory is free.
        gc.freeze()
    if code and is_ours and "myriad.distributed" in sys.modules:
        sys.modules["myriad.distributed"].end(code)
    return code


def _code_of(argv: Sequence[str] | None, *, is_ours: bool) -> int:
    words = sys.argv[1:] if argv is None else argv
    code = 2
    try:
        try:
            of_command = _called(words, is_ours=is_ours)
        except (RuntimeError, AssertionError):
            # JAX's backend starts at the first use, which may be anywhere. If its variables keep it
            # from that, say so instead of what failed.
            from myriad.engine.machine import require_usable_jax

            require_usable_jax()
            raise
        if sys.stdout is not None:
            sys.stdout.flush()
        code = of_command
    except InvalidArgumentError as error:
        from myriad.cli.arguments import flags_by_name

        say(str(error.renamed({"profile_chunks": "--profile"} | flags_by_name(words))))
    except MyriadError as error:
        say(str(error))
    except KeyboardInterrupt as interrupt:
        if is_ours:
            _end(interrupt)
        code = _INTERRUPTED
    except OSError as error:
        if is_ours and error.filename is None and sys.stdout is not None:
            # Drop what is buffered. Python would write it at exit, fail again and complain.
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, sys.stdout.fileno())
            os.close(nothing)
        if isinstance(error, BrokenPipeError):
            code = _NOBODY_READS
        else:
            what = error.filename or "standard output or another file"
            say(f"{what} can't be used: {error.strerror or error}.")
    return code


def _called(argv: Sequence[str], *, is_ours: bool) -> int:
    """Parse the arguments, prepare JAX, and run the command."""
    from myriad.host import collector_paused

    # The objects that modules make on import live on, so collecting would find nothing.
    with collector_paused():
        from myriad.cli.arguments import parse

        try:
            command = parse(argv)
        except SystemExit as end:
            if not end.code:
                raise
            return int(end.code)  # tyro has said what is wrong
        # JAX's backend reads its options once, when it starts, so set them before that.
        from myriad.engine.machine import configure
        from myriad.settings import PLACES, Settings

        # A new training reads the other settings itself, and a resumed one ignores them.
        Settings.read(only=PLACES).export()
        launch = getattr(command, "launch", None)
        # This waits for the other processes in C++, where Python handles no signal, as long as
        # MYRIAD_START_TIMEOUT_S says.
        configure(without=command.without_xla_option, distributed=launch or False)
        if is_ours:
            # Otherwise every later collection would scan all modules again.
            gc.freeze()
            raise_once()
    warnings.formatwarning = lambda message, *_: f"{message}\n"
    return command.run() or 0


def _end(interrupt: KeyboardInterrupt) -> NoReturn:
    """Print the sentences of the interrupted command and end the process."""
    # A second interrupt would only disturb the exit.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for sentence in interrupt.args:
        say(sentence)
    with contextlib.suppress(AttributeError, OSError):
        sys.stdout.flush()
    # Python's normal exit would abort if a thread is still compiling.
    os._exit(_INTERRUPTED)


def _open_standard_files() -> None:
    """Open closed standard streams, or the next file would get their number and their output."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:  # 2 is standard error
        pass
    os.close(number)
