"""How the commands that measure end, whatever happens in them."""

import os
import signal

import pytest

from perfgate.options import STOPPING, guarded


def test_a_bug_of_the_gate_is_no_regression(capsys):
    assert guarded(lambda: 1 / 0, "stopped") == 3
    said = capsys.readouterr().err
    assert said.endswith("COULD NOT TELL: a bug in perfgate: ZeroDivisionError.\n")


@pytest.mark.usefixtures("no_signal_is_ignored")
@pytest.mark.parametrize("number", STOPPING)
def test_a_second_signal_does_not_interrupt_the_clearing_up(number, capsys):
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
    assert (cleared, capsys.readouterr().err) == ([number], "stopped\n")
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
