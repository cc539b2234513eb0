"""No signal is lost, wherever Python is when it comes; a training's are in `training`."""

import signal
import subprocess
import sys

import pytest

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


def run(happens, within, seconds):
    code = IN_A_CALLBACK.format(happens=happens, within=within, seconds=seconds)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("within", [OF_THE_COMMAND_LINE, "interrupts_kept()"])
def test_an_interrupt_is_not_lost_where_python_cannot_raise(within):
    done = run("os.kill(os.getpid(), signal.SIGINT); time.sleep(0)", within, 20)
    assert done.returncode == -signal.SIGINT
    assert done.stderr.count("Exception ignored") == 0


@pytest.mark.parametrize("within", [OF_THE_COMMAND_LINE, "interrupts_kept()"])
def test_an_exit_of_somebody_elses_is_left_to_python(within):
    done = run("sys.exit('text')", within, 0.2)
    assert done.returncode == 0
    assert "Exception ignored" in done.stderr
