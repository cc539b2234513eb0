"""How the commands that measure end, whatever happens in them."""

import os
import signal

import pytest

from perfgate.errors import PreparationError, UsageError
from perfgate.options import STOPPING, guarded


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UsageError("--base must be a commit."), 2, "--base must be a commit.\n"),
        (PreparationError("no uv."), 3, "COULD NOT TELL: no uv.\n"),
        (KeyboardInterrupt(), 130, "stopped\n"),
        (ZeroDivisionError(), 3, "COULD NOT TELL: a bug in perfgate: ZeroDivisionError.\n"),
    ],
)
def test_only_a_regression_ends_with_1(capsys, error, code, said):
    def command():
        raise error

    assert guarded(command, "stopped") == code
    assert capsys.readouterr().err.endswith(said)


@pytest.mark.usefixtures("no_signal_is_ignored")
@pytest.mark.parametrize("number", STOPPING)
def test_a_second_signal_does_not_interrupt_the_clearing_up(number):
    handlers = [signal.getsignal(each) for each in STOPPING]
    cleared = []

    def command():
        try:
            os.kill(os.getpid(), number)
        finally:
            for each in STOPPING:
                os.kill(os.getpid(), each)
            cleared.append(number)
        return 0

    assert guarded(command, "stopped") == 130
    assert cleared == [number]
    assert [signal.getsignal(each) for each in STOPPING] == handlers


def test_a_hang_up_that_nohup_ignores_stays_ignored():
    def command():
        os.kill(os.getpid(), signal.SIGHUP)
        return 0

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert guarded(command, "stopped") == 0
    finally:
        signal.signal(signal.SIGHUP, before)
