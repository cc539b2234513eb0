"""No signal is lost, wherever Python is when it comes; a training's are in `training`."""

import signal

import pytest

from tests.child_processes import python

# Python can't raise out of a callback of its garbage collector.
IN_A_CALLBACK = """
import contextlib, gc, os, signal, sys, time
from myriad.signals import Interrupts, interrupts_kept

def called(phase, info):
    gc.callbacks.clear()
    {happens}

gc.callbacks.append(called)
with {within}:
    gc.collect()
    time.sleep({seconds})
"""
OF_THE_COMMAND_LINE = "contextlib.nullcontext(Interrupts().install())"
INTERRUPT = "os.kill(os.getpid(), signal.SIGINT); time.sleep(0)"


@pytest.mark.parametrize("within", [OF_THE_COMMAND_LINE, "interrupts_kept()"])
@pytest.mark.parametrize(
    ("happens", "seconds", "code"),
    # An exit of somebody else's is left to Python, which ignores it.
    [(INTERRUPT, 20, -signal.SIGINT), ("sys.exit('text')", 0.2, 0)],
)
def test_an_interrupt_is_not_lost_where_python_cannot_raise(happens, seconds, code, within):
    script = IN_A_CALLBACK.format(happens=happens, within=within, seconds=seconds)
    said = python("-c", script, code=code).stderr
    assert ("Exception ignored" in said) == (code == 0)
