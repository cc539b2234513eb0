"""The command `myriad`.

Each subcommand is a dataclass: its fields are the options, and its `run` does the work. What is
heavy loads inside the functions, so that `myriad --help` answers at once.
"""

import contextlib
import dataclasses
import gc
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from myriad.files import say
from myriad.signals import Interrupts, end_by_signal, interrupts_end_at_once

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["main", "parse"]

# What a shell reports of a process that a signal ended.
_INTERRUPTED = 128 + signal.SIGINT
_NOBODY_READS = 128 + 13  # SIGPIPE, which Windows lacks


def parse(argv: Sequence[str]) -> Any:
    """Turn arguments into a command; see `myriad.cli.arguments.parse`."""
    # Loaded here, so that an interrupt meanwhile ends as one later does.
    from myriad.cli.arguments import parse

    return parse(argv)


def main(
    argv: Sequence[str] | None = None, *, is_worker: bool = False, resuming: "Path | None" = None
) -> int:
    """Run the command line and return its exit code.

    It is 0, 1 if `doctor` finds what can't be had or another process of a training is lost, 2 if
    the input can't be used or the output can't be written, 130 after an interrupt, and 141 if
    nobody reads the output any more.

    Args:
        argv: the arguments; by default those of this process.
        is_worker: whether this process is one of several of a training, see
            `myriad.cli.supervisor`.
        resuming: the run that goes on, where the supervisor has started the process again.
    """
    is_ours = argv is None  # Otherwise the process and its signals are somebody else's.
    _open_standard_files()
    if is_ours:
        Interrupts().install()
    code = _code_of(argv, is_ours=is_ours, is_worker=is_worker, resuming=resuming)
    if is_worker and code:
        from myriad.distributed import processes

        processes().leave()
        # JAX would wait for processes that are gone.
        os._exit(code)
    return code


def _code_of(
    argv: Sequence[str] | None, *, is_ours: bool, is_worker: bool, resuming: "Path | None"
) -> int:
    words = sys.argv[1:] if argv is None else argv
    try:
        code = _run(words, is_ours=is_ours, is_worker=is_worker, resuming=resuming)
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt as interrupt:
        if is_ours:
            _end(interrupt)
        return _INTERRUPTED
    except OSError as error:
        if error.filename is not None:
            say(f"{error.filename} can't be used: {error.strerror}.")
            return 2
        if is_ours:
            _close_stdout()
        if isinstance(error, BrokenPipeError):
            return _NOBODY_READS
        say(f"standard output or another file can't be used: {error.strerror or error}.")
        return 2
    return code


def _run(argv: Sequence[str], *, is_ours: bool, is_worker: bool, resuming: "Path | None") -> int:
    from myriad.collector import collector_paused
    from myriad.errors import InvalidArgumentError, MyriadError, ProcessLostError
    from myriad.launch import LOST

    try:
        # What modules make while they load stays, so there is nothing to collect.
        with interrupts_end_at_once(), collector_paused():
            command = parse(argv)
            if getattr(command, "distributed", False) and not is_worker:
                return command.supervised(argv)
            if resuming is not None:
                command = dataclasses.replace(command, resuming=resuming)
            # This comes before anything can start JAX's backend, which reads its options once.
            from myriad.hardware import configure
            from myriad.settings import PLACES, Settings

            # A training reads the others, and one that goes on reads none of them.
            Settings.read(only=PLACES).export()
            launch = getattr(command, "launch", None)
            # This may wait a minute for other processes, in C++.
            configure(without=command.without_xla_option, distributed=launch or False)
        if is_ours:
            # Python would look through all of it again and again, and once more at its end.
            gc.freeze()
        warnings.formatwarning = lambda message, *_: f"{message}\n"
        return _done(command, is_worker=is_worker)
    except InvalidArgumentError as error:
        from myriad.cli.arguments import flags_by_name

        say(str(error.renamed(flags_by_name(argv))))
        return 2
    except ProcessLostError as error:
        say(str(error))
        return LOST
    except MyriadError as error:
        say(str(error))
        return 2


def _done(command: Any, *, is_worker: bool) -> int:
    """Run a command, and let the other processes of a training end with it if it fails."""
    if not is_worker:
        return command.run() or 0
    from myriad.distributed import processes

    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, end_by_signal)
    try:
        with processes().watching():
            return command.run() or 0
    except SystemExit as end:
        return int(end.code or 0)


def _end(interrupt: KeyboardInterrupt) -> NoReturn:
    """End the process, and say what the interrupted command says."""
    # Another one would only spoil the way out.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for sentence in interrupt.args:
        say(sentence)
    with contextlib.suppress(AttributeError, OSError):
        sys.stdout.flush()
    # Threads that still compile would abort Python's own end.
    os._exit(_INTERRUPTED)


def _open_standard_files() -> None:
    """Open what was closed. The next file would take its number, and get what libraries print."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:  # 2 is standard error
        pass
    os.close(number)


def _close_stdout() -> None:
    """Drop what is left to write: Python would try again at its end, and complain."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)
